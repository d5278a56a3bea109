"""ImageGenerator: samples by seed and number, the hinge loss of images, the sheet of samples."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from regard.inference.predictor import predict_recorded
from regard.tasks.generate_image.judge import ReferenceClassifier, _build
from regard.tasks.generate_image.options import PredictSamples, SAGANOptions
from regard.tasks.generate_image.predictor import ImageGenerator, noise_rows, sample_images, signed
from regard.tasks.shared.image_data import ImageStats


@pytest.fixture(scope="module")
def generator() -> ImageGenerator:
    stats = ImageStats(1, 8, 8, ["cat", "dog", "owl"], 0.4, 0.3, "")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = SAGANOptions(width=4, noise=5).build(8, 1, 3).eval()
        judge = ReferenceClassifier(_build(stats).eval(), stats, 100.0)
    return ImageGenerator(model, stats, lambda: judge, seed=3, run="tiny")


@pytest.mark.parametrize(("width", "count"), [(64, 1), (64, 10), (16, 3), (5, 16), (4, 4)])
def test_noise_is_that_of_one_call_of_torch(width: int, count: int) -> None:
    """Where that does not depend on how many rows there are: blocks of 16 numbers."""
    expected = torch.randn(count, width, generator=torch.Generator().manual_seed(7))
    assert torch.equal(noise_rows(width, 7, 0, count), expected)


@pytest.mark.parametrize("width", [1, 3, 5, 16, 64])
def test_noise_does_not_depend_on_the_rows_behind_it(width: int) -> None:
    rows = noise_rows(width, 7, 0, 23)
    for start, stop in ((0, 1), (0, 7), (3, 5), (22, 23)):
        assert torch.equal(noise_rows(width, 7, start, stop), rows[start:stop])


def test_samples_of_a_stream_are_those_of_their_numbers(generator: ImageGenerator) -> None:
    names, options = ["owl", "cat", "owl", "dog"], PredictSamples(count=3, seed=11)
    together = generator.predict(names, options)
    for n, (name, output) in enumerate(zip(names, together, strict=True)):
        (alone,) = generator.predict([name], options, first=n)
        # one of 255 levels: rounding may differ
        assert np.abs(alone.pixels.astype(int) - output.pixels).max() <= 1
    assert not np.array_equal(together[0].pixels, together[2].pixels)
    sixteen = generator.predict(["owl", "dog"], PredictSamples(count=16, seed=11))
    labels = np.array([2, 1]).repeat(16)
    assert np.array_equal(np.concatenate([each.pixels for each in sixteen]), sample_images(generator.model, labels, 11))
    right = generator.judge.predict(sixteen[1].pixels) == 1
    assert sixteen[1].recognised == right.sum()


def test_the_seed_is_one_more_than_that_of_the_run(generator: ImageGenerator) -> None:
    (usual,), (given,) = generator.predict(["cat"]), generator.predict(["cat"], PredictSamples(seed=4))
    assert usual.count == 10
    assert np.array_equal(usual.pixels, given.pixels)
    assert generator.json(usual) == {"drawn": 10, "recognised": usual.recognised, "seed": 4}
    assert generator.text(usual) == f"{usual.recognised} of 10 recognised"
    with pytest.raises(ValueError, match="unknown class 'dgo'; did you mean 'dog'"):
        generator.read("dgo")


def test_the_attention_of_the_generator_is_recorded(generator: ImageGenerator) -> None:
    outputs, recording = predict_recorded(generator, ["cat", "dog"], PredictSamples(count=2))
    assert len(outputs) == 2
    assert [recorded_map.name for recorded_map in recording] == ["average.attention.attention"]
    assert recording[0].shape[0] == 4


def test_the_loss_is_the_hinge_of_real_images(generator: ImageGenerator, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 1), np.uint8)
    Image.fromarray(pixels[1, ..., 0]).save(tmp_path / "dog.png")
    loss = generator.loss(["cat", "dog"], [pixels[0], tmp_path / "dog.png"])
    x = signed(pixels).requires_grad_()
    torch.testing.assert_close(loss, torch.relu(1 - generator.model.discriminator(x, torch.tensor([0, 1]))))
    generator.loss(["cat", "dog"], list(x)).sum().backward()
    assert x.grad.any()


def test_a_session_draws_all_classes(generator: ImageGenerator, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"samples are drawn into a file; give --picture samples\.png"):
        generator.session(PredictSamples(), None)
    path = tmp_path / "samples.png"
    session = generator.session(PredictSamples(count=2), path)
    for n, name in enumerate(("cat", "owl")):
        session.check(n + 1)
        outputs = generator.predict([name], PredictSamples(count=2), first=n)
        session.add([name], outputs, n)
        assert generator.json(outputs[0])["picture"] == str(path)
    assert session.finish() == [f"the samples are drawn in {path}, one row per class"]
    with Image.open(path) as image:
        assert image.height > 100
