"""Attributions of pictures: the laws of texts, over patches."""

from pathlib import Path

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients as CaptumIntegratedGradients
from PIL import Image
from tests.for_each import for_each
from torch import nn

import regard
from regard.attribution import METHODS, IntegratedGradients
from regard.attribution.patched_picture import PatchedPicture
from regard.models.vit import ViT, ViTClassifier
from regard.tasks.classify_image.predictor import ImageClassifier
from regard.tasks.shared.image_data import ImageStats
from regard.tasks.shared.image_predictors import ImageInput

CLASSES = ["ant", "bee", "cat", "dog"]
HEIGHT, WIDTH, PATCH = 6, 9, 3
ROWS, COLUMNS = HEIGHT // PATCH, WIDTH // PATCH
OF_ATTENTION = ["attention", "rollout", "flow", "relevance", "masked-keys"]


def predictor_of(model: nn.Module) -> ImageClassifier:
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p), alpha=0.3)
    return ImageClassifier(model.eval(), ImageStats(3, HEIGHT, WIDTH, CLASSES, 0.4, 0.6, ""))


@pytest.fixture
def vit() -> ImageClassifier:
    torch.manual_seed(0)
    encoder = ViT((HEIGHT, WIDTH), patch=PATCH, width=10, layers=2, heads=5, feed=7)
    return predictor_of(ViTClassifier(encoder, len(CLASSES)))


@pytest.fixture
def convnet() -> ImageClassifier:
    torch.manual_seed(0)
    layers = [
        nn.Conv2d(3, 5, 3),
        nn.Tanh(),
        regard.gates.SqueezeExcite(5),
        nn.Flatten(),
        nn.Linear(5 * 28, len(CLASSES)),
    ]
    return predictor_of(nn.Sequential(*layers))


@pytest.fixture
def given() -> ImageInput:
    return ImageInput(np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8))


