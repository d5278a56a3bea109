"""RowReader: an image read row by row by the recurrent gated attention cell."""

import torch
from torch import Tensor, nn

from regard.common import checks
from regard.gates.gated_cell import CellState, GatedCell


class RowReader(nn.Module):
    """logits = W norm(c, y) + b, of the state (c, y) after the last row; x_rj = E patch_rj + row_r + column_j.

    There is a row of patches every `stride` pixels, and in it a patch every `stride` pixels; a patch is 2·`stride` − 1
    pixels wide, at least 3, so that neighbours overlap. A step of the GatedCell attends to the patches of one row: the
    row embedding lets a head's gate open at some rows and stay closed at others.
    """

    def __init__(
        self,
        channels: int,
        size: tuple[int, int],
        classes: int,
        *,
        heads: int = 12,
        width: int = 16,
        dim: int = 32,
        stride: int | None = None,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        height, wide = size
        stride = max(round(min(size) / 8), 1) if stride is None else stride
        checks.positive_ints(
            "RowReader", channels=channels, height=height, wide=wide, classes=classes, dim=dim, stride=stride
        )
        if stride > min(size):
            raise ValueError(
                f"stride={stride} skips all of {height} × {wide} pixels; try stride={max(min(size) // 4, 1)}"
            )
        self.size = height, wide
        patch = max(2 * stride - 1, 3)
        self.embed = nn.Conv2d(channels, dim, patch, stride=stride, padding=patch // 2)
        self.row = nn.Parameter(0.5 * torch.randn(-(-height // stride), 1, dim))
        self.column = nn.Parameter(0.5 * torch.randn(-(-wide // stride), dim))
        self.cell = GatedCell(dim, heads, width)
        self.norm = nn.LayerNorm(2 * self.cell.size)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(2 * self.cell.size, classes)
        # keeps the variance of the pixels
        nn.init.normal_(self.embed.weight, std=(channels * patch**2) ** -0.5)

    def rows(self, x: Tensor) -> Tensor:  # "b c h w" -> "b r j d"
        """The rows of embedded patches that the cell reads."""
        if x.ndim != 4 or x.shape[1:] != (self.embed.in_channels, *self.size):
            raise ValueError(
                f"x must be (images, {self.embed.in_channels} channels, {self.size[0]}, {self.size[1]}), "
                f"got {checks.shape(x)}; the positions of an image are learned, so its size is fixed"
            )
        return self.embed(x).permute(0, 2, 3, 1) + self.row + self.column

    def read(self, rows: Tensor, state: CellState | None = None) -> tuple[Tensor, CellState]:  # "b r j d" -> "b k"
        """The logits after some rows of `rows(x)`, and the state, from which reading can continue."""
        _, state = self.cell.read(rows, state)
        return self.head(self.dropout(self.norm(torch.cat([state.memory.flatten(1), state.out], 1)))), state

    def forward(self, x: Tensor) -> Tensor:  # "b c h w" -> "b k"
        return self.read(self.rows(x))[0]
