"""Device functions that the attention kernels share: which pairs of a tile may attend, and rows of a matrix.

Widths are powers of two: a mask of columns would cost registers that the tiles need.
"""

import triton
import triton.language as tl


@triton.jit
def allowed_tile(ALLOWED, i, j, q_len, count, mask_q, mask_k, HAS_MASK: tl.constexpr):
    """Whether query i may attend to key j: inside the matrix, before the sample's last allowed key, and by its mask."""
    allowed = (i[:, None] < q_len) & (j[None, :] < count)
    if HAS_MASK:
        rows = ALLOWED + i[:, None].to(tl.int64) * mask_q
        allowed = allowed & (tl.load(rows + j[None, :] * mask_k, mask=allowed, other=0) != 0)
    return allowed


@triton.jit
def load_rows(X, rows, inside, WIDTH: tl.constexpr):
    """Rows of a matrix of WIDTH columns; zeros where a row is not `inside`."""
    return tl.load(X + rows[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], mask=inside[:, None], other=0.0)


@triton.jit
def store_rows(X, rows, inside, values, WIDTH: tl.constexpr):
    tl.store(X + rows[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :], values, mask=inside[:, None])
