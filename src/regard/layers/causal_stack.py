"""CausalStack: layers of self-attention over the past, run on a whole text, segment by segment or step by step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.kv_cache import KVCache, Segment
from regard.attn.terms.mask import BooleanMask, Mask
from regard.attn.terms.rotary import Rotary
from regard.attn.terms.sequence_masks import Causal, Lengths, Prefix, Window
from regard.layers.native_decoder import native_stack_step
from regard.layers.transformer import EncoderLayer

Memory = tuple[Segment, ...]  # the inputs of every layer at the tokens before


class StackOutput(NamedTuple):
    """The result of a CausalStack on a text or a segment of it."""

    states: Tensor  # "b t d"
    memory: Memory  # for the next segment; empty without a memory
    weights: tuple[Tensor, ...] = ()  # "b h t k" of every layer, if requested


@dataclass(frozen=True, eq=False)
class CausalState:
    """The state of n hypotheses for each of b prompts.

    The keys of all hypotheses of a prompt stand side by side in one cache, and `allowed` marks those in a hypothesis's
    own past: selecting hypotheses copies a few bits, never keys.
    """

    pasts: tuple[KVCache | None, ...]  # one per layer, "b h m d"
    positions: Tensor  # positions of the keys, "m"; "b m" if the prompts differ in length
    next_position: Tensor  # position of the next token, "1" or "b 1"
    allowed: Tensor | None  # bool "b n m"; None: all keys
    count: int  # n

    def reorder(self, index: Tensor) -> "CausalState":  # "b n2"
        count = index.shape[1]
        if self.allowed is None:
            keys = self.positions.shape[-1]
            allowed = None if count == 1 else index.new_ones(*index.shape, keys, dtype=torch.bool)
        else:
            allowed = self.allowed[torch.arange(len(index), device=index.device).unsqueeze(-1), index]
        pasts = tuple(None if cache is None else cache.select_queries(index) for cache in self.pasts)
        return replace(self, pasts=pasts, allowed=allowed, count=count)

    def select_sentences(self, index: Tensor) -> "CausalState":  # "b2"
        return replace(
            self,
            pasts=tuple(None if cache is None else cache.reorder(index) for cache in self.pasts),
            positions=self.positions[index] if self.positions.ndim > 1 else self.positions,
            next_position=self.next_position[index] if self.next_position.ndim > 1 else self.next_position,
            allowed=None if self.allowed is None else self.allowed[index],
        )

    def drop_before(self, left: int) -> "CausalState":
        """Without the leading keys that are more than `left` positions before every next token.

        Keys are dropped when they are half of the cache, so that n steps copy O(n) keys.
        """
        needed = self.positions >= self.next_position - left
        needed = needed.any(0) if needed.ndim > 1 else needed
        first = int(needed.int().argmax()) if bool(needed.any()) else len(needed)
        if 2 * first <= len(needed):
            return self
        pasts = tuple(None if cache is None else cache.drop_first(first) for cache in self.pasts)
        allowed = None if self.allowed is None else self.allowed[..., first:]
        return replace(self, pasts=pasts, positions=self.positions[..., first:], allowed=allowed)


class CausalStack(nn.Module):
    """h_n = layer_n(h_{n−1}), each position attending to itself and to those before; the last h is normed by `norm`.

    `memory` is how many inputs of every layer are kept for the next segment, without gradient (Dai et al. 2019, 3.2);
    0: a text is one segment. With `same_length` every query attends to as many keys, `memory` of them, so that the
    states do not depend on where segments begin.
    """

    def __init__(
        self, layers: Sequence[EncoderLayer], norm: nn.Module, *, memory: int = 0, same_length: bool = False
    ) -> None:
        super().__init__()
        if memory < 0:
            raise ValueError(f"memory must be 0 or more tokens, got {memory}; try {-memory}")
        if same_length and not memory:
            raise ValueError("same_length=True counts the keys of a memory, got memory=0; give memory=128")
        self.layers = nn.ModuleList(layers)
        self.norm = norm
        self.memory, self.same_length = memory, same_length

    def init_memory(self, keep: int | None = None) -> Memory:
        """The memory before the first segment, of `keep` tokens; None: as many as in the constructor.

        A model may keep more in evaluation than it did in training.
        """
        keep = self.memory if keep is None else keep
        return tuple(Segment(keep) for _ in self.layers)

    def forward(
        self,
        x: Tensor,
        memory: Memory | None = None,
        *,
        mask: Mask | None = None,
        prefix: Tensor | None = None,
        positions: Tensor | None = None,
        need: Need = NOTHING,
    ) -> StackOutput:  # "b t d", prefix "b", positions "t" or "b t"
        """The states of a segment and the memory after it.

        `mask` is combined with the causal one, such as Documents of packed texts; it counts the tokens of the memory
        before those of x. `prefix` is how many tokens of each text attend to each other in both directions, before
        those that attend to the past (Raffel et al. 2020, prefix LM). It, and `positions`, which start anew in each
        document, are for texts without a memory.
        """
        if memory is None:
            memory = self.init_memory() if self.memory else ()
        elif len(memory) != len(self.layers):
            raise ValueError(
                f"memory must hold one Segment per layer, {len(self.layers)}, got {len(memory)}; "
                "pass the memory of the output before, or that of init_memory"
            )
        if memory and positions is not None:
            raise ValueError("positions are for texts without a memory; build the model with memory=0")
        if positions is not None and self._rotary_of_length is not None:
            raise ValueError(
                f"the frequencies of {self._rotary_of_length!r} depend on the length of a text, and a row has several; "
                "give its scaling a length, or pack no texts"
            )
        if memory and prefix is not None:
            raise ValueError("a prefix is for texts without a memory; build the model with memory=0")
        causal: Mask = Window(memory[0].keep - 1, 0) if memory and self.same_length else Causal()
        causal = causal if prefix is None else Prefix(prefix.unsqueeze(-1))
        whole_mask = causal if mask is None else causal & mask
        both = None if positions is None else (positions, positions)
        segments, weights = [], []
        for n, layer in enumerate(self.layers):
            past = memory[n].states if memory else None
            if memory:
                segments.append(memory[n].extend(x))
            output = layer(x, whole_mask, positions=both, memory=past, need=need)
            x = output.out
            if output.weights is not None:
                weights.append(output.weights)
        return StackOutput(self.norm(x), tuple(segments), tuple(weights))

    def read_prompt(
        self,
        x: Tensor,
        lengths: Tensor | None = None,
        *,
        is_prefix: bool = False,
        mask: Tensor | None = None,
        allowed: Tensor | None = None,
    ) -> tuple[Tensor, CausalState]:  # "b t d", "b", bool "b t t", bool "b t" -> "b t d"
        """The states of prompts, padded behind their `lengths` (None: all are t long), and the state after them.

        `is_prefix`: the tokens of a prompt attend to each other in both directions. `mask` is combined with the causal
        one; `allowed` marks the tokens that those behind the prompt attend to.
        """
        t = x.shape[1]
        positions = torch.arange(t, device=x.device)
        next_position = torch.full((1,), t, device=x.device)
        if lengths is not None and bool((lengths != t).any()):
            # padding stands behind a prompt, so that the causal mask hides it from the prompt itself
            is_inside = positions < lengths.unsqueeze(-1)
            allowed = is_inside if allowed is None else is_inside & allowed
            positions, next_position = positions.expand(len(x), -1), lengths.unsqueeze(-1)
            if self._rotary_of_length is not None:  # the length of a text is without its padding
                positions = positions.masked_fill(~is_inside, 0)
                inside = is_inside.unsqueeze(1).expand(-1, t, -1)
                mask = inside if mask is None else mask & inside
        pasts: list[KVCache | None] = []
        left = self._left
        prompt_mask: Mask | None = Causal() if left is None else Window(left, 0)
        if is_prefix:
            prompt_mask = None if lengths is None else Lengths(lengths)
        if mask is not None:
            prompt_mask = BooleanMask(mask) if prompt_mask is None else prompt_mask & mask
        if allowed is not None and any(cast(EncoderLayer, layer).attention.reads_rows for layer in self.layers):
            # padding must not decide what later tokens see
            rows = BooleanMask(allowed.unsqueeze(-1))
            prompt_mask = rows if prompt_mask is None else prompt_mask & rows
        for layer in self.layers:
            if not t:
                pasts.append(None)
                continue
            x, cache, _ = layer(x, prompt_mask, positions=(positions, positions), use_cache=True)
            pasts.append(cache)
        allowed = None if allowed is None else allowed.unsqueeze(1)
        state = CausalState(tuple(pasts), positions, next_position, allowed, 1)
        return self.norm(x), state if left is None else state.drop_before(left)

    def step(self, x: Tensor, state: CausalState) -> tuple[Tensor, CausalState]:  # "b n d" -> "b n d"
        """The states of the next token of n hypotheses: those of a segment of one token with its memory."""
        count = x.shape[1]
        query_positions = state.next_position.expand(*state.next_position.shape[:-1], count)
        positions = torch.cat([state.positions, query_positions], dim=-1)
        allowed = None
        # the cache still has the keys of the other hypotheses if several were reduced to one
        if count > 1 or state.allowed is not None:
            new_keys = torch.eye(count, dtype=torch.bool, device=x.device).expand(len(x), -1, -1)
            past = x.new_ones(len(x), count, state.positions.shape[-1], dtype=torch.bool)
            allowed = torch.cat([past if state.allowed is None else state.allowed, new_keys], dim=-1)
        if self._left is None and count == 1:
            keys = None if allowed is None else allowed[:, 0]
            stepped = native_stack_step(self.layers, self.norm, x, state.pasts, keys)
            if stepped is not None:
                out, caches = stepped
                return out, CausalState(caches, positions, state.next_position + 1, allowed, count)
        if allowed is not None and (selecting := self._mask_of_blocks) is not None:
            raise ValueError(
                f"{selecting!r} selects blocks of keys by their index in the cache, which hypotheses and prompts of "
                "different lengths share; decode one text at a time, without a beam"
            )
        mask: Mask | None = None if allowed is None else BooleanMask(allowed)
        if self._left is not None:
            window = Window(self._left, 0)
            mask = window if mask is None else mask & window
        pasts = []
        for layer, past_cache in zip(self.layers, state.pasts, strict=True):
            x, cache, _ = layer(x, mask, positions=(query_positions, positions), cache=past_cache, use_cache=True)
            pasts.append(cache)
        state = CausalState(tuple(pasts), positions, state.next_position + 1, allowed, count)
        return self.norm(x), state if self._left is None else state.drop_before(self._left)

    @property
    def _mask_of_blocks(self) -> Mask | None:
        """A mask that reads keys, and so depends on their places in the cache."""
        for layer in self.layers:
            mask = getattr(layer.attention.attention, "mask", None)  # type: ignore[union-attr]
            if mask is not None and mask.reads_keys:
                return cast(Mask, mask)
        return None

    @property
    def _rotary_of_length(self) -> Rotary | None:
        """A rotation whose frequencies depend on the length of the text."""
        for layer in self.layers:
            rotate = layer.attention.rotate  # type: ignore[union-attr]
            if isinstance(rotate, Rotary) and rotate.depends_on_length:
                return rotate
        return None

    @property
    def _left(self) -> int | None:
        """The number of keys before its own that a step attends to; None: all."""
        if not self.memory:
            return None
        return self.memory - 1 if self.same_length else self.memory
