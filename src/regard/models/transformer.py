"""Transformer: the encoder-decoder that only attends."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.attn import checks
from regard.attn.call import NOTHING, Need
from regard.attn.catalogue import MECHANISMS
from regard.attn.kv_cache import KVCache
from regard.attn.layer import Attention
from regard.attn.multihead import MultiHead
from regard.attn.terms.mask import BooleanMask, Causal, Lengths
from regard.attn.terms.position import Learned, Rotary, Sinusoidal
from regard.attn.terms.read import Sample
from regard.attn.terms.score import Location
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.dropout import Dropout
from regard.layers.rnn.decoder_base import DecoderOutput
from regard.layers.transformer import DecoderLayer, EncoderLayer
from regard.models.encoder_decoder import EncoderDecoder, embeddings

NORMS = ("pre", "post")
POSITIONS = ("sinusoidal", "learned", "rotary")


@dataclass(frozen=True, eq=False)
class TransformerState:
    """Where n hypotheses of each of b sentences stand.

    The keys that the hypotheses of a sentence have made stand side by side in one memory, and `visible` says which of
    them are a hypothesis's own past: picking hypotheses copies a few bits, never keys.
    """

    lengths: Tensor  # "b"
    sources: tuple[KVCache, ...]  # of every layer, "b h s d"
    pasts: tuple[KVCache | None, ...]  # of every layer, "b h m d"
    times: Tensor  # "m", when each key was made
    visible: Tensor | None  # bool "b n m"; None with one hypothesis: all
    count: int  # n

    def reorder(self, index: Tensor) -> "TransformerState":  # "b n2"
        """Slot j of sentence i continues what was slot index[i, j]."""
        count = index.shape[1]
        if self.visible is None:
            visible = None if count == 1 else index.new_ones(*index.shape, len(self.times), dtype=torch.bool)
        else:
            visible = self.visible[torch.arange(len(index), device=index.device).unsqueeze(-1), index]
        return replace(self, visible=visible, count=count)

    def select_sentences(self, index: Tensor) -> "TransformerState":  # "b2"
        """These sentences alone."""
        return replace(
            self,
            lengths=self.lengths[index],
            sources=tuple(memory.reorder(index) for memory in self.sources),
            pasts=tuple(None if memory is None else memory.reorder(index) for memory in self.pasts),
            visible=None if self.visible is None else self.visible[index],
        )


class Transformer(EncoderDecoder):
    """Encoder and decoder of self-attention, attention to the source, and feed-forward nets  (Vaswani et al. 2017).

    `norm` stands before each sublayer ("pre", which trains without care) or behind it ("post", as in the paper).
    `positions`: "sinusoidal" and "learned" are added to the embeddings, "rotary" turns the queries and keys of
    self-attention. `attention` is a name of MECHANISMS for all heads, or a list with one for each; None is the scaled
    dot product. The alignment is the mean over the heads of the last layer but one  (Garg et al. 2019).
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        *,
        width: int = 256,
        layers: int = 3,
        heads: int = 4,
        feed: int | None = None,
        norm: str = "pre",
        positions: str = "sinusoidal",
        longest: int = 512,
        attention: str | Sequence[str] | None = None,
        dropout: float = 0.1,
        tied: str = "target",
        padding: int = 0,
    ) -> None:
        super().__init__()
        checks.known("positions", positions, POSITIONS)
        checks.known("norm", norm, NORMS)
        feed = 4 * width if feed is None else feed
        checks.sizes("Transformer", source_size=source_size, target_size=target_size, width=width, layers=layers)
        checks.sizes("Transformer", heads=heads, feed=feed, longest=longest)
        if width % heads:
            raise ValueError(
                f"width must split evenly over heads, got width={width} and heads={heads}; "
                f"try width={width - width % heads or heads}, or another number of heads"
            )
        self.source, self.target, self.output = embeddings(source_size, target_size, width, tied, padding)
        self.width = width
        self.longest = longest if positions == "learned" else None

        def many(rotate: bool) -> MultiHead:
            turn = Rotary(width // heads) if rotate else None
            return MultiHead(width, heads, attention=_heads(attention, heads, width // heads), rotate=turn)

        turned = positions == "rotary"
        added = {"sinusoidal": lambda: Sinusoidal(width), "learned": lambda: Learned(longest, width)}
        self.source_place = nn.Identity() if turned else added[positions]()
        self.target_place = nn.Identity() if turned else added[positions]()
        first = norm == "pre"
        self.encoder = nn.ModuleList(
            EncoderLayer(width, feed, many(turned), norm_first=first, dropout=dropout) for _ in range(layers)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(width, feed, many(turned), many(False), norm_first=first, dropout=dropout)
            for _ in range(layers)
        )
        # without a norm behind the last sublayer, what reads it would see sums that grow with depth
        self.source_norm, self.target_norm = (nn.LayerNorm(width) if norm == "pre" else nn.Identity() for _ in range(2))
        self.dropout = Dropout(dropout)

    def encode(self, source: Tensor, lengths: Tensor) -> Tensor:  # "b s", "b" -> "b s d"
        self._room("source", source.shape[1])
        x = self.dropout(self.source_place(math.sqrt(self.width) * self.source(source)))
        mask = Lengths(lengths)
        for layer in self.encoder:
            x = layer(x, mask).out
        return self.source_norm(x)

    def teacher_force(self, source: Tensor, lengths: Tensor, target: Tensor, need: Need = NOTHING) -> DecoderOutput:
        self._room("target", target.shape[1])
        encoded, source_mask = self.encode(source, lengths), Lengths(lengths)
        x = self.dropout(self.target_place(math.sqrt(self.width) * self.target(target)))
        mask, weights = Causal(), None
        places = tuple(torch.arange(n, device=x.device) for n in (target.shape[1], source.shape[1]))
        for n, layer in enumerate(self.decoder):
            wanted = Need(weights=need.weights and n == self._aligned)
            got = layer(x, encoded, mask=mask, source_mask=source_mask, source_positions=places, need=wanted)
            x = got.out
            weights = got.weights if wanted.weights else weights
        return DecoderOutput(self.target_norm(x), None if weights is None else weights.mean(1))

    def _room(self, side: str, tokens: int) -> None:
        if self.longest is not None and tokens > self.longest:
            raise ValueError(
                f"the {side} has {tokens} tokens, but positions='learned' knows longest={self.longest} places; "
                f"shorten it, or build the model with longest={tokens}, or with positions='sinusoidal'"
            )

    @property
    def _aligned(self) -> int:
        """The layer whose attention to the source is the alignment."""
        return max(len(self.decoder) - 2, 0)

    def init_state(self, source: Tensor, lengths: Tensor, hypotheses: int = 1) -> TransformerState:
        encoded = self.encode(source, lengths)
        sources = tuple(layer.cross_attention.project_kv(encoded) for layer in self.decoder)  # type: ignore[union-attr, operator]
        return TransformerState(lengths, sources, (None,) * len(sources), lengths.new_zeros(0), None, 1)

    def step(self, tokens: Tensor, state: TransformerState, weights: bool = False) -> Step:  # "b n" -> "b n v"
        count = tokens.shape[1]
        now = int(state.times[-1]) + 1 if len(state.times) else 0
        self._room("target", now + 1)
        here = torch.full((count,), now, device=tokens.device)
        times = torch.cat([state.times, here])
        visible = None
        # of several hypotheses that became one, the keys of the others are still there
        if count > 1 or state.visible is not None:
            own = torch.eye(count, dtype=torch.bool, device=tokens.device).expand(len(tokens), -1, -1)
            visible = own if state.visible is None else torch.cat([state.visible, own], dim=-1)
        x = math.sqrt(self.width) * self.target(tokens)
        if not isinstance(self.target_place, nn.Identity):
            x = self.target_place(x, here)
        places = torch.arange(len(state.sources[0]), device=tokens.device)
        pasts, looked = [], None
        for n, (layer, source, past) in enumerate(zip(self.decoder, state.sources, state.pasts, strict=True)):
            wanted = Need(weights=weights and n == self._aligned)
            got = layer(
                x,
                source,
                mask=None if visible is None else BooleanMask(visible),
                source_mask=Lengths(state.lengths),
                positions=(here, times),
                source_positions=(here, places),
                cache=past,
                use_cache=True,
                need=wanted,
            )
            x = got.out
            pasts.append(got.cache)
            looked = got.weights.mean(1) if wanted.weights else looked
        after = replace(state, pasts=tuple(pasts), times=times, visible=visible)
        return Step(LazyLogits.of(self.output, self.target_norm(x)), after, looked)


def _heads(attention: str | Sequence[str] | None, heads: int, dim: int) -> Attention | list[Attention] | None:
    """The attention of all heads, or one for each."""
    if attention is None:
        return None
    made = []
    for name in [attention] if isinstance(attention, str) else attention:
        checks.known("attention", name, MECHANISMS)
        one = MECHANISMS[name](dim, dim)
        if reason := _unfit(one):
            fits = [known for known, make in MECHANISMS.items() if not _unfit(make(dim, dim))]
            raise ValueError(
                f"attention={name!r} cannot be that of a Transformer's heads, as {reason}; try one of {', '.join(fits)}"
            )
        assert isinstance(one, Attention)
        made.append(one)
    return made[0] if isinstance(attention, str) else made


def _unfit(made: nn.Module) -> str | None:
    """Why this cannot be the attention of a head."""
    if not isinstance(made, Attention):
        return f"it is a {type(made).__name__}, more than one equation"
    if isinstance(made.read, Sample):
        return "it learns by REINFORCE, to which the draws of so many heads are noise"
    if isinstance(made.score, Location):
        return "it knows keys by their number in a memory, where the hypotheses of a beam stand side by side"
    return None
