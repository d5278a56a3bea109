"""MaskedLMPredictor: a text with masks in, the candidates for each mask out."""

import math
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from regard.attn.terms.sequence_masks import Lengths
from regard.common.eval_mode import eval_mode
from regard.common.options.checks import check_top
from regard.common.wording import shortened
from regard.inference.batches import similar_batches
from regard.inference.counted_note import UNKNOWN_TOKENS, CountedNote
from regard.inference.exportable import Exportable
from regard.inference.limits import Limits
from regard.inference.margins import ranking_margin
from regard.inference.predictor import Observe
from regard.inference.text_predictor import TextPredictor
from regard.models.bert import BERTMaskedLM
from regard.recording.recording import Recording
from regard.tasks.masked_lm.masked_texts import MASK, EncodedMasks, MaskedTexts
from regard.tasks.masked_lm.options import MaskedLM, PredictMasked

# texts per batch
_BATCH = 32


@dataclass(frozen=True)
class Candidate:
    """A token in place of a mask, its text for display, and its probability."""

    token: int
    text: str
    probability: float


@dataclass(frozen=True)
class FilledText:
    """The candidates for each mask of a text, the likeliest first, and the text with the likeliest ones."""

    encoded: EncodedMasks
    candidates: tuple[tuple[Candidate, ...], ...]
    filled: str
    margin: float = field(default=math.inf, compare=False)  # margin of the closest ranking of candidates


