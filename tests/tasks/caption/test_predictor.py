"""Captioner: captions, their likelihoods and their attention, of single images and of batches."""

import numpy as np
import pytest
import torch
from tests.serve.pictures import captioner

from regard.inference.predictor import predict_recorded
from regard.tasks.caption.options import PredictCaptions
from regard.tasks.shared.image_predictors import ImageInput


def images(count: int = 4) -> list[ImageInput]:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 16, 24, 1), np.uint8)
    return [ImageInput(image) for image in pixels]


def test_the_loss_of_its_own_caption_is_its_log_probability() -> None:
    predictor, inputs = captioner(longest=30), images(3)
    outputs = predictor.predict(inputs, PredictCaptions(top=3))
    checked = 0
    for rank in range(3):
        hypotheses = [output.hypotheses[rank] for output in outputs]
        loss = predictor.loss(inputs, [hypothesis.text for hypothesis in hypotheses])
        for value, hypothesis in zip(loss.tolist(), hypotheses, strict=True):
            # a caption that was cut off has no end; one of special tokens is another one as text
            if hypothesis.finished and hypothesis.tokens == tuple(predictor.tokenizer.encode([hypothesis.text])[0]):
                assert value == pytest.approx(-hypothesis.log_prob, abs=1e-4)
                checked += 1
    assert checked > 0
    x = predictor.tensor(inputs).requires_grad_()
    predictor.tensor_loss(x, ["a b", "c", "d e"]).sum().backward()
    assert (x.grad.flatten(1) != 0).any(1).all()


def test_the_recording_is_the_alignment() -> None:
    predictor, inputs = captioner(), images()
    outputs, recording = predict_recorded(predictor, inputs)
    (recorded,) = recording
    pixels = np.stack([given.pixels for given in inputs])
    alignments = predictor.align(pixels, [output.best for output in outputs])
    for n, (output, alignment) in enumerate(zip(outputs, alignments, strict=True)):
        assert output.tokens == alignment.target
        weights = recorded.weights.dense()[n].reshape(-1, alignment.weights.shape[-1])
        torch.testing.assert_close(weights[: len(alignment.target)], alignment.weights)
