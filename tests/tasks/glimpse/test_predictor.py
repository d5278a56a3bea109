"""GlimpseClassifier: classes and paths at the means of all locations."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.serve.pictures import glimpse_classifier

from regard.tasks.shared.image_predictors import ImageInput


def test_a_path_is_that_of_the_means_and_each_image_is_alone() -> None:
    predictor = glimpse_classifier()
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 11, 1), np.uint8)
    inputs = [ImageInput(image) for image in pixels]
    predictor.model.train()
    outputs = predictor.predict(inputs)
    assert predictor.model.training
    predictor.model.eval()
    with torch.no_grad():
        output = predictor.model.look(predictor.tensor(inputs))
    for n, prediction in enumerate(outputs):
        assert np.allclose(prediction.path, (output.places[n] + 1) / 2, atol=1e-6)
        (alone,) = predictor.predict([inputs[n]])
        assert np.allclose(alone.path, prediction.path, atol=1e-5)
        assert dict(alone.classes) == pytest.approx(dict(prediction.classes), abs=1e-5)
        found = predictor.json(prediction)
        assert list(found) == ["classes", "path"]
        assert [(place["x"], place["y"]) for place in found["path"]] == list(prediction.path)
        assert all(0 <= value <= 1 for place in prediction.path for value in place)
    loss = predictor.loss(inputs, ["owl"] * 5)
    torch.testing.assert_close(loss, F.cross_entropy(output.logits, torch.full((5,), 2), reduction="none"))
    loss.sum().backward()
    assert predictor.model.head.weight.grad is not None
