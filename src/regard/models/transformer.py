"""Transformer: the encoder-decoder of Vaswani et al., with the attention of its heads as an argument."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.kv_cache import KVCache
from regard.attn.multihead import MultiHead
from regard.attn.native_heads import can_step, has_plain_calls
from regard.attn.terms.mask import BooleanMask
from regard.attn.terms.sequence_masks import Causal, Lengths
from regard.common import checks
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.dropout import Dropout
from regard.layers.head_attention import check_cross_attention, cross_parts
from regard.layers.lengths import length_groups
from regard.layers.native_decoder import encode_position, native_encode, native_step, stack_caches
from regard.layers.position_choices import PositionChoice
from regard.layers.rnn.decoder_base import DecoderOutput
from regard.layers.transformer import Activation, DecoderLayer, EncoderLayer
from regard.models.encoder_decoder import EncoderDecoder, embeddings

NORMS = ("pre", "post")


@dataclass(frozen=True, eq=False)
class TransformerState:
    """The state of n hypotheses for each of b sentences.

    The keys of all hypotheses of a sentence stand side by side in one cache, and `paths` are the columns of those in a
    hypothesis's own past: selecting hypotheses copies a few numbers, never keys.
    """

    lengths: Tensor  # "b"
    sources: tuple[KVCache, ...]  # one per layer, "b h s d"
    pasts: tuple[KVCache | None, ...] | KVCache  # one per layer, "b h m d", or one for all, "b l h m d"
    counts: tuple[int, ...]  # hypotheses at each step: the keys of a step stand side by side
    paths: Tensor | None  # "b n t", the column of each step; None with one hypothesis: all
    count: int  # n

    def reorder(self, index: Tensor) -> "TransformerState":  # "b n2"
        count, paths = index.shape[1], self.paths
        if paths is not None:
            paths = paths.gather(1, index.unsqueeze(-1).expand(-1, -1, paths.shape[-1]))
        elif count > 1:
            paths = torch.arange(len(self.counts), device=index.device).expand(*index.shape, -1)
        return replace(self, paths=paths, count=count)

    def append(self, tokens: Tensor) -> "TransformerState":  # "b n"
        """The same with the counts and paths of the next tokens, but not yet with their keys."""
        counts, paths = (*self.counts, tokens.shape[1]), _longer_paths(self, tokens)
        return TransformerState(self.lengths, self.sources, self.pasts, counts, paths, self.count)

    def positions_and_mask(self, count: int) -> tuple[tuple[Tensor, Tensor], BooleanMask | None]:  # "n", "m", "b n m"
        """The positions of the last `count` keys, as queries, and of all keys; and the keys in each one's own past."""
        device = self.lengths.device
        times = torch.arange(len(self.counts), device=device).repeat_interleave(
            torch.tensor(self.counts, device=device)
        )
        mask = None
        if self.paths is not None:
            allowed = torch.zeros(len(self.lengths), count, len(times), dtype=torch.bool, device=device)
            mask = BooleanMask(allowed.scatter_(-1, self.paths, True))
        return (times[len(times) - count :], times), mask

    def select_sentences(self, index: Tensor) -> "TransformerState":  # "b2"
        pasts = self.pasts
        return replace(
            self,
            lengths=self.lengths[index],
            sources=tuple(memory.reorder(index) for memory in self.sources),
            pasts=pasts.reorder(index)
            if isinstance(pasts, KVCache)
            else tuple(None if memory is None else memory.reorder(index) for memory in pasts),
            paths=None if self.paths is None else self.paths[index],
        )


