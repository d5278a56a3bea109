"""Captioner: the predictor of caption: images in, captions and the attention of their tokens out."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attn.terms.read import Sample
from regard.common.eval_mode import eval_mode
from regard.data.text.tokenizer import Tokenizer
from regard.decoding.search import Beam, Greedy, Search
from regard.inference.predictor import Observe
from regard.models.show_attend_tell.image_captioner import ImageCaptioner
from regard.recording.recording import Recording
from regard.tasks.caption.options import Caption, PredictCaptions, PretrainedCaptionOptions
from regard.tasks.shared.image_data import ImageStats, image_tensor, read_stats
from regard.tasks.shared.image_encoder import PretrainedImageEncoder
from regard.tasks.shared.image_predictors import ImageInput, ImagePredictor
from regard.tasks.shared.text_generation import (
    GeneratedText,
    TextHypotheses,
    TokenAlignment,
    forced_nll,
    forced_weights,
    read_tokenizer,
    search_texts,
)
from regard.viz.text import labels

# the file of a run that holds the vocabulary
TOKENS = "tokens.json"
# hypotheses kept at every step
_BEAM = 5
# images per forward pass
_BATCH = 128


@dataclass(frozen=True, eq=False)
class ImageCaptions(TextHypotheses):
    """The captions of one image, the best first, and the tokens of the best, with the end of the sentence."""

    tokens: list[str]


def build_captioner(
    config: Caption, stats: ImageStats, tokenizer: Tokenizer, encoder: PretrainedImageEncoder | None
) -> ImageCaptioner:
    """The model with initial weights; those of an encoder come from its folder if the run has none yet."""
    if isinstance(config.model, PretrainedCaptionOptions):
        assert encoder is not None
        return config.model.build(encoder.build(config.model), len(tokenizer))
    return config.model.build(stats.channels, len(tokenizer))


class Captioner(ImagePredictor[ImageCaptions]):
    """image -> annotation vectors -> search -> text; no caption is longer than `max_length` tokens."""

    served_as: ClassVar[str] = "caption"
    page_title: ClassVar[str] = "Describe pictures"

    def __init__(self, model: ImageCaptioner, tokenizer: Tokenizer, stats: ImageStats, max_length: int) -> None:
        self.model: ImageCaptioner = model
        self.tokenizer, self.stats, self.max_length = tokenizer, stats, max_length

    @staticmethod
    def of(config: Caption, folder: Path) -> "Captioner":
        """A captioner with the vocabulary of a run, whose model has initial weights."""
        tokenizer, stats, encoder = read_tokenizer(folder / TOKENS), read_stats(folder), None
        if isinstance(config.model, PretrainedCaptionOptions):
            encoder = PretrainedImageEncoder.of_run(folder)
        return Captioner(build_captioner(config, stats, tokenizer, encoder), tokenizer, stats, config.max_length)

    # Prediction

    def predict(
        self, inputs: Sequence[ImageInput], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[ImageCaptions]:
        options = PredictCaptions() if options is None else options
        pixels = self._stack(inputs)
        captions = self.describe(pixels, Beam(max(_BEAM, options.top), nbest=options.top), first=first)
        if observe is not nullcontext:
            with observe():
                self.align(pixels, [hypotheses[0] for hypotheses in captions])
        return [ImageCaptions(hypotheses, self.tokenizer.pieces(hypotheses[0].with_eos)) for hypotheses in captions]

    @torch.no_grad()
    def describe(
        self,
        pixels: NDArray[np.uint8],
        search: Search = Greedy(),
        *,
        first: int = 0,
        done: Callable[[int], object] | None = None,
    ) -> list[list[GeneratedText]]:  # "n h w c"
        """The captions of every image, the best first.

        `first` is the number of the first image, by which captions are sampled. `done` is called with the number of
        images that have captions, after every batch.
        """
        captions: list[list[GeneratedText]] = []
        with eval_mode(self.model):
            for start in range(0, len(pixels), _BATCH):
                x = self._tensor(pixels[start : start + _BATCH])
                state = self.model.init_state(x)
                limits = torch.full((len(x),), self.max_length + 1, device=x.device)
                numbers = range(first + start, first + start + len(x))
                captions += search_texts(
                    self.model, state, self.tokenizer, search, limits, numbers, state.state.lengths
                )
                if done is not None:
                    done(len(captions))
        return captions

    def text(self, output: ImageCaptions) -> str:
        return "\t".join(hypothesis.text for hypothesis in output.hypotheses)

    def summary(self, output: ImageCaptions) -> str:
        return output.best.text

    def json(self, output: ImageCaptions) -> dict[str, Any]:
        captions = [
            {"caption": hypothesis.text, "log_prob": hypothesis.log_prob, "score": hypothesis.score}
            for hypothesis in output.hypotheses
        ]
        return {"captions": captions}

    def answer(self, output: ImageCaptions, top: int) -> dict[str, Any]:
        if not output.tokens:
            return {}
        words = [labels.visible_label(token.removeprefix("▁")) for token in output.tokens]
        return {"text": output.best.text, "words": words}

    def margin(self, output: ImageCaptions, top: int = 1) -> float:
        return output.best.margin

    # Gradients

    def tensor_loss(self, x: Tensor, targets: Sequence[str]) -> Tensor:
        """−log p(caption | image)."""
        with eval_mode(self.model):
            return forced_nll(self.model, [x], self.tokenizer.encode(targets))

    # The attention behind a caption

    @torch.no_grad()
    def align(self, pixels: NDArray[np.uint8], captions: Sequence[GeneratedText]) -> list[TokenAlignment]:  # "n h w c"
        """The attention of every token of the captions to the patches: the steps of the search again, all at once."""
        targets = [caption.with_eos for caption in captions]
        alignments: list[TokenAlignment] = []
        with eval_mode(self.model):
            for start in range(0, len(pixels), _BATCH):
                batch = targets[start : start + _BATCH]
                weights = forced_weights(self.model, [self._tensor(pixels[start : start + _BATCH])], batch)
                for tokens, rows in zip(batch, weights, strict=True):
                    alignments.append(TokenAlignment(self.tokenizer.pieces(tokens), rows[: len(tokens)]))
        return alignments

    def label(self, recording: Recording, example: ImageInput, output: ImageCaptions) -> Recording:
        recording = super().label(recording, example, output)
        return recording.with_labels([token.removeprefix("▁") for token in output.tokens], [])

    @property
    def hard(self) -> bool:
        """Whether a token reads one patch alone."""
        return isinstance(getattr(getattr(self.model.decoder, "attention", None), "read", None), Sample)

    def grid(self) -> tuple[int, int]:
        """Height and width of the grid of patches."""
        with torch.no_grad(), eval_mode(self.model):
            grid = self.model.init_state(self.tensor([self.blank()])).grid
        assert grid is not None
        return grid

    def _stack(self, inputs: Sequence[ImageInput]) -> NDArray[np.uint8]:  # -> "n h w c"
        shape = (0, self.stats.height, self.stats.width, self.stats.channels)
        return np.stack([example.pixels for example in inputs]) if inputs else np.zeros(shape, np.uint8)

    def _tensor(self, pixels: NDArray[np.uint8]) -> Tensor:
        return image_tensor(pixels, self.stats).to(self.device, self.dtype)
