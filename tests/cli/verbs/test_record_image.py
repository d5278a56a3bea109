"""regard record and regard view of models that read images: runs, and vision models of transformers."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.cli.conftest import Regard
from tests.viz.recordings import said as words

from regard.cli.main import main
from regard.common.json_files import with_checksum
from regard.recording.recording import Recording
from regard.tasks.generate_image.options import GenerateImage

TINY = "--batch 400 --threads 1 --steps 1"


def trained(root: Path, gate: str | None, sizes: str = "--width 2 --depths 1") -> Path:
    chosen = [] if gate is None else ["--gate", gate]
    args = ["train", "classify-image", "--data", "digits", *chosen, *sizes.split(), *TINY.split()]
    assert main([*args, "--out", str(root / str(gate))]) == 0
    return root / str(gate)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("gated"), "simam")


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "three.png"
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import transformers
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessorPil

    folder = tmp_path_factory.mktemp("vit")
    transformers.logging.disable_progress_bar()
    torch.manual_seed(7)
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 16}
    names = {0: "cat", 1: "dog", 2: "owl"}
    config = ViTConfig(**sizes, image_size=24, patch_size=8, num_labels=3, id2label=names)
    ViTForImageClassification(config).save_pretrained(folder)
    ViTImageProcessorPil(size={"height": 24, "width": 24}).save_pretrained(folder)
    return folder


def test_a_training_sees_a_picture(run: Path, picture: Path, regard: Regard, tmp_path: Path) -> None:
    path = tmp_path / "r.safetensors"
    ran = regard("record", run, picture, "--out", path)
    assert ran.code == 0, ran.err
    said = regard("predict", run, picture).out.split("\t")[1]
    assert ran.out.startswith(said.strip().split(" ")[0])
    assert ran.err == (
        "regard: 1 map of 1 module, each checked against what the model computed\n"
        f"regard: the recording is in {path}; view it: regard view {path} --image {picture} --out page.html\n"
    )
    tape = Recording.load(path)
    assert [(one.name, one.kind, one.grid) for one in tape] == [("blocks.0.gate", "gate", (8, 8))]
    assert tape.about["picture"] == "three.png"
    # over its picture again
    for suffix in (".png", ".html"):
        again, straight = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
        assert regard("view", path, "--image", picture, "--out", again).code == 0
        assert regard("view", run, picture, "--out", straight).code == 0
        assert again.read_bytes() == straight.read_bytes()
    assert "data:image/png;base64," in (tmp_path / "a.html").read_text(encoding="utf-8")
    # predict draws the same
    ran = regard("predict", run, picture, "--picture", tmp_path / "c.png")
    assert (ran.code, ran.out) == (0, regard("predict", run, picture).out)
    assert (tmp_path / "c.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    # in the terminal, and without the picture
    assert "blocks.0.gate" in regard("view", run, picture).out
    assert regard("view", run, picture, "--what", "heads", "--out", tmp_path / "c.png").code == 0


def test_gates_of_channels_are_bars_and_no_places(picture: Path, regard: Regard, tmp_path: Path) -> None:
    run, path = trained(tmp_path, "se"), tmp_path / "r.safetensors"
    ran = regard("record", run, picture, "--out", path)
    assert ran.err.endswith(f"regard: the recording is in {path}; view it: regard view {path}\n")
    assert "2 channels" in regard("view", path).out
    assert regard("view", run, picture, "--out", tmp_path / "a.svg").code == 0
    told = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "weight of each channel of blocks.0.gate" in told
    assert "prediction: " in told
    assert regard("predict", run, picture, "--picture", tmp_path / "b.svg").code == 0
    assert (tmp_path / "b.svg").read_text(encoding="utf-8") == told
    why = "needs attention over patches of an image, and there is none here: its gates weigh whole channels; "
    why += "leave it out\n"
    for suffix in (".png", ".html"):
        ran = regard("view", path, "--image", picture, "--out", tmp_path / f"b{suffix}")
        assert ran == (2, "", f"regard: --image {picture} {why}")
    assert regard("view", path, "--image", picture, "--serve") == (2, "", f"regard: --image {picture} {why}")
    assert regard("view", path, "--what", "overlay", "--out", "b.png") == (2, "", f"regard: --what overlay {why}")


def test_a_reader_of_rows_says_what_its_rows_and_columns_are(picture: Path, regard: Regard, tmp_path: Path) -> None:
    run = trained(tmp_path, None, "--model rows --heads 2 --width 2 --stride 2")
    assert regard("view", run, picture, "--out", tmp_path / "a.svg").code == 0
    assert "4 × 4 (rows of the picture, from the top × patches of a row, from the left)" in words(tmp_path / "a.svg")
    assert regard("view", run, picture, "--what", "map", "--out", tmp_path / "b.svg").code == 0
    assert {"rows of the picture, from the top", "patches of a row, from the left"} <= set(
        words(tmp_path / "b.svg").split("\n")
    )


def test_another_picture_is_refused_and_a_missing_one_asked_for(
    run: Path, picture: Path, regard: Regard, tmp_path: Path
) -> None:
    path, other = tmp_path / "r.safetensors", tmp_path / "other.png"
    assert regard("record", run, picture, "--out", path).code == 0
    Image.new("RGB", (20, 30)).save(other)
    ran = regard("view", path, "--image", other, "--out", tmp_path / "a.png")
    assert ran == (
        2,
        "",
        f"regard: --image {other} has 20 × 30 pixels, and the image that the model read, three.png, had 30 × 20; "
        "name that one\n",
    )
    hint = "regard: they attend to patches of an image; to draw them over it: "
    hint += "regard view {} --image three.png --out {}\n"
    assert hint.format(path, "a.png") in regard("view", path).err
    assert hint.format(path, tmp_path / "a.svg") in regard("view", path, "--out", tmp_path / "a.svg").err
    for told in (
        regard("view", path, "--image", picture, "--out", tmp_path / "a.svg"),
        regard("view", path, "--out", tmp_path / "a.npz"),
        regard("view", run, picture, "--out", tmp_path / "a.svg"),
    ):
        assert told.code == 0
        assert "over it" not in told.err
    ran = regard("view", path, "--what", "captions", "--image", picture, "--out", tmp_path / "a.svg")
    assert ran.err == (
        "regard: --what captions draws attention of kind cross or alignment, and there is none here; "
        "try --what overlay\n"
    )


def test_a_vision_model_of_transformers(vit: Path, picture: Path, regard: Regard, tmp_path: Path) -> None:
    from transformers import AutoImageProcessor, ViTForImageClassification

    path = tmp_path / "r.safetensors"
    ran = regard("record", vit, picture, "--out", path)
    assert ran.code == 0, ran.err
    x = AutoImageProcessor.from_pretrained(vit)(Image.open(picture), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        right = ViTForImageClassification.from_pretrained(vit, attn_implementation="eager").eval()(
            pixel_values=x, output_attentions=True
        )
    best = int(right.logits.argmax())
    assert ran.out.startswith(f"{('cat', 'dog', 'owl')[best]} {100 * float(right.logits.softmax(-1)[0, best]):.1f} %")
    tape = Recording.load(path)
    assert [one.grid for one in tape] == [(3, 3)] * 2
    for one, weights in zip(tape, right.attentions, strict=True):
        torch.testing.assert_close(one.weights.dense(), weights, atol=1e-6, rtol=0)
    for suffix in (".png", ".html"):
        assert regard("record", vit, picture, "--out", tmp_path / f"a{suffix}").code == 0
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "data:image/png;base64," in page
    assert '"grid":[3,3]' in page


def test_what_cannot_be_seen(run: Path, vit: Path, picture: Path, regard: Regard, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("no picture", encoding="utf-8")
    for folder in (run, vit):
        for given, sentence in ((words, "cannot be read as a picture ("), (tmp_path / "nix.png", "there is no file")):
            ran = regard("record", folder, given)
            assert ran.code == 2
            assert sentence in ran.err
            assert "Traceback" not in ran.err
    ran = regard("view", run)
    assert ran == (2, "", f"regard: {run} reads images; name one, such as three.png\n")
    ran = regard("view", run, picture, "--image", picture, "--out", tmp_path / "a.png")
    assert "is for a recording; for a run, name the image behind it" in ran.err


def test_a_network_that_does_not_attend(picture: Path, regard: Regard, tmp_path: Path) -> None:
    plain = trained(tmp_path, None)
    ran = regard("record", plain, picture)
    assert ran == (2, "", f"regard: nothing in {plain} attended, so there is nothing to show; name another one\n")
    ran = regard("predict", plain, picture, "--picture", tmp_path / "a.png")
    assert ran == (2, "", "regard: --picture draws attention, and this model has none; leave it out\n")


def test_a_run_that_does_neither(run: Path, picture: Path, regard: Regard, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(run, other)
    record = json.loads((other / "run.json").read_text(encoding="utf-8"))
    record |= {"task": "generate-image", "options": GenerateImage.of().to_json()}
    (other / "run.json").write_bytes(with_checksum(record))
    ran = regard("record", other, picture)
    why = "which reads neither a text nor an image; name another run"
    assert ran.err == f"regard: {other} is a run of generate-image, {why}\n"
    ran = regard("serve", other)
    command = f"regard predict {other} CLASS --picture samples.png"
    assert ran.err == f"regard: {other} is a run of generate-image, which is not served; use {command}\n"


def test_a_damaged_folder_of_transformers(vit: Path, picture: Path, regard: Regard, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "vit"}', encoding="utf-8")
    (tmp_path / "preprocessor_config.json").write_text("{", encoding="utf-8")
    ran = regard("record", tmp_path, picture)
    assert "must hold weights in .safetensors, got none; save it with save_pretrained" in ran.err
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    ran = regard("record", tmp_path, picture)
    assert ran.code == 2
    assert "transformers cannot load" in ran.err
    assert "save the model and its image processor there with save_pretrained" in ran.err


def test_gates_where_nothing_recurs(regard: Regard, run: Path, vit: Path, picture: Path) -> None:
    ran = regard("record", run, picture, "--gates")
    message = f"--gates records GRU and LSTM, and no layer of {run} that was recorded is one; leave it out"
    assert (ran.code, ran.err) == (2, f"regard: {message}\n")
    ran = regard("record", vit, picture, "--gates")
    message = f"--gates is for the folder of a run with recurrent layers, and {vit} is none; leave it out"
    assert (ran.code, ran.err) == (2, f"regard: {message}\n")