class Transformer(EncoderDecoder):
    """Encoder and decoder of self-attention, attention to the source, and feed-forward networks  (Vaswani et al. 2017).

    `norm` stands before each sublayer ("pre", which trains robustly) or after it ("post", as in the paper).
    `positions`: "sinusoidal", "half-wave" and "learned" are added to the embeddings; "alibi", "t5", "shaw" and
    "transformer-xl" to the scores of self-attention, whose queries and keys "rotary" rotates; "none". Learned and
    half-wave ones have room for `longest` tokens. `attention` is a name of MECHANISMS for all heads, or a list with one
    per head. `feed` is twice the width unless given. With `source_size` None the source is vectors of `width`, no
    tokens. `decoder_layers` differs from `layers` where given; embeddings are multiplied by `scale`, √width unless
    given. The alignment is the mean over the heads of the second to last layer (Garg et al. 2019).
    """

    def __init__(
        self,
        source_size: int | None,
        target_size: int,
        *,
        width: int = 256,
        layers: int = 3,
        heads: int = 4,
        feed: int | None = None,
        norm: str = "pre",
        positions: str = "sinusoidal",
        longest: int = 512,
        attention: str | Sequence[str] | None = "scaled-dot",
        activation: Activation = torch.relu_,
        decoder_layers: int | None = None,
        scale: float | None = None,
        dropout: float = 0.2,
        tied: str = "target",
        padding: int = 0,
    ) -> None:
        super().__init__()
        checks.known("norm", norm, NORMS)
        feed = 2 * width if feed is None else feed
        decoder_layers = layers if decoder_layers is None else decoder_layers
        tokens = target_size if source_size is None else source_size
        checks.positive_ints("Transformer", source_size=tokens, target_size=target_size, width=width, layers=layers)
        checks.positive_ints("Transformer", decoder_layers=decoder_layers)
        checks.positive_ints("Transformer", heads=heads, feed=feed, longest=longest)
        check_cross_attention(attention)
        choices = [PositionChoice(positions, width, heads, longest, causal, "Transformer") for causal in (False, True)]
        source, target, output = embeddings(tokens, target_size, width, tied, padding)
        # vectors are read as they are
        self.source: nn.Embedding = nn.Identity() if source_size is None else source  # type: ignore[assignment]
        self.target, self.output = target, output
        self.width = width
        self.scale = math.sqrt(width) if scale is None else scale
        self.positions = choices[0]
        self.longest = self.positions.bound
        self.source_place, self.target_place = (choice.added() or nn.Identity() for choice in choices)
        self.encoder = nn.ModuleList(
            EncoderLayer(
                width,
                feed,
                choices[0].multi_head(attention, n),
                residual=norm,
                dropout=dropout,
                activation=activation,
            )
            for n in range(1, layers + 1)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(
                width,
                feed,
                choices[1].multi_head(attention, n),  # type: ignore[arg-type]  # Latent is refused above
                MultiHead(width, heads, **cross_parts(attention, width, heads, n)),
                norm_first=norm == "pre",
                dropout=dropout,
                activation=activation,
            )
            for n in range(1, decoder_layers + 1)
        )
        # without a norm after the last sublayer, the output would be a sum that grows with depth
        self.source_norm, self.target_norm = (nn.LayerNorm(width) if norm == "pre" else nn.Identity() for _ in range(2))
        self.dropout = Dropout(dropout)

    def encode(self, source: Tensor, lengths: Tensor) -> Tensor:  # "b s" or "b s d", "b" -> "b s d"
        self.positions.check_length(source.shape[1], "source")
        if not self.training and can_step(source) and has_plain_calls(self.encoder):
            groups = length_groups(lengths, source.shape[1])
            if len(groups) > 1:
                return self._encode_groups(source, lengths, groups)
        return self._encode(source, lengths)

    def _encode(self, source: Tensor, lengths: Tensor) -> Tensor:
        x = self.dropout(self.source_place(self.scale * self.source(source)))
        encoded = None if self.training else native_encode(self.encoder, self.source_norm, x, lengths)
        if encoded is not None:
            return encoded
        mask = Lengths(lengths)
        for layer in self.encoder:
            x = layer(x, mask).out
        return self.source_norm(x)

    def _encode_groups(self, source: Tensor, lengths: Tensor, groups: list[Tensor]) -> Tensor:
        """The same for groups of sentences of similar length, so that less padding is computed; padding is zero."""
        encoded = None
        for index in groups:
            counts = lengths[index]
            x = self._encode(source[index, : max(int(counts.max()), 1)], counts)
            if encoded is None:
                encoded = x.new_zeros(*source.shape[:2], x.shape[-1])
            encoded[index, : x.shape[1]] = x
        assert encoded is not None
        return encoded

    def teacher_force(self, source: Tensor, lengths: Tensor, target: Tensor, need: Need = NOTHING) -> DecoderOutput:
        self.positions.check_length(target.shape[1], "target")
        encoded, source_mask = self.encode(source, lengths), Lengths(lengths)
        x = self.dropout(self.target_place(self.scale * self.target(target)))
        mask, weights = Causal(), None
        positions = tuple(torch.arange(n, device=x.device) for n in (target.shape[1], source.shape[1]))
        for n, layer in enumerate(self.decoder):
            layer_need = Need(weights=need.weights and n == self._alignment_layer)
            layer_output = layer(
                x, encoded, mask=mask, source_mask=source_mask, source_positions=positions, need=layer_need
            )
            x = layer_output.out
            weights = layer_output.weights if layer_need.weights else weights
        return DecoderOutput(self.target_norm(x), None if weights is None else weights.mean(1))

    @property
    def _alignment_layer(self) -> int:
        """The layer whose attention to the source is the alignment."""
        return max(len(self.decoder) - 2, 0)

    def init_state(self, source: Tensor, lengths: Tensor, hypotheses: int = 1) -> TransformerState:
        encoded = self.encode(source, lengths)
        sources = tuple(layer.cross_attention.project_kv(encoded) for layer in self.decoder)  # type: ignore[union-attr, operator]
        return TransformerState(lengths, sources, (None,) * len(sources), (), None, 1)

    def step(self, tokens: Tensor, state: TransformerState, weights: bool = False) -> Step:  # "b n" -> "b n v"
        time = len(state.counts)
        self.positions.check_length(time + 1, "target")
        state = state.append(tokens)
        x = self.scale * self.target(tokens)
        if not isinstance(self.target_place, nn.Identity):
            x = encode_position(x, self.target_place, time)
        stepped = None if weights else self._native_step(x, state)
        return self._layer_by_layer(x, state, weights) if stepped is None else stepped

    def _native_step(self, x: Tensor, state: TransformerState) -> Step | None:
        """A step of all layers in one kernel; None if it cannot run."""
        pasts = state.pasts
        past = pasts if isinstance(pasts, KVCache) else stack_caches(pasts)
        stepped = native_step(self.decoder, self.target_norm, x, past, state.sources, state.paths, state.lengths)
        if stepped is None:
            return None
        out, pasts = stepped
        state = TransformerState(state.lengths, state.sources, pasts, state.counts, state.paths, state.count)
        return Step(LazyLogits.of(self.output, out), state)

    def _layer_by_layer(self, x: Tensor, state: TransformerState, weights: bool) -> Step:
        """A step of which `state` already has the counts and paths, but not the keys."""
        positions, mask = state.positions_and_mask(x.shape[1])
        kept = state.pasts
        if isinstance(kept, KVCache):
            kept = tuple(KVCache(kept.keys[:, n], kept.values[:, n]) for n in range(len(self.decoder)))
        source_positions = torch.arange(len(state.sources[0]), device=x.device)
        pasts, alignment = [], None
        for n, (layer, source, past) in enumerate(zip(self.decoder, state.sources, kept, strict=True)):
            layer_need = Need(weights=weights and n == self._alignment_layer)
            layer_output = layer(
                x,
                source,
                mask=mask,
                source_mask=Lengths(state.lengths),
                positions=positions,
                source_positions=(positions[0], source_positions),
                cache=past,
                use_cache=True,
                need=layer_need,
            )
            x = layer_output.out
            pasts.append(layer_output.cache)
            alignment = layer_output.weights.mean(1) if layer_need.weights else alignment
        next_state = replace(state, pasts=tuple(pasts))
        return Step(LazyLogits.of(self.output, self.target_norm(x)), next_state, alignment)


def _longer_paths(state: TransformerState, tokens: Tensor) -> Tensor | None:  # "b n" -> "b n t"
    """The paths with the columns of the next tokens; None with one hypothesis that all keys belong to."""
    (b, count), first = tokens.shape, sum(state.counts)
    # if several hypotheses were reduced to one, the keys of the others are still in the cache
    if count == 1 and state.paths is None:
        return None
    columns = torch.arange(first, first + count, device=tokens.device).expand(b, -1).unsqueeze(-1)
    return columns if state.paths is None else torch.cat([state.paths, columns], dim=-1)
