"""Captioner: a model that tells of pictures, with its vocabulary: pixels in, text out, and where each word looked."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attn.call import Need
from regard.attn.terms.read import Sample
from regard.common import atomic_files
from regard.common.eval_mode import eval_mode
from regard.data.embedded.scenes import NAMES, Box
from regard.data.text.special_tokens import PAD
from regard.data.text.tokenizer import Tokenizer
from regard.decoding.search import Greedy, Search, run_search
from regard.models.show_attend_tell.encoder import AnnotationEncoder
from regard.models.show_attend_tell.model import ShowAttendTell
from regard.recording.record import record
from regard.recording.recording import Recording
from regard.tasks._image_data import ImageStats, recalled, tensor
from regard.tasks.caption.options import Caption
from regard.tasks.translate.predictor import TranslationHypothesis, shift_right, with_eos
from regard.tasks.translate.vocabularies import read_vocabulary

_TOKENS = "tokens.json"
# pictures at once
_AT_ONCE = 128


@dataclass(frozen=True, eq=False)
class CaptionAlignment:
    """Where each piece of a caption looked; the last is the end of the sentence, if it was said."""

    pieces: list[str]
    weights: Tensor = field(repr=False)  # "t n"


class Captioner:
    """pixels -> annotation vectors -> search -> text; no caption is longer than `longest` tokens."""

    def __init__(self, model: ShowAttendTell, tokens: Tokenizer, facts: ImageStats, longest: int) -> None:
        self.model, self.tokens, self.facts, self.longest = model, tokens, facts, longest

    @staticmethod
    def of(task: Caption, folder: Path) -> "Captioner":
        """A fresh model with the vocabulary that was saved in the folder: load weights into it, give it pictures."""
        tokens, facts = read_tokens(folder), recalled(folder)
        return Captioner(build(task, facts.channels, len(tokens)), tokens, facts, task.max_length)

    @torch.no_grad()
    def describe(
        self, pixels: NDArray[np.uint8], search: Search = Greedy(), *, first: int = 0
    ) -> list[list[TranslationHypothesis]]:  # "n h w c"
        """The captions of every picture, the best first; `first` is the number of the first, which decides draws."""
        said: list[list[TranslationHypothesis]] = []
        with eval_mode(self.model):
            for at in range(0, len(pixels), _AT_ONCE):
                x = self._tensor(pixels[at : at + _AT_ONCE])
                state = self.model.init_state(x)
                limits = torch.full((len(x),), self.longest + 1, device=x.device)
                numbers = range(first + at, first + at + len(x))
                found = run_search(self.model, state, search, limits, numbers, state.state.lengths)
                said += [
                    [self._said(one.tokens, one.log_prob, one.score, one.finished) for one in each] for each in found
                ]
        return said

    def _said(self, tokens: tuple[int, ...], log_prob: float, score: float, finished: bool) -> TranslationHypothesis:
        return TranslationHypothesis(self.tokens.decode(tokens), tokens, log_prob, score, finished)

    @torch.no_grad()
    def look(
        self, pixels: NDArray[np.uint8], said: Sequence[TranslationHypothesis]
    ) -> list[CaptionAlignment]:  # "n h w c"
        """Where each caption looked while it was said: the steps again on what was found."""
        spoken = [with_eos(one) for one in said]
        looked: list[CaptionAlignment] = []
        with eval_mode(self.model):
            for at in range(0, len(pixels), _AT_ONCE):
                here = spoken[at : at + _AT_ONCE]
                x = self._tensor(pixels[at : at + _AT_ONCE])
                weights = self.model.teacher_force(x, shift_right(here).to(x.device), Need(weights=True)).weights
                assert weights is not None
                for words, one in zip(here, weights.cpu(), strict=True):
                    looked.append(CaptionAlignment(self.tokens.pieces(words), one[: len(words)]))
        return looked

    @torch.no_grad()
    def recorded(self, pixels: NDArray[np.uint8], said: TranslationHypothesis) -> Recording:  # "h w c"
        """A recording of one caption of one picture, a map a word."""
        words = with_eos(said)
        x = self._tensor(pixels[None])
        with eval_mode(self.model), record(self.model) as tape:
            self.model.teacher_force(x, shift_right([words]).to(x.device))
        shown = [piece.removeprefix("▁") for piece in self.tokens.pieces(words)]
        return tape.with_labels(shown, [])

    @property
    def hard(self) -> bool:
        """Does a word go to one place?"""
        return isinstance(getattr(self.model.decoder.attention, "read", None), Sample)

    def grid(self) -> tuple[int, int]:
        """Height and width of the map of places."""
        with torch.no_grad(), eval_mode(self.model):
            blank = np.zeros((1, self.facts.height, self.facts.width, self.facts.channels), np.uint8)
            grid = self.model.init_state(self._tensor(blank)).grid
        assert grid is not None
        return grid

    def _tensor(self, pixels: NDArray[np.uint8]) -> Tensor:
        return tensor(pixels, self.facts).to(next(self.model.parameters()).device)


def build(task: Caption, channels: int, vocabulary: int) -> ShowAttendTell:
    """The model, fresh."""
    return ShowAttendTell(
        AnnotationEncoder(channels, task.annotation, width=task.channels),
        vocabulary,
        width=task.width,
        hidden=task.hidden,
        attention=task.attention,
        expected=task.choice("expected"),
        dropout=task.dropout,
        padding=PAD,
    )


def read_tokens(folder: Path) -> Tokenizer:
    """The vocabulary of a run."""
    path = folder / _TOKENS
    if not path.exists():
        raise FileNotFoundError(f"{folder} holds no vocabulary ({_TOKENS}); name the folder of a training run")
    return read_vocabulary(path)


def has_tokens(folder: Path) -> bool:
    return (folder / _TOKENS).exists()


def write_tokens(tokens: Tokenizer, folder: Path) -> None:
    atomic_files.make_folder(folder)
    atomic_files.write_atomically(folder / _TOKENS, [tokens.to_json().encode()])


def pointing(
    looked: Sequence[CaptionAlignment],
    boxes: Sequence[tuple[Box, ...]],
    grid: tuple[int, int],
    size: tuple[int, int],
    draw: np.random.Generator | None = None,
) -> float:
    """Of the words that name a digit, the percentage whose map has its peak on that digit; 0 if no word names one.

    A peak is the middle of a place, and lies on a digit if it is within its box. Of two digits of one name the first
    that is named is the first one reads. A word for a digit that is not there points nowhere. With `draw` it is a place
    drawn by the weights, not their peak.
    """
    named = right = 0
    for one, there in zip(looked, boxes, strict=True):
        left = list(there)
        for piece, weights in zip(one.pieces, one.weights.cpu().double(), strict=True):
            word = piece.strip("▁,")
            if word not in NAMES:
                continue
            named += 1
            box = next((box for box in left if box.name == word), None)
            if box is None:
                continue
            left.remove(box)
            share = weights.numpy()
            at = int(share.argmax()) if draw is None else int(draw.choice(len(share), p=share / share.sum()))
            y, x = (at // grid[1] + 0.5) * size[0] / grid[0], (at % grid[1] + 0.5) * size[1] / grid[1]
            right += box.holds(y, x)
    return 100.0 * right / named if named else 0.0
