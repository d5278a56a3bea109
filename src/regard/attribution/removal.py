"""REMOVALS: ways to take tokens away from an input, by name, each with other numbers; LeaveOneOut, by one of them."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attribution.attention import record_pass
from regard.attribution.base import BATCH, AttributionMethod, ExplainedLogit, ScoredTokens
from regard.common.eval_mode import eval_mode
from regard.common.suggestions import known
from regard.inference.embedded_classifier import SelectiveKeys, TokenLayer, check_has_vectors, edited_vectors
from regard.interop.intervene import intervene
from regard.interop.replacements import WithoutKeys

# the places of the tokens that each variant of the input loses -> its logits, "b k"
Removal = Callable[[ExplainedLogit, Sequence[Collection[int]]], Tensor]


def delete(explained: ExplainedLogit, removed: Sequence[Collection[int]]) -> Tensor:
    """The text without these tokens; what follows moves up."""
    return explained.logits([explained.tokens.without(set(places)) for places in removed])


@torch.no_grad()
def mask_keys(explained: ExplainedLogit, removed: Sequence[Collection[int]]) -> Tensor:
    """No attention has these tokens as keys. A token still has its own state, and a recurrent encoder reads it."""
    classifier, count = explained.classifier, len(explained.tokens)
    recording = record_pass(explained)  # raises if no attention has tokens as keys
    layers = None
    if isinstance(classifier, SelectiveKeys):
        layers = classifier.key_layers(recording, explained.tokens)
    logits = []
    for start in range(0, len(removed), BATCH):
        batch = removed[start : start + BATCH]
        keys = torch.ones(len(batch), count, dtype=torch.bool, device=classifier.device)
        for row, places in zip(keys, batch, strict=True):
            row[list(places)] = False
        try:
            with eval_mode(classifier.model), intervene(classifier.model, WithoutKeys(keys), layers=layers):
                logits.append(classifier.token_logits([explained.tokens] * len(batch)).double())
        except ValueError as error:
            # one of the ways out that `intervene` names is an argument of its own
            reason, _, ways = str(error).partition("; ")
            load = [way for way in ways.split(", or ") if way.startswith("load ")]
            raise ValueError(f"{reason}; {', or '.join(['use the method leave-one-out', *load])}") from error
    return torch.cat(logits)


@torch.no_grad()
def pad_vectors(explained: ExplainedLogit, removed: Sequence[Collection[int]]) -> Tensor:
    """These tokens have the vector of padding, as in the baseline of integrated gradients."""
    classifier = explained.classifier
    check_has_vectors(classifier)
    logits = []
    for start in range(0, len(removed), BATCH):
        batch = removed[start : start + BATCH]
        copies = [explained.tokens] * len(batch)
        lost = [
            cells[list(places)] for cells, places in zip(classifier.vector_places(copies), batch, strict=True) if places
        ]

        def replace_lost(number: int, layer: TokenLayer, vectors: Tensor, lost: list[Tensor] = lost) -> Tensor:
            vectors = vectors.clone()
            for cells in lost:
                of_call = cells[cells[:, 0] == number]
                vectors[of_call[:, 1], of_call[:, 2]] = layer.absent(vectors)
            return vectors

        with eval_mode(classifier.model), edited_vectors(classifier, replace_lost):
            logits.append(classifier.token_logits(copies).double())
    return torch.cat(logits)


REMOVALS: dict[str, Removal] = {"delete": delete, "mask-keys": mask_keys, "pad": pad_vectors}


@dataclass(frozen=True)
class LeaveOneOut(AttributionMethod):
    """score_i = f(x) − f(x without token i)  (Li et al. 2016); special tokens stay and score 0.

    `removal` is a name of REMOVALS: the token is deleted, its key is masked in every attention (a masked key equals an
    absent key, and positions stay), or its vector is that of padding.
    """

    removal: str = "delete"

    def __post_init__(self) -> None:
        known("removal", self.removal, REMOVALS)

    def scores(self, explained: ExplainedLogit) -> ScoredTokens:
        words = explained.tokens.words
        logits = REMOVALS[self.removal](explained, [{n} for n in words])
        scores = logits.new_zeros(len(explained.tokens))
        scores[list(words)] = explained.output - logits[:, explained.target]
        return ScoredTokens(scores)
