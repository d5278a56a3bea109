"""record_image: vision models of transformers, recorded over an image."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.recording.pretrained.models import saved, vit

from regard.recording.pretrained.folder import is_image_model
from regard.recording.pretrained.image import record_image


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return vit(tmp_path_factory.mktemp("vit"))


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "three.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)).save(path)
    return path


def test_weights_and_classes_are_those_of_transformers(folder: Path, picture: Path) -> None:
    from transformers import AutoImageProcessor, ViTForImageClassification

    run = record_image(folder, picture)
    processor = AutoImageProcessor.from_pretrained(folder)
    x = processor(Image.open(picture), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        right = ViTForImageClassification.from_pretrained(folder, attn_implementation="eager").eval()(
            pixel_values=x, output_attentions=True
        )
    chances = right.logits[0].double().softmax(-1)
    order = chances.argsort(descending=True).tolist()
    names = ("cat", "dog", "owl")
    assert run.prediction == ", ".join(f"{names[n]} {100 * float(chances[n]):.1f} %" for n in order)
    assert [recorded_map.grid for recorded_map in run.recording] == [(3, 3)] * 2
    for recorded_map, weights in zip(run.recording, right.attentions, strict=True):
        torch.testing.assert_close(recorded_map.weights.dense(), weights, atol=1e-6, rtol=0)
    about = run.recording.about
    assert (about["picture"], about["pixels"], about["said"]) == ("three.png", "30 × 20", run.prediction)
    # the image is the input of the model, between 0 and 1
    resized = processor(Image.open(picture), return_tensors="pt", do_normalize=False)["pixel_values"][0]
    torch.testing.assert_close(run.image, resized.movedim(0, -1), atol=1e-6, rtol=0)
    assert run.alignment is None


def test_a_model_without_classes_predicts_nothing(picture: Path, tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTImageProcessorPil, ViTModel

    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 16}
    ViTModel(ViTConfig(**sizes, image_size=24, patch_size=8)).save_pretrained(tmp_path)
    ViTImageProcessorPil(size={"height": 24, "width": 24}).save_pretrained(tmp_path)
    run = record_image(tmp_path, picture)
    assert run.prediction is None
    assert "said" not in run.recording.about
    assert len(run.recording) == 1


def test_which_folders_hold_image_models(folder: Path, tmp_path: Path) -> None:
    assert is_image_model(folder)
    assert not is_image_model(tmp_path)
    assert not is_image_model(saved("bert", tmp_path / "bert"))


def test_files_that_are_no_images(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("no picture", encoding="utf-8")
    with pytest.raises(ValueError, match=r"cannot be read as a picture \("):
        record_image(folder, tmp_path / "words.txt")
    with pytest.raises(ValueError, match="there is no file"):
        record_image(folder, tmp_path / "nix.png")


def test_a_damaged_folder(picture: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "vit"}', encoding="utf-8")
    (tmp_path / "preprocessor_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"must hold weights in \.safetensors, got none; save it with save_pretrained"):
        record_image(tmp_path, picture)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="save the model and its image processor there with save_pretrained"):
        record_image(tmp_path, picture)


def test_some_layers(folder: Path, picture: Path) -> None:
    with pytest.raises(ValueError, match=r"none of \*embeddings in .* attended, so there is nothing to show"):
        record_image(folder, picture, ["*embeddings"])
