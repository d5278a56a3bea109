"""A pretrained ViT in classify-image and caption: its states, runs without its folder, frozen layers, bad folders."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tests.tasks.encoders import bert_folder, edit_config, vit_encoder_folder

from regard.cli.main import main
from regard.models.transfer.image_encoder import ImageEncoder, ImageEncoderClassifier, PatchAnnotations
from regard.models.vit import ViT
from regard.tasks.classify_image.options import PretrainedImageOptions
from regard.tasks.loading import load_run
from regard.tasks.shared.image_data import ImageStats
from regard.tasks.shared.image_encoder import SMALLEST, PretrainedImageEncoder, smallest_image_encoder
from regard.training import checkpoint

TRAIN = ["--steps", "2", "--warmup", "1", "--batch", "32", "--threads", "1", "--validate-every", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vit_encoder_folder(tmp_path_factory.mktemp("encoders") / "vit", "ViTForImageClassification")


@pytest.fixture(scope="module")
def run(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on the embedded digits, whose folder of the encoder is gone after training."""
    base = tmp_path_factory.mktemp("run")
    shutil.copytree(folder, base / "vit")
    command = ["train", "classify-image", "--encoder", str(base / "vit"), "--freeze", "1", *TRAIN]
    assert main([*command, "--out", str(base / "run")]) == 0
    shutil.rmtree(base / "vit")
    return base / "run"


@pytest.mark.parametrize("kind", ["ViTModel", "ViTForImageClassification"])
def test_states_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    """With the normalization of the folder, from pixels from 0 to 1."""
    path = vit_encoder_folder(tmp_path / "vit", kind, num_channels=3)
    theirs, processor = transformers.ViTModel.from_pretrained(path).eval(), transformers.ViTImageProcessorPil
    pixels = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3), np.uint8)
    inputs = processor.from_pretrained(path)([Image.fromarray(each) for each in pixels], return_tensors="pt")
    ours = PretrainedImageEncoder.of_folder(path).build(PretrainedImageOptions(path)).eval()
    with torch.no_grad():
        want = theirs(**inputs).last_hidden_state
        states = ours(torch.from_numpy(pixels).permute(0, 3, 1, 2) / 255)
    torch.testing.assert_close(states, want, rtol=1e-5, atol=1e-5)


def test_a_run_needs_no_folder(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--resume", str(run), "--steps", "4"]) == 0
    assert main(["evaluate", str(run)]) == 0
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "black.png")
    capsys.readouterr()
    picture = tmp_path / "maps.png"
    assert main(["predict", str(run), str(tmp_path / "black.png"), "--picture", str(picture)]) == 0
    assert "%" in capsys.readouterr().out
    assert picture.stat().st_size


def test_frozen_layers_keep_the_weights_of_the_folder(run: Path, folder: Path) -> None:
    before = dict(PretrainedImageEncoder.of_folder(folder).build(PretrainedImageOptions(folder)).vit.named_parameters())
    stored = checkpoint.read(run / "last.safetensors")
    after = stored.under("model.encoder.vit.")
    assert after.keys() == before.keys()
    for name, tensor in after.items():
        is_frozen = name.startswith(("patches.", "class_token", "place.", "layers.0."))
        assert torch.equal(tensor, before[name].detach()) == is_frozen, name


def test_a_run_is_an_encoder(run: Path, tmp_path: Path) -> None:
    """Of another classifier, and of a captioner, whose run is one again."""
    digits = np.random.default_rng(0).integers(0, 255, (12, 8, 8), np.uint8)
    for n, pixels in enumerate(digits):
        Image.fromarray(pixels).save(tmp_path / f"{n}.png")
    (tmp_path / "captions.tsv").write_text("".join(f"{n}.png\t{('one', 'two')[n % 2]} {n % 3}\n" for n in range(12)))
    captions = ["--train", str(tmp_path / "captions.tsv"), "--tokens", "words", "--width", "5", "--hidden", "6"]
    first, second = tmp_path / "captions", tmp_path / "digits"
    assert main(["train", "caption", *captions, "--encoder", str(run), *TRAIN, "--out", str(first)]) == 0
    assert (
        main(["train", "classify-image", "--encoder", str(first), "--freeze", "all", *TRAIN, "--out", str(second)]) == 0
    )
    facts = [json.loads((each / "encoder.json").read_text()) for each in (run, first, second)]
    assert [each["source"] for each in facts] == ["vit", "run", "captions"]
    assert len({each["weights_sha256"] for each in facts}) == 3
    model = load_run(first, device="cpu").predictor.model
    assert model.lr_multipliers["encoder.encoder.vit.layers.1"] == 1.0
    assert model.lr_multipliers["encoder.encoder.vit.layers.0"] == pytest.approx(0.9)
    assert model.lr_multipliers["encoder.encoder.vit.class_token"] == pytest.approx(0.81)
    assert model.lr_multipliers["decoder"] == 10.0
    assert model.lr_multipliers["decoder.gate"] == pytest.approx(1.0)
    kept = checkpoint.read(second / "last.safetensors").under("model.encoder.vit.")
    start = checkpoint.read(first / "best.safetensors").under("model.encoder.encoder.vit.")
    assert all(torch.equal(tensor, start[name]) for name, tensor in kept.items())


