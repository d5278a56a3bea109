"""The attention of decoders, called for one query of every hypothesis or for all queries of a known target."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.attn import observer, stepwise
from regard.attn.call import Attended, Need
from regard.attn.catalogue import Factory, width
from regard.attn.kv_cache import KVCache
from regard.attn.terms.read import Sample
from regard.attn.terms.sequence_masks import Lengths


class IncompatibleAttention(ValueError):
    """An attention that a decoder of these widths cannot use step by step."""


class StepwiseAttention(nn.Module):
    """The base class of modules whose `attention` has a query per step of a decoder."""

    attention: nn.Module

    def _build_attention(self, make: Factory, hidden: int, source_dim: int) -> int:
        """Builds `self.attention` and returns the width of its output."""
        self.attention = make(hidden, source_dim)
        if (part := stepwise.part_without_steps(self.attention)) is not None:
            raise IncompatibleAttention(f"{part} needs all queries together, but a decoder has one at a time")
        try:
            return width(self.attention, hidden, source_dim)
        except (ValueError, TypeError) as error:
            raise IncompatibleAttention(
                f"queries are hidden={hidden} wide, the encoder's states {source_dim}: {error}"
            ) from error

    def _is_sampling(self) -> bool:
        """Whether the attention samples a key, so that the loss needs the log-probability of the sample."""
        return self.training and isinstance(getattr(self.attention, "read", None), Sample)

    def _need(self, weights: bool) -> Need:
        return Need(weights=weights, log_prob=self._is_sampling(), entropy=self._is_sampling())

    def _initial_attention_state(self, memory: KVCache) -> Any:
        return stepwise.start(self.attention, _per_hypothesis(memory)) if self._has_state() else 0

    def _has_state(self) -> bool:
        """Whether a step of the attention depends on the previous steps."""
        return hasattr(self.attention, "start")

    def _attend_step(
        self, s: Tensor, memory: KVCache, lengths: Tensor, attention_state: Any, need: Need
    ) -> tuple[Attended, Any]:
        """Attends with one query for each of n hypotheses, "b n d" -> "b n v"."""
        mask = Lengths(lengths)
        if self._has_state():
            with observer.alignment_steps(memory):
                attended, attention_state = stepwise.step(
                    self.attention,
                    s.unsqueeze(2),
                    _per_hypothesis(memory, s.shape[1]),
                    attention_state,
                    mask=mask,
                    need=need,
                )
            weights = None if attended.weights is None else attended.weights.squeeze(2)
            return Attended(attended.out.squeeze(2), weights), attention_state
        query_positions = torch.full((s.shape[1],), attention_state, device=s.device)
        key_positions = torch.arange(len(memory), device=s.device)
        with observer.alignment_steps():
            attended = self.attention.attend(
                s, memory, mask=mask, positions=(query_positions, key_positions), need=need
            )  # type: ignore[operator]
        return _average_heads(attended), attention_state + 1

    def _attend_all(
        self, s: Tensor, keys: Tensor, values: Tensor | None, lengths: Tensor, need: Need
    ) -> Attended:  # "b t d", "b s k", "b s v" -> "b t v"
        """Attends with all queries at once, if none depends on the output of another one."""
        positions = tuple(torch.arange(n, device=s.device) for n in (s.shape[1], keys.shape[1]))
        with observer.alignment_steps():
            attended = self.attention.attend(  # type: ignore[operator]
                s, keys, values, mask=Lengths(lengths), positions=positions, need=need
            )
        return _average_heads(attended)


def _average_heads(attended: Attended) -> Attended:
    """Averages weights over the heads, if there are heads: "b t s"."""
    has_heads = attended.weights is not None and attended.weights.ndim > attended.out.ndim
    return (
        attended._replace(weights=attended.weights.mean(1)) if has_heads and attended.weights is not None else attended
    )


def _per_hypothesis(memory: KVCache, count: int = 1) -> KVCache:
    """The memory of a sentence for each of its hypotheses, "b n s …", without a copy."""
    keys, values = (t.unsqueeze(1).expand(-1, count, -1, -1) for t in (memory.keys, memory.values))
    return KVCache(keys, values, memory.positions, _like=memory)


def map_tensors(attention_state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The state of an attention with every tensor in it changed; a step number stays."""
    if isinstance(attention_state, Tensor):
        return change(attention_state)
    if isinstance(attention_state, tuple):
        parts = [map_tensors(part, change) for part in attention_state]
        return type(attention_state)(*parts) if hasattr(attention_state, "_fields") else tuple(parts)
    return attention_state