def in_patches(pixels: torch.Tensor, rows: int, columns: int) -> torch.Tensor:  # "c h w" -> "rows columns"
    """Sums over the pixels of every patch."""
    channels, height, width = pixels.shape
    return pixels.reshape(channels, rows, height // rows, columns, width // columns).sum((0, 2, 4))


@for_each("method", METHODS)
def test_every_method_scores_every_patch(vit: ImageClassifier, given: ImageInput, method: str) -> None:
    result = regard.attribute(vit, given, "bee", method)
    assert result.tokens == ("[0]", "(0, 0)", "(0, 1)", "(0, 2)", "(1, 0)", "(1, 1)", "(1, 2)")
    assert result.is_special == (True, *[False] * 6)
    assert torch.equal(result.grid.flatten(), result.scores[1:])
    assert result.grid.shape == (ROWS, COLUMNS)
    assert result.grid.isfinite().all()
    assert result.grid.any()
    logits = vit.bounded_logits(vit.bounded_inputs([given]))[0].detach().double()
    assert result.output == pytest.approx(float(logits[1]), abs=1e-6)
    assert result.probability == pytest.approx(float(logits.softmax(-1)[1]), abs=1e-6)
    assert all(p.grad is None for p in vit.model.parameters())


def test_attention_is_that_of_the_class_token(vit: ImageClassifier, given: ImageInput) -> None:
    with torch.no_grad(), regard.record(vit.model) as recording:
        vit.classify(vit.tensor([given]))
    weights = recording[-1].weights.dense()[0].mean(0)[0]
    torch.testing.assert_close(regard.attribute(vit, given, 0, "attention").scores, weights)


@pytest.mark.parametrize("kind", ["vit", "convnet"])
def test_integrated_gradients_equal_those_of_captum(
    kind: str, given: ImageInput, request: pytest.FixtureRequest
) -> None:
    predictor: ImageClassifier = request.getfixturevalue(kind)
    result = regard.attribute(predictor, given, 2, IntegratedGradients(tolerance=1e-3))
    assert result.completeness.is_reached
    assert float(result.scores.double().sum()) == pytest.approx(result.completeness.difference, rel=1e-3)
    x = predictor.bounded_inputs([given])
    want = CaptumIntegratedGradients(predictor.bounded_logits).attribute(x, target=2, n_steps=result.completeness.steps)
    torch.testing.assert_close(result.grid, in_patches(want[0], *result.grid.shape).float(), rtol=0.0, atol=1e-5)


def test_the_gradient_is_that_of_pixels(convnet: ImageClassifier, given: ImageInput) -> None:
    result = regard.attribute(convnet, given, 3, "gradient")
    x = convnet.bounded_inputs([given]).requires_grad_()
    (gradient,) = torch.autograd.grad(convnet.bounded_logits(x)[0, 3], x)
    # every pixel is a patch of a picture as small as this
    assert result.grid.shape == (HEIGHT, WIDTH)
    torch.testing.assert_close(result.grid, (gradient * x)[0].sum(0).detach())


def test_a_patch_that_is_left_out_is_black(vit: ImageClassifier, given: ImageInput) -> None:
    result = regard.attribute(vit, given, "cat", "leave-one-out")
    for row in range(ROWS):
        for column in range(COLUMNS):
            x = vit.bounded_inputs([given])
            x[..., PATCH * row : PATCH * (row + 1), PATCH * column : PATCH * (column + 1)] = 0
            without = float(vit.bounded_logits(x)[0, 2].detach())
            assert float(result.grid[row, column]) == pytest.approx(result.output - without, abs=1e-5)


def test_batched_equals_one_by_one(vit: ImageClassifier, given: ImageInput) -> None:
    picture = PatchedPicture(vit, given)
    variants = [picture.tokens().without({n}) for n in range(1, 7)]
    with torch.no_grad():
        together = picture.token_logits(variants)
        for logits, variant in zip(together, variants, strict=True):
            torch.testing.assert_close(logits, picture.token_logits([variant])[0])


def test_a_file_is_read(vit: ImageClassifier, given: ImageInput, tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    Image.fromarray(given.pixels).save(file)
    want = regard.attribute(vit, given, 0, "gradient").scores
    for path in (file, str(file)):
        assert torch.equal(regard.attribute(vit, path, 0, "gradient").scores, want)


@for_each("method", OF_ATTENTION)
def test_a_model_without_attention_between_patches(convnet: ImageClassifier, given: ImageInput, method: str) -> None:
    sentence = "so its attention explains nothing; use the method integrated-gradients or leave-one-out$"
    with pytest.raises(ValueError, match=f"^Sequential has no attention between patches of the picture, {sentence}"):
        regard.attribute(convnet, given, 0, method)


def test_faithfulness_of_pictures(vit: ImageClassifier, convnet: ImageClassifier, given: ImageInput) -> None:
    """Deleted patches are black; the curve begins at the picture and ends at a black one; τ is over patches."""
    report = regard.faithfulness(vit, given, "bee", ["attention", "integrated-gradients", "leave-one-out"])
    (measured,) = report.inputs
    assert (measured.unit, measured.units) == ("patch", "patches")
    assert measured.removed == pytest.approx(tuple(n / (ROWS * COLUMNS) for n in range(ROWS * COLUMNS + 1)))
    first = next(iter(measured.attributions.values()))
    pixels = vit.bounded_inputs([given])
    for name, attribution in measured.attributions.items():
        order = [n - (len(attribution.scores) - ROWS * COLUMNS) for n in attribution.ranking()]
        pictures = []
        for count in range(ROWS * COLUMNS + 1):
            picture = pixels[0].clone()
            for place in order[:count]:
                row, column = divmod(place, COLUMNS)
                picture[:, row * PATCH : (row + 1) * PATCH, column * PATCH : (column + 1) * PATCH] = 0
            pictures.append(picture)
        with torch.no_grad():
            expected = vit.bounded_logits(torch.stack(pictures)).double().softmax(-1)[:, CLASSES.index("bee")]
        torch.testing.assert_close(
            torch.tensor(measured.scores[name].curve), expected, atol=1e-5, rtol=0, check_dtype=False
        )
    assert measured.scores["attention"].curve[0] == pytest.approx(first.probability, abs=1e-5)
    assert "removing the patches that it ranks highest" in measured.sentence
    # a network without attention between patches is measured by the methods that apply
    of_convnet = regard.faithfulness(convnet, [given], None).inputs[0]
    assert set(of_convnet.attributions) == {"gradient", "integrated-gradients", "leave-one-out"}
    assert set(OF_ATTENTION) <= set(of_convnet.skipped)
