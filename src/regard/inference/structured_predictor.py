"""StructuredPredictor: the protocol of a predictor whose output has parts, such as tags or words, to be explained."""

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from regard.common.suggestions import listed, suggestion
from regard.inference.embedded_classifier import EmbeddedClassifier, TokenInput

# the name of all outputs but the explained part
OTHER = "any other output"
# the n-th occurrence of a word: "to#2"
_OCCURRENCE = re.compile(r"(?P<word>.+)#(?P<number>[1-9]\d*)")


class OutputPart(NamedTuple):
    """A part of the output for one text, as class 0 of a classifier that has it and `OTHER` for classes."""

    classifier: EmbeddedClassifier
    tokens: TokenInput


@runtime_checkable
class StructuredPredictor(Protocol):
    """A predictor of several outputs per text."""

    def output_part(self, text: str, target: str | None) -> OutputPart:
        """The part of the output that `target` names; raises if the output has no such part."""


def log_odds(included: Tensor, excluded: Sequence[Tensor]) -> Tensor:  # "b", "b" each -> "b 2"
    """log p − log(1 − p) and 0, of log p and of the logarithms of exclusive events beside it, up to one constant.

    Their softmax is p and 1 − p, and the first is not saturated where a model is sure.
    """
    difference = included - torch.stack([*excluded]).logsumexp(0)
    return torch.stack([difference, torch.zeros_like(difference)], 1)


def find_words(asked: str, words: Sequence[str], where: str) -> tuple[int, ...]:
    """The places of neighbouring words, "New York", the n-th occurrence of which is written "New York#2"."""
    match = _OCCURRENCE.fullmatch(asked)
    text, number = (match["word"], int(match["number"])) if match is not None and asked not in words else (asked, 1)
    parts = text.split()
    phrases = [words[n : n + len(parts)] for n in range(len(words) - len(parts) + 1)] if parts else []
    starts = [n for n, phrase in enumerate(phrases) if list(phrase) == parts]
    if len(starts) >= number:
        return tuple(range(starts[number - 1], starts[number - 1] + len(parts)))
    if starts:
        times = "once" if len(starts) == 1 else f"{len(starts)} times"
        raise ValueError(f"the target {asked!r} is not there: {text!r} occurs {times} in {where}; name {text!r}")
    hint = suggestion(text, [" ".join(phrase) for phrase in phrases])
    raise ValueError(
        f"unknown target in {where} {asked!r}; {hint}name neighbouring words of: {listed(list(dict.fromkeys(words)))}"
    )
