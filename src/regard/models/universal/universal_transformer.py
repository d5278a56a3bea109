"""UniversalTransformer: an encoder and a decoder of one layer each, repeated until each position has halted."""

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.attn.kv_cache import KVCache
from regard.attn.multihead import MultiHead
from regard.attn.terms.position import Sinusoidal
from regard.attn.terms.sequence_masks import Causal, Lengths
from regard.common import checks
from regard.decoding.protocol import LazyLogits, Step
from regard.layers.dropout import Dropout
from regard.layers.head_attention import cross_parts
from regard.layers.lengths import inside_lengths
from regard.layers.position_choices import check_heads
from regard.layers.rnn.decoder_base import DecoderOutput
from regard.layers.transformer import DecoderLayer, EncoderLayer
from regard.models.encoder_decoder import EncoderDecoder, embeddings
from regard.models.transformer import NORMS, TransformerState
from regard.models.universal.halting import Halting, HaltingOutput


class UniversalTransformer(EncoderDecoder):
    """s_n = layer(s_{n−1} + PE(position) + PE(n)), n = 1 … N, with one layer for all n  (Dehghani et al. 2019).

    Encoder and decoder have a layer each, with the sublayers of a Transformer. N is a number per position: each halts
    by itself (`Halting`, Graves 2016), and its output is the mean of its states by their halting probabilities. With
    `halting` "fixed", N is `max_steps` everywhere and the output is the last state. Padding is absent: it halts before
    the first step. `norm` stands after each sublayer ("post", as in the paper) or before it ("pre"); `attention` is a
    name of MECHANISMS for all heads, or a list with one per head. The alignment is the mean over heads and steps.
    """

    def __init__(
        self,
        source_size: int,
        target_size: int,
        *,
        width: int = 256,
        heads: int = 4,
        feed: int | None = None,
        norm: str = "post",
        max_steps: int = 6,
        halting: str = "adaptive",
        epsilon: float = 0.01,
        attention: str | Sequence[str] | None = "scaled-dot",
        dropout: float = 0.2,
        tied: str = "target",
        padding: int = 0,
    ) -> None:
        super().__init__()
        checks.known("norm", norm, NORMS)
        feed = 2 * width if feed is None else feed
        sizes = {"source_size": source_size, "target_size": target_size, "feed": feed, "max_steps": max_steps}
        checks.positive_ints("UniversalTransformer", **sizes)
        check_heads("UniversalTransformer", width, heads)

        def multi_head() -> MultiHead:
            return MultiHead(width, heads, **cross_parts(attention, width, heads))

        self.source, self.target, self.output = embeddings(source_size, target_size, width, tied, padding)
        self.padding, self.scale = padding, math.sqrt(width)
        self.place = Sinusoidal(width)
        self.encoder = EncoderLayer(width, feed, multi_head(), residual=norm, dropout=dropout)
        self.decoder = DecoderLayer(width, feed, multi_head(), multi_head(), norm_first=norm == "pre", dropout=dropout)
        self.source_halting, self.target_halting = (
            Halting(width, max_steps, halting=halting, epsilon=epsilon) for _ in range(2)
        )
        # without a norm after the last sublayer, the output would be a sum that grows with the steps
        self.source_norm, self.target_norm = (nn.LayerNorm(width) if norm == "pre" else nn.Identity() for _ in range(2))
        self.dropout = Dropout(dropout)

    def encode(self, source: Tensor, lengths: Tensor) -> HaltingOutput:  # "b s", "b"
        """The states of the source before the last norm, and the steps of each token."""
        mask, positions = Lengths(lengths), torch.arange(source.shape[1], device=source.device)

        def step(s: Tensor, n: int) -> tuple[Tensor, None]:
            return self.encoder(self._placed(s, positions, n), mask).out, None

        x = self.dropout(self.scale * self.source(source))
        return self.source_halting(x, step, inside_lengths(lengths, source.shape[1]))

    def teacher_force(self, source: Tensor, lengths: Tensor, target: Tensor, need: Need = NOTHING) -> DecoderOutput:
        encoded = self.encode(source, lengths)
        decoded = self._decode(self.source_norm(encoded.out), lengths, target, need)
        ponder = None if self.target_halting.unit is None else encoded.ponder + decoded.ponder
        return DecoderOutput(self.target_norm(decoded.out), decoded.further, ponder=ponder)

    @torch.no_grad()
    def steps(self, source: Tensor, lengths: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:  # "b s", "b t"
        """N of every token of the source and of every input token of the target, 0 for padding."""
        encoded = self.encode(source, lengths)
        return encoded.steps, self._decode(self.source_norm(encoded.out), lengths, target, NOTHING).steps

    def _decode(self, encoded: Tensor, lengths: Tensor, target: Tensor, need: Need) -> HaltingOutput:
        memory, mask, source_mask = self.decoder.cross_attention.project_kv(encoded), Causal(), Lengths(lengths)
        positions = tuple(torch.arange(n, device=target.device) for n in (target.shape[1], encoded.shape[1]))

        def step(s: Tensor, n: int) -> tuple[Tensor, Tensor | None]:
            output = self.decoder(
                self._placed(s, positions[0], n),
                memory,
                mask=mask,
                source_mask=source_mask,
                source_positions=positions,
                need=Need(weights=need.weights),
            )
            return output.out, output.weights.mean(1) if need.weights else None

        x = self.dropout(self.scale * self.target(target))
        return self.target_halting(x, step, target != self.padding)

    def _placed(self, s: Tensor, positions: Tensor, n: int) -> Tensor:  # "b t d", "t"
        """The states with the encodings of their positions and of the step."""
        return self.place(self.place(s, positions), torch.full_like(positions, n))

    def init_state(self, source: Tensor, lengths: Tensor, hypotheses: int = 1) -> TransformerState:
        memory = self.decoder.cross_attention.project_kv(self.source_norm(self.encode(source, lengths).out))
        return TransformerState(lengths, (memory,), (None,) * self.target_halting.max_steps, (), None, 1)

    def step(self, tokens: Tensor, state: TransformerState, weights: bool = False) -> Step:  # "b n" -> "b n v"
        state = state.append(tokens)
        positions, mask = state.positions_and_mask(tokens.shape[1])
        (memory,), caches = state.sources, state.pasts
        assert not isinstance(caches, KVCache)
        source_positions = positions[0], torch.arange(len(memory), device=tokens.device)
        pasts: list[KVCache] = []

        def step(s: Tensor, n: int) -> tuple[Tensor, Tensor | None]:
            output = self.decoder(
                self._placed(s, positions[0], n),
                memory,
                mask=mask,
                source_mask=Lengths(state.lengths),
                positions=positions,
                source_positions=source_positions,
                cache=caches[n],
                use_cache=True,
                need=Need(weights=weights),
            )
            pasts.append(output.cache)
            return output.out, output.weights.mean(1) if weights else None

        decoded = self.target_halting(self.scale * self.target(tokens), step, tokens != self.padding)
        # a later token may take more steps, and reads the states that these keep
        for n in range(len(pasts), len(caches)):
            kept = self.decoder.around_self.enter(self._placed(decoded.last, positions[0], n))
            pasts.append(self.decoder.self_attention.step_cache(kept, caches[n], mask, positions))
        logits = LazyLogits.of(self.output, self.target_norm(decoded.out))
        return Step(logits, replace(state, pasts=tuple(pasts)), decoded.further)