def test_patches_are_a_map() -> None:
    encoder = ImageEncoder(ViT((8, 12), patch=4, channels=1, width=6, layers=1, heads=2), mean=[0.0], std=[1.0])
    images = torch.rand(2, 1, 8, 12)
    annotations = PatchAnnotations(encoder)(images)
    assert annotations.shape == (2, 6, 2, 3)
    torch.testing.assert_close(annotations[:, :, 1, 2], encoder(images)[:, 6])
    with pytest.raises(ValueError, match="unknown pooling 'max'; known are: first, mean"):
        ImageEncoderClassifier(encoder, 3, pooling="max")
    pooled = {name: ImageEncoderClassifier(encoder, 3, pooling=name).eval() for name in ("first", "mean")}
    for name, vector in (("first", encoder(images)[:, 0]), ("mean", encoder(images)[:, 1:].mean(1))):
        torch.testing.assert_close(pooled[name](images), pooled[name].output(vector))


def test_other_mechanisms_in_its_heads(folder: Path) -> None:
    encoder, images = PretrainedImageEncoder.of_folder(folder), torch.rand(2, 1, 8, 8)
    options = PretrainedImageOptions(folder)
    with torch.no_grad():
        plain, sparse = (encoder.build(options, name).eval()(images) for name in (None, "sparsemax"))
    assert not torch.equal(plain, sparse)
    with pytest.raises(ValueError, match="attention='additive' has weights of its own, .* first, and freeze=all would"):
        encoder.build(PretrainedImageOptions(folder, freeze="all"), "additive")
    with torch.device("meta"):
        assert encoder.build(options).vit.class_token.is_meta
    assert smallest_image_encoder(PretrainedImageOptions(folder, freeze="all")).frozen == 1


def test_images_that_an_encoder_does_not_read(folder: Path, tmp_path: Path) -> None:
    grey = PretrainedImageEncoder.of_folder(folder)
    colour = PretrainedImageEncoder.of_folder(vit_encoder_folder(tmp_path / "vit", num_channels=3))
    oblong = PretrainedImageEncoder(replace(SMALLEST, height=4))
    for encoder, shape, message in (
        (grey, (1, 9, 8), "have 9 × 8 pixels, (height, width), and the encoder vit reads 8 × 8; give --size 8, or"),
        (grey, (3, 8, 8), "have 3 channels and the encoder vit reads 1; save them in grey, or name another encoder"),
        (colour, (1, 8, 8), "have 1 channels and the encoder vit reads 3; save them in colour"),
        (oblong, (1, 8, 8), "reads 4 × 8; resize them to 4 × 8, or name another encoder"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            encoder.adapt(ImageStats(*shape, ["a", "b"], 0.5, 0.2, ""))
    adapted = grey.adapt(ImageStats(1, 8, 8, ["a", "b"], 0.5, 0.2, ""))
    assert (adapted.mean, adapted.spread) == (0.0, 1.0)


def test_bad_folders_are_one_sentence(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bert_folder(tmp_path / "bert")
    (tmp_path / "empty").mkdir()
    bare = vit_encoder_folder(tmp_path / "bare")
    (bare / "preprocessor_config.json").unlink()
    unnamed = vit_encoder_folder(tmp_path / "unnamed")
    edit_config(unnamed, architectures=None, model_type="swin")
    plain = tmp_path / "plain"
    assert main(["train", "classify-image", "--width", "4", "--depths", "1", *TRAIN, "--out", str(plain)]) == 0
    started = tmp_path / "started"
    shutil.copytree(run, started)
    for name in ("best.safetensors", "last.safetensors"):
        (started / name).unlink()
    sentences = {
        "bert": "holds a BertModel, and an encoder of images is a ViT; name a folder with one, or a run of",
        "unnamed": "holds a swin, and an encoder of images is a ViT",
        "empty": "holds neither config.json and weights nor a run (run.json); name a ViT in transformers' layout",
        "missing": "there is no folder",
        "bare": "holds no preprocessor_config.json, which says how its model reads images",
        "plain": "is a run of classify-image without an encoder of images; name a ViT in transformers' layout",
        "started": "has no best.safetensors yet; train it: regard train --resume",
    }
    for name, sentence in sentences.items():
        capsys.readouterr()
        command = ["train", "classify-image", "--encoder", str(tmp_path / name), *TRAIN, "--out", str(tmp_path / "out")]
        assert main(command) == 2, name
        assert sentence in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