class MaskedLMPredictor(TextPredictor[FilledText]):
    """text -> tokens and masks -> the probability of every token in place of each mask."""

    served_as = MaskedLM.name
    page_title = f"Guess the words at {MASK} with {{run}}"
    page_example = f"The capital of France is {MASK}."
    request_options = PredictMasked
    text_schema = MappingProxyType({"pattern": re.escape(MASK)})

    model: BERTMaskedLM

    def __init__(self, model: BERTMaskedLM, texts: MaskedTexts, *, longest: int) -> None:
        """`longest` is the number of tokens that the model reads at once, begin and end included."""
        self.model, self.texts, self.longest = model, texts, longest

    # Prediction

    def encode(self, text: str) -> EncodedMasks:
        """The tokens of a text; raises if it has no mask, or more tokens than the model reads."""
        encoded = self.texts.encode(text)
        if len(encoded.tokens) > self.longest:
            raise ValueError(
                f"the text {shortened(text, 40)} has {len(encoded.tokens)} tokens, begin and end included, and "
                f"this model reads {self.longest}; shorten it"
            )
        return encoded

    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[FilledText]:
        options = PredictMasked() if options is None else options
        check_top(options, len(self.texts.candidates), "tokens")
        encoded = [self.encode(text) for text in inputs]
        outputs: list[FilledText | None] = [None] * len(inputs)
        with observe():
            for index in similar_batches([len(each.tokens) for each in encoded], _BATCH):
                with torch.no_grad():
                    logits = self._logits([encoded[n] for n in index])
                for n, rows in zip(index, logits, strict=True):
                    outputs[n] = self._filled(inputs[n], encoded[n], rows, options.top)
        return [output for output in outputs if output is not None]

    def _logits(self, encoded: Sequence[EncodedMasks]) -> list[Tensor]:  # "m v" each
        """The logits at the masks of each text."""
        tokens, lengths = self._pad(encoded)
        is_masked = torch.zeros_like(tokens, dtype=torch.bool)
        for row, each in enumerate(encoded):
            is_masked[row, list(each.places)] = True
        is_ragged = len(set(lengths.tolist())) > 1
        with eval_mode(self.model):
            states = self.model.encoder(tokens, Lengths(lengths) if is_ragged else None)
            logits = self.model.output(self.model.head(states[is_masked]))
        return list(logits.split([len(each.places) for each in encoded]))

    def _pad(self, encoded: Sequence[EncodedMasks]) -> tuple[Tensor, Tensor]:  # -> "b t", "b"
        lengths = [len(each.tokens) for each in encoded]
        rows = [[*each.tokens, *[self.texts.pad] * (max(lengths) - len(each.tokens))] for each in encoded]
        return torch.tensor(rows, device=self.device), torch.tensor(lengths, device=self.device)

    def _filled(self, text: str, encoded: EncodedMasks, logits: Tensor, top: int) -> FilledText:  # logits "m v"
        """Candidates are tokens of text alone; their probabilities are among all tokens."""
        tokens = self.texts.candidates
        # one more than asked for, which the last one might change places with
        ranked = logits.cpu().double().softmax(-1)[:, torch.as_tensor(tokens)].topk(min(top + 1, len(tokens)), -1)
        margin = min(ranking_margin(row, top) for row in ranked.values.tolist())
        candidates = tuple(
            tuple(
                Candidate(tokens[n], self.texts.display(tokens[n], has_space), p)
                for n, p in zip(index, row, strict=True)
            )
            for index, row, has_space in zip(
                ranked.indices[:, :top].tolist(), ranked.values[:, :top].tolist(), encoded.has_space, strict=True
            )
        )
        filled = self.texts.fill(text, encoded, [each[0].token for each in candidates])
        return FilledText(encoded, candidates, filled, margin)

    def text(self, output: FilledText) -> str:
        """Candidates with probabilities, separated by tabs; " | " separates masks."""
        return " | ".join(
            "\t".join(f"{each.text} {100 * each.probability:.1f} %" for each in candidates)
            for candidates in output.candidates
        )

    def json(self, output: FilledText) -> dict[str, Any]:
        masks = [
            [{"token": each.text, "probability": each.probability} for each in candidates]
            for candidates in output.candidates
        ]
        return {"filled": output.filled, "masks": masks}

    def margin(self, output: FilledText) -> float:
        return output.margin

    def summary(self, output: FilledText) -> str:
        return output.filled

    # Gradients

    def loss(self, inputs: Sequence[str], targets: Sequence[str]) -> Tensor:  # -> "b"
        """Σ −log p(token) over the masks of each text; a target has one token per mask, separated by white space."""
        encoded = [self.encode(text) for text in inputs]
        right = [self._target_tokens(each, target) for each, target in zip(encoded, targets, strict=True)]
        losses = [
            -logits.log_softmax(-1).gather(-1, torch.tensor(tokens, device=self.device)[:, None]).sum()
            for logits, tokens in zip(self._logits(encoded), right, strict=True)
        ]
        return torch.stack(losses)

    def _target_tokens(self, encoded: EncodedMasks, target: str) -> list[int]:
        words = [target] if len(encoded.places) == 1 else target.split()
        ids = [
            self.texts.word_tokens(word, has_space) for word, has_space in zip(words, encoded.has_space, strict=False)
        ]
        if len(words) != len(encoded.places) or any(len(each) != 1 for each in ids):
            raise ValueError(
                f"target {target!r} must have one token of the vocabulary per {MASK}, {len(encoded.places)} in all; "
                f"write {MASK} once per token"
            )
        return [token for (token,) in ids]

    @property
    def embedding(self) -> nn.Module | None:
        return self.model.encoder.embedding

    def embeddings(self, inputs: Sequence[str]) -> Tensor:  # -> "b t d"
        tokens, _ = self._pad([self.encode(text) for text in inputs])
        return self.model.encoder.embedding(tokens)

    # The attention behind a guess

    def label(self, recording: Recording, example: str, output: FilledText) -> Recording:
        """Rows and columns are the tokens of the text."""
        pieces = self.texts.pieces(output.encoded.tokens)
        return self.labelled(recording, example, self.text(output), pieces, pieces, {"keys": "tokens"})

    # Services

    def exportable(self) -> Exportable:
        return Exportable(self.model, self.texts.library_vocabulary(), longest=self.longest)

    def notes(self, output: FilledText) -> dict[CountedNote, int]:
        return {UNKNOWN_TOKENS: output.encoded.num_unknown}

    def about(self) -> dict[str, object]:
        return {"max_length": self.longest}

    def option_maxima(self, limits: Limits) -> dict[str, int]:
        return {"top": len(self.texts.candidates)}

    def example(self) -> str:
        return f"a {MASK}"
