"""RowReader: a picture read as a sequence of rows by the recurrent gated attention cell."""

import torch
from torch import Tensor, nn

from regard.attn import checks
from regard.gates.gated_cell import CellState, GatedCell


class RowReader(nn.Module):
    """logits = W norm(c, y) + b, of the state (c, y) after the last row; x_rj = E patch_rj + row_r + column_j.

    Every `stride` pixels there is a row of patches, and every `stride` pixels in it a patch; a patch is 2·`stride` − 1
    pixels wide, at least 3, so that neighbours overlap. A step of the GatedCell looks over the patches of one row: the
    code of the row lets a head's gate open at some rows and stay shut at others.
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
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        height, wide = size
        stride = max(round(min(size) / 8), 1) if stride is None else stride
        checks.sizes("RowReader", channels=channels, height=height, wide=wide, classes=classes, dim=dim, stride=stride)
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
        # a patch of pixels with a spread of one becomes numbers with that spread
        nn.init.normal_(self.embed.weight, std=(channels * patch**2) ** -0.5)

    def rows(self, x: Tensor) -> Tensor:  # "b c h w" -> "b r j d"
        """What is read: rows of embedded patches."""
        if x.ndim != 4 or x.shape[1:] != (self.embed.in_channels, *self.size):
            raise ValueError(
                f"x must be (images, {self.embed.in_channels} channels, {self.size[0]}, {self.size[1]}), "
                f"got {checks.shape(x)}; the places of a picture are learned, so its size is fixed"
            )
        return self.embed(x).permute(0, 2, 3, 1) + self.row + self.column

    def read(self, rows: Tensor, state: CellState | None = None) -> tuple[Tensor, CellState]:  # "b r j d" -> "b k"
        """What is said after some rows of `rows(x)`, and the state: with it the reading goes on where it ended."""
        _, state = self.cell.read(rows, state)
        return self.head(self.dropout(self.norm(torch.cat([state.memory.flatten(1), state.out], 1)))), state

    def forward(self, x: Tensor) -> Tensor:  # "b c h w" -> "b k"
        return self.read(self.rows(x))[0]
