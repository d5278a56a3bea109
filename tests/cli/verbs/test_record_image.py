"""regard record and regard view of models that read images: runs, and vision models of transformers."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.cli.conftest import Refused, Regard, train
from tests.viz.recordings import said as words

from regard.common.json_files import with_checksum
from regard.recording.recording import Recording
from regard.tasks.generate_image.options import GenerateImage


def trained(root: Path, options: str) -> Path:
    tiny = "--data digits --width 2 --batch 400 --threads 1 --steps 1"
    return train(root / "run", "classify-image", f"{tiny} {options}")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("gated"), "--depths 1 --gate simam")


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


def test_gates_of_channels_are_bars_and_no_places(
    picture: Path, regard: Regard, refused: Refused, tmp_path: Path
) -> None:
    run, path = trained(tmp_path, "--depths 1 --gate se"), tmp_path / "r.safetensors"
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
    why += "leave it out"
    for words_of_image in (["--out", tmp_path / "b.html"], ["--serve"]):
        assert refused("view", path, "--image", picture, *words_of_image) == f"--image {picture} {why}"
    assert refused("view", path, "--what", "overlay", "--out", "b.png") == f"--what overlay {why}"


def test_a_reader_of_rows_says_what_its_rows_and_columns_are(picture: Path, regard: Regard, tmp_path: Path) -> None:
    run = trained(tmp_path, "--model rows --heads 2 --stride 2")
    assert regard("view", run, picture, "--out", tmp_path / "a.svg").code == 0
    assert "4 × 4 (rows of the picture, from the top × patches of a row, from the left)" in words(tmp_path / "a.svg")
    assert regard("view", run, picture, "--what", "map", "--out", tmp_path / "b.svg").code == 0
    assert {"rows of the picture, from the top", "patches of a row, from the left"} <= set(
        words(tmp_path / "b.svg").split("\n")
    )


def test_another_picture_is_refused_and_a_missing_one_asked_for(
    run: Path, picture: Path, regard: Regard, refused: Refused, tmp_path: Path
) -> None:
    path, other = tmp_path / "r.safetensors", tmp_path / "other.png"
    assert regard("record", run, picture, "--out", path).code == 0
    Image.new("RGB", (20, 30)).save(other)
    assert refused("view", path, "--image", other, "--out", tmp_path / "a.png") == (
        f"--image {other} has 20 × 30 pixels, and the image that the model read, three.png, had 30 × 20; name that one"
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
    assert refused("view", path, "--what", "captions", "--image", picture, "--out", tmp_path / "a.svg") == (
        "--what captions draws attention of kind cross or alignment, and there is none here; try --what overlay"
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


def test_what_cannot_be_seen(run: Path, vit: Path, picture: Path, refused: Refused, tmp_path: Path) -> None:
    no_picture = tmp_path / "words.txt"
    no_picture.write_text("no picture", encoding="utf-8")
    for folder in (run, vit):
        assert "cannot be read as a picture (" in refused("record", folder, no_picture)
        assert "there is no file" in refused("record", folder, tmp_path / "nix.png")
    assert refused("view", run) == f"{run} reads images; name one, such as three.png"
    over = refused("view", run, picture, "--image", picture, "--out", tmp_path / "a.png")
    assert over.endswith("is for a recording; for a run, name the image behind it")


def test_a_network_that_does_not_attend(picture: Path, refused: Refused, tmp_path: Path) -> None:
    plain = trained(tmp_path, "--depths 1")
    sentence = f"nothing in {plain} attended, so there is nothing to show; name another one"
    assert refused("record", plain, picture) == sentence
    sentence = "--picture draws attention, and this model has none; leave it out"
    assert refused("predict", plain, picture, "--picture", tmp_path / "a.png") == sentence


def test_a_run_that_does_neither(run: Path, picture: Path, refused: Refused, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(run, other)
    record = json.loads((other / "run.json").read_text(encoding="utf-8"))
    record |= {"task": "generate-image", "options": GenerateImage.of().to_json()}
    (other / "run.json").write_bytes(with_checksum(record))
    why = "which reads neither a text nor an image; name another run"
    assert refused("record", other, picture) == f"{other} is a run of generate-image, {why}"
    why = f"which is not served; use regard predict {other} CLASS --picture samples.png"
    assert refused("serve", other) == f"{other} is a run of generate-image, {why}"


def test_a_damaged_folder_of_transformers(vit: Path, picture: Path, refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "vit"}', encoding="utf-8")
    (tmp_path / "preprocessor_config.json").write_text("{", encoding="utf-8")
    sentence = "must hold weights in .safetensors, got none; save it with save_pretrained"
    assert sentence in refused("record", tmp_path, picture)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    sentence = refused("record", tmp_path, picture)
    assert sentence.startswith("transformers cannot load")
    assert "save the model and its image processor there with save_pretrained" in sentence


def test_gates_where_nothing_recurs(refused: Refused, run: Path, vit: Path, picture: Path) -> None:
    sentence = f"--gates records GRU and LSTM, and no layer of {run} that was recorded is one; leave it out"
    assert refused("record", run, picture, "--gates") == sentence
    sentence = f"--gates is for the folder of a run with recurrent layers, and {vit} is none; leave it out"
    assert refused("record", vit, picture, "--gates") == sentence
