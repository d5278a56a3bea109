"""Attribution by attention: raw weights, rollout, maximum flow, and gradient-weighted relevance."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attribution.base import AttributionMethod, ExplainedLogit, ScoredTokens
from regard.attribution.max_flow import maximum_flows
from regard.common.eval_mode import eval_mode
from regard.inference.embedded_classifier import TokenLayer, check_has_vectors, edited_vectors, reading_rows
from regard.recording.record import record
from regard.recording.recording import Recording
from regard.recording.run import recorded


@dataclass(frozen=True)
class RawAttention(AttributionMethod):
    """score_i = the mean weight of key i in the last attention: of the queries that the classes are read from."""

    def scores(self, explained: ExplainedLogit) -> ScoredTokens:
        return _raw(explained, record_maps(explained))


@dataclass(frozen=True)
class AttentionRollout(AttributionMethod):
    """A_L' ⋯ A_1', A' = (1 − r) · mean_h P + r · I  (Abnar and Zuidema 2020); one attention of queries that are no
    tokens has no residual, and its rollout is its weights."""

    residual: float = 0.5

    def scores(self, explained: ExplainedLogit) -> ScoredTokens:
        maps = record_maps(explained)
        if _is_pooling(maps):
            return _raw(explained, maps)
        return ScoredTokens(_read(explained, maps.rollout(self.residual)[0].weights.dense()))


@dataclass(frozen=True)
class MaximumFlow(AttributionMethod):
    """The maximum flow from the query that the classes are read from to each token, with capacities A' as in the
    rollout  (Abnar and Zuidema 2020, section 3); the mean over queries if they are read from all."""

    residual: float = 0.5

    def scores(self, explained: ExplainedLogit) -> ScoredTokens:
        maps = record_maps(explained)
        if _is_pooling(maps):
            return _raw(explained, maps)
        capacities = [Recording((item,)).rollout(self.residual)[0].weights.dense().flatten(0, -3)[0] for item in maps]
        count = len(explained.tokens)
        rows = reading_rows(explained.classifier)
        sources = range(count) if rows is None else [row % count for row in rows]
        return ScoredTokens(torch.stack([maximum_flows(capacities[::-1], each) for each in sources]).mean(0))


@dataclass(frozen=True)
class AttentionRelevance(AttributionMethod):
    """R ← R + mean_h (∂f/∂P ∘ P)⁺ R from R = I  (Chefer et al. 2021); one attention of queries that are no tokens
    has mean (∂f/∂P ∘ P)⁺."""

    def scores(self, explained: ExplainedLogit) -> ScoredTokens:
        maps = _record_gradients(explained)
        if _is_pooling(maps):
            last = maps[-1]
            if last.gradient is None:
                raise ValueError(
                    "relevance needs the gradient of one attention to the tokens, and this model joins those of words "
                    "and sentences; use the method attention or integrated-gradients"
                )
            return ScoredTokens(_read(explained, (last.weights.dense() * last.gradient.dense()).clamp_min(0)))
        return ScoredTokens(_read(explained, maps.relevance()[0].weights.dense()))


def _raw(explained: ExplainedLogit, maps: Recording) -> ScoredTokens:
    return ScoredTokens(_read(explained, maps[-1].weights.dense()))


def record_maps(explained: ExplainedLogit) -> Recording:
    """The maps of a pass, whose columns are the tokens."""
    return _of_tokens(explained, record_pass(explained))


def record_pass(explained: ExplainedLogit) -> Recording:
    """All maps of a pass; raises if none has the tokens for columns."""
    with eval_mode(explained.classifier.model), recorded(explained.classifier.model) as recording:
        explained.classifier.token_logits([explained.tokens])
    _of_tokens(explained, recording)
    return recording


def _record_gradients(explained: ExplainedLogit) -> Recording:
    """The maps with their gradients, of the logit."""
    classifier = explained.classifier
    check_has_vectors(classifier)
    leaves: list[Tensor] = []

    def capture(number: int, layer: TokenLayer, vectors: Tensor) -> Tensor:
        leaves.append(vectors.detach().requires_grad_())
        return leaves[-1]

    with torch.enable_grad(), eval_mode(classifier.model), edited_vectors(classifier, capture):
        with record(classifier.model, gradients=True) as recording:
            logits = classifier.token_logits([explained.tokens])
        # hooks at the outputs of every attention keep their gradients; those of the parameters are not touched
        torch.autograd.grad(logits[0, explained.target], leaves)
    return _of_tokens(explained, recording)


def _of_tokens(explained: ExplainedLogit, recording: Recording) -> Recording:
    maps = explained.classifier.token_recording(recording, explained.tokens)
    if not len(maps):
        raise ValueError(
            f"{type(explained.classifier.model).__name__} attends to no tokens, so its attention explains nothing; use "
            "the method leave-one-out"
        )
    return maps


def _is_pooling(maps: Recording) -> bool:
    """Whether queries that are no tokens attend to the tokens; such an attention is the only one of its model."""
    return not any(item.kind == "self" and item.shape[-1] == item.shape[-2] for item in maps)


def _read(explained: ExplainedLogit, weights: Tensor) -> Tensor:  # "*b q k" -> "k"
    """The row that the classes are read from, the mean of all if there is no such row; the mean of heads."""
    read = reading_rows(explained.classifier)
    rows = weights.flatten(0, -3).mean(0)
    return (rows[read] if read is not None and rows.shape[0] == len(explained.tokens) else rows).mean(0)
