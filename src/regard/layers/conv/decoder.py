"""ConvolutionalDecoder: gated convolutions over the target, with attention to a source in every layer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attn import stepwise
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.catalogue import MECHANISMS, Factory
from regard.attn.kv_cache import KVCache
from regard.attn.terms.position import LearnedPositions, Sinusoidal
from regard.common import checks
from regard.layers.conv.gated_convolution import HALF, GatedConvolution, WeightNormLinear
from regard.layers.rnn.decoder_base import DecoderOutput
from regard.layers.rnn.stepwise_attention import IncompatibleAttention, StepwiseAttention, map_tensors


class ConvSource(NamedTuple):
    """An encoded source: the keys and the values of the attention of all layers."""

    keys: Tensor  # "b s d"
    values: Tensor  # "b s d"
    lengths: Tensor  # "b"


class LayerMatrices(NamedTuple):
    """The normalised matrices of a layer, computed once for all steps."""

    convolution: Tensor
    query: Tensor
    context: Tensor


@dataclass(frozen=True, eq=False)
class ConvState:
    """The state of n hypotheses for each of b sentences.

    A layer needs the last k − 1 inputs of its convolution. The source is stored once per sentence.
    """

    lengths: Tensor  # "b"
    memories: tuple[KVCache, ...]  # one per layer, "b s …", the keys and values of the source
    windows: tuple[Tensor, ...]  # one per layer, "b n (k-1)·c"
    attention_states: tuple[Any, ...]  # one per layer: the step number, or tensors "b n …"
    matrices: tuple[LayerMatrices, ...]
    time: int

    def reorder(self, index: Tensor) -> "ConvState":  # "b n2"
        sentences = torch.arange(len(index), device=index.device).unsqueeze(-1)
        parts = self.windows, self.attention_states
        windows, states = map_tensors(parts, lambda part: part[sentences, index])
        return replace(self, windows=windows, attention_states=states)

    def select_sentences(self, index: Tensor) -> "ConvState":  # "b2"
        windows, states = map_tensors((self.windows, self.attention_states), lambda part: part[index])
        return replace(
            self,
            lengths=self.lengths[index],
            memories=tuple(memory.reorder(index) for memory in self.memories),
            windows=windows,
            attention_states=states,
        )


class ConvDecoderLayer(StepwiseAttention):
    """h = glu(conv(x)); d = √½ (W_d h + b + y); c = √m attend(d, z, z + e); out = √½ (√½ (h + W_c c + b) + x).

    (Gehring et al. 2017, 3.3 and 3.4.) y is the embedding of the last token, m the number of positions of the source:
    uniform weights would divide the variance of the values by m. An attention that reads one position has no √m.
    """

    def __init__(self, width: int, hidden: int, kernel: int, *, attention: Factory, dropout: float) -> None:
        super().__init__()
        context_dim = self._build_attention(attention, width, width)
        self.convolution = GatedConvolution(hidden, kernel, dropout=dropout)
        self.query = WeightNormLinear(hidden, width, std=hidden**-0.5)
        self.context = WeightNormLinear(context_dim, hidden, std=context_dim**-0.5)
        self.reads_keys = _reads_keys(self.attention, width)
        self.reads_one = bool(getattr(getattr(self.attention, "read", None), "hard", False))

    def forward(self, x: Tensor, y: Tensor, source: ConvSource, need: Need) -> tuple[Tensor, Attended]:  # "b t c"
        h = self.convolution(x, self.convolution.kernel - 1, 0)
        d = (self.query(h) + y) * HALF
        attended = self._attend_all(d, *self._keys_and_values(source), source.lengths, self._need(need.weights))
        return self._combine(x, h, attended.out, source.lengths), attended

    def project(self, source: ConvSource) -> KVCache:
        """The keys and values that all steps attend to."""
        return stepwise.project_kv(self.attention, *self._keys_and_values(source))

    def step(
        self, x: Tensor, y: Tensor, state: ConvState, layer: int, weights: bool
    ) -> tuple[Tensor, Tensor, Attended, Any]:  # "b n c"
        """The output, the next window, the attention and its next state."""
        memory, window, matrices = state.memories[layer], state.windows[layer], state.matrices[layer]
        window = torch.cat([window, x], dim=-1)
        h = self.convolution.of_window(window, matrices.convolution)
        d = (self.query(h, matrices.query) + y) * HALF
        attended, attention_state = self._attend_step(
            d, memory, state.lengths, state.attention_states[layer], Need(weights=weights)
        )
        out = self._combine(x, h, attended.out, state.lengths, matrices.context)
        return out, window[..., x.shape[-1] :], attended, attention_state

    def _combine(self, x: Tensor, h: Tensor, context: Tensor, lengths: Tensor, matrix: Tensor | None = None) -> Tensor:
        if not self.reads_one:
            context = context * lengths.to(context.dtype).sqrt()[:, None, None]
        return ((h + self.context(context, matrix)) * HALF + x) * HALF

    def _keys_and_values(self, source: ConvSource) -> tuple[Tensor, Tensor | None]:
        return (source.values, None) if self.reads_keys else (source.keys, source.values)


class ConvolutionalDecoder(nn.Module):
    """Layers of width `hidden` between embeddings and outputs of width `width`  (Gehring et al. 2017)."""

    def __init__(
        self, width: int, hidden: int, layers: int, kernel: int, *, attention: str | Factory, dropout: float
    ) -> None:
        super().__init__()
        checks.positive_ints("ConvolutionalDecoder", width=width, hidden=hidden, layers=layers, kernel=kernel)
        if isinstance(attention, str):
            checks.known("attention", attention, MECHANISMS)
        factory = MECHANISMS[attention] if isinstance(attention, str) else attention
        self.first = WeightNormLinear(width, hidden, std=math.sqrt((1 - dropout) / width))
        try:
            self.layers = nn.ModuleList(
                ConvDecoderLayer(width, hidden, kernel, attention=factory, dropout=dropout) for _ in range(layers)
            )
        except IncompatibleAttention as error:
            raise ValueError(
                f"attention={attention!r} does not fit a convolutional decoder: {error}; "
                "try attention='dot', 'general' or 'additive'"
            ) from error
        self.last = WeightNormLinear(hidden, width, std=hidden**-0.5)

    def teacher_force(self, y: Tensor, source: ConvSource, need: Need = NOTHING) -> DecoderOutput:  # "b t d" -> "b t d"
        """Runs all steps on a known target; the weights are the mean over the layers."""
        x, attentions = self.first(y), []
        for layer in self.layers:
            x, attended = layer(x, y, source, need)
            attentions.append(attended)
        return DecoderOutput(
            self.last(x),
            _mean([attended.weights for attended in attentions]) if need.weights else None,
            _sum([attended.log_prob for attended in attentions]),
            _sum([attended.entropy for attended in attentions]),
        )

    def init_state(self, source: ConvSource) -> ConvState:
        """The state before the first step, with one hypothesis per sentence."""
        memories = tuple(layer.project(source) for layer in self._layers)
        return ConvState(
            source.lengths,
            memories,
            tuple(
                source.keys.new_zeros(len(source.keys), 1, (layer.convolution.kernel - 1) * layer.convolution.width)
                for layer in self._layers
            ),
            tuple(layer._initial_attention_state(memory) for layer, memory in zip(self._layers, memories, strict=True)),
            tuple(
                LayerMatrices(layer.convolution.linear.weight, layer.query.weight, layer.context.weight)
                for layer in self._layers
            ),
            0,
        )

    def step(self, y: Tensor, state: ConvState, weights: bool = False) -> tuple[Tensor, ConvState, Tensor | None]:
        """One step of every hypothesis: "b n d" -> "b n d", and the mean of the weights over the layers."""
        x, windows, maps, attention_states = self.first(y), [], [], []
        for n, layer in enumerate(self._layers):
            x, window, attended, attention_state = layer.step(x, y, state, n, weights)
            windows.append(window)
            maps.append(attended.weights)
            attention_states.append(attention_state)
        state = replace(state, windows=tuple(windows), attention_states=tuple(attention_states), time=state.time + 1)
        return self.last(x), state, _mean(maps) if weights else None

    @property
    def _layers(self) -> Sequence[ConvDecoderLayer]:
        return self.layers  # type: ignore[return-value]


def add_positions(x: Tensor, places: LearnedPositions | Sinusoidal, start: int = 0) -> Tensor:  # "*b n d"
    """Embeddings with their positions; sines are made as small as embeddings."""
    scale = math.sqrt(x.shape[-1]) if isinstance(places, Sinusoidal) else 1.0
    return places(x * scale, start=start) / scale


def _mean(parts: Sequence[Tensor | None]) -> Tensor | None:
    total = _sum(parts)
    return None if total is None else total / len(parts)


def _sum(parts: Sequence[Tensor | None]) -> Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.stack(present).sum(0) if present else None


@torch.no_grad()
def _reads_keys(attention: nn.Module, dim: int) -> bool:
    """Whether an attention takes no values, because it reads the keys themselves."""
    x = next(attention.parameters(), torch.empty(0)).new_zeros(1, 1, dim)
    try:
        attention(x, x, x)
    except ValueError:
        return True
    return False
