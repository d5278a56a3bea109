"""Gates whose weights are the outputs of gated heads, of their cell, and of the attention module.

These outputs lie in (0, 1) and are as wide as the map has channels: they are its weights without a further layer.
"""

from typing import Literal

from torch import Tensor

from regard.attn import observer
from regard.attn.call import NOTHING, Attended, Need
from regard.attn.terms.normalizer import Normalizer
from regard.common import checks
from regard.gates.base import Gate, flat, head_width, scale_map
from regard.gates.controlled_attention import ControlledAttention
from regard.gates.gated_cell import GatedCell, GatedHeads
from regard.gates.gated_units import GatedUnits
from regard.kernels import feature_maps


def _by_row(x: Tensor, w: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:  # "b c *s", "b t c"
    """w · x with weights per step of the first spatial axis."""
    rows = w.to(x.dtype).transpose(1, 2).reshape(*x.shape[:3], *[1] * (x.ndim - 3))
    return x * rows, rows.expand(x.shape) if need_weights else None


def _rows(x: Tensor) -> Tensor:  # "b c t *s" -> "b t n c"
    """The positions of every step of the first spatial axis: one, if it is the only axis."""
    return (x.flatten(3) if x.ndim > 3 else x.unsqueeze(-1)).permute(0, 2, 3, 1)


class HeadsGate(Gate):
    """w = (a_1, …, a_h), a_h = Σ_j softmax_j(q_h · tanh(W_q H_hj + θ)/√d)_j H_hj: channels by heads over positions.

    H = σ(W x + b). The reads of `GatedHeads`, which lie in (0, 1), are the weights of the channels.
    """

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__(channels)
        self.heads = GatedHeads(channels, heads, head_width("HeadsGate", channels, heads))

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        with observer.unobserved():
            w = self.heads(flat(x))
        return scale_map(x, w.to(checks.accumulate_dtype(x.dtype)), None, need_weights)


class UnitsGate(Gate):
    """w = σ(Σ_i α_i ∘ (softmax(H) + b_r)), H = σ(W z + b), z = mean over positions: channels by heads over units.

    The output of `GatedUnits` with as many units as channels.
    """

    def __init__(self, channels: int, heads: int = 4, *, d: int = 64) -> None:
        super().__init__(channels)
        self.units = GatedUnits(channels, channels, heads, d=d)

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        x, z = feature_maps.mean_pool(x)
        w = self.units(z.to(x.dtype))
        return scale_map(x, w.to(checks.accumulate_dtype(x.dtype)), None, need_weights)


class CellGate(Gate):
    """w_t = σ(c_t + U_t): the output of a GatedCell that reads the map along its first spatial axis, weights of row t.

    A row of an image is a step, and its positions are those that the heads attend to.
    """

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__(channels)
        self.cell = GatedCell(channels, heads, head_width("CellGate", channels, heads))

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        with observer.unobserved():
            outs, _ = self.cell.read(_rows(x))
        return _by_row(x, outs, need_weights)


class ModuleGate(Gate):
    """w_t = σ(c_o + U_t ∘ x_t): the output of a ControlledAttention along the first spatial axis, weights of row t.

    Its input x_t is the mean of row t; the options are those of the module. `pool` returns its attention pool,
    "b K t n_h".
    """

    def __init__(
        self,
        channels: int,
        heads: int = 4,
        *,
        units: int | None = None,
        d: int = 64,
        combine: Literal["sum", "product"] = "sum",
        update: Literal["attended", "input"] = "attended",
        select: Normalizer | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(channels)
        self.module = ControlledAttention(
            channels, heads, units=units, d=d, combine=combine, update=update, select=select, dropout=dropout
        )

    def apply_gate(self, x: Tensor, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        return _by_row(x, self._read(x, NOTHING).out, need_weights)

    def pool(self, x: Tensor) -> Tensor:  # "b c *s" -> "b K t n_h"
        """The weights of all heads over the hidden units, of every row."""
        pool = self._read(x, Need(weights=True)).weights
        assert pool is not None
        return pool

    def _read(self, x: Tensor, need: Need) -> Attended:
        return self.module.read(_rows(x).mean(2), need=need)[0]
