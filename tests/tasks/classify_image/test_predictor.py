"""ImageClassifier: probabilities, losses and gradients of single images and of batches; labels of recordings."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.serve.pictures import classifier

from regard.inference.predictor import labelled_recording
from regard.models.row_reader import RowReader
from regard.tasks.classify_image.options import RowReaderOptions
from regard.tasks.classify_image.predictor import ImageClassifier
from regard.tasks.shared.image_data import ImageStats, class_probabilities
from regard.tasks.shared.image_options import PredictImageClasses
from regard.tasks.shared.image_predictors import ImageInput


def images(count: int = 5) -> list[ImageInput]:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 7, 11, 1), np.uint8)
    return [ImageInput(image) for image in pixels]


def test_probabilities_text_and_json() -> None:
    predictor = classifier()
    (given,) = images(1)
    (output,) = predictor.predict([given], PredictImageClasses(top=2))
    (expected,) = class_probabilities(predictor.model, predictor.model, given.pixels[None], predictor.stats)
    assert dict(output.classes) == pytest.approx(dict(zip(predictor.stats.classes, expected, strict=True)))
    first, second, _ = output.classes
    assert first[1] >= second[1]
    assert predictor.json(output) == {"classes": dict((first, second))}
    assert predictor.text(output) == "\t".join(f"{name} {100 * p:.1f} %" for name, p in (first, second))
    assert predictor.summary(output).count(", ") == 2


def test_the_loss_is_that_of_a_name_or_a_number() -> None:
    predictor = classifier()
    inputs = images(3)
    targets = ["cat", "ねこ", "dog <b>"]
    loss = predictor.loss(inputs, targets)
    probabilities = [dict(output.classes) for output in predictor.predict(inputs)]
    expected = [-np.log(each[name]) for each, name in zip(probabilities, targets, strict=True)]
    assert loss.tolist() == pytest.approx(expected, rel=1e-5)
    assert torch.equal(loss, predictor.loss(inputs, [0, 2, 1]))
    x = predictor.tensor(inputs).requires_grad_()
    predictor.tensor_loss(x, targets).sum().backward()
    assert (x.grad.flatten(1) != 0).any(1).all()
    with pytest.raises(ValueError, match="unknown class 'dgo <b>'; did you mean 'dog <b>'"):
        predictor.loss(inputs[:1], ["dgo <b>"])
    with pytest.raises(ValueError, match="targets must be names of classes or numbers from 0 to 2, got 3"):
        predictor.loss(inputs[:1], [3])


def test_a_recording_has_the_facts_of_its_image(tmp_path: Path) -> None:
    predictor, path = classifier(), tmp_path / "three.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)).save(path)
    given = predictor.read(str(path))
    assert given.pixels.shape == (7, 11, 1)
    output, recording = labelled_recording(predictor, given, run="tiny")
    about = {key: recording.about[key] for key in ("run", "picture", "pixels", "said")}
    assert about == {"run": "tiny", "picture": "three.png", "pixels": "30 × 20", "said": predictor.summary(output)}
    assert predictor.image(given).shape == (20, 30, 3)
    # without a file the image is the input of the model
    assert predictor.image(ImageInput(given.pixels)).shape == (7, 11, 3)


def test_a_reader_of_rows_names_the_axes_of_its_maps() -> None:
    stats = ImageStats(1, 8, 8, ["a", "b"], 0.0, 1.0, "")
    options = RowReaderOptions(heads=2, width=2, stride=2)
    model = options.build(1, (8, 8), 2)
    assert isinstance(model, RowReader)
    predictor = ImageClassifier(model, stats, options.map_axes)
    _, recording = labelled_recording(predictor, ImageInput(np.zeros((8, 8, 1), np.uint8)))
    assert recording.about["queries"] == "rows of the picture, from the top"
    assert recording.about["keys"] == "patches of a row, from the left"
