"""softmax_j(sum_d w_d tanh(a_id + b_jd)) v_j on a GPU, and its gradients, in linear memory.

    tanh(x) = 1 - 2r,   r = 1 / (1 + e^{2x}),   d tanh / dx = 4 (r - r^2)

Where the sample is `in_range`, e^{2(a + b)} is e^{2a} e^{2b}: a reciprocal per element and no exponential. The host
decides nothing by values: each kernel reads the flag.

The forward holds a tile of scores and runs over the hidden width. The backward kernels hold a tile of rows, queries or
keys, with its whole hidden width, and run over the other side one by one: r is computed once for the score and for
both gradients, and a program writes to no memory that it, or another one, has written before.
"""

import triton
import triton.language as tl

from regard.kernels.triton.tiles import allowed_tile, load_rows, store_rows


@triton.jit
def _scores(
    A, B, W, i, j, has_query, has_key, in_range, q_len, k_len, hidden, TILE_Q: tl.constexpr, TILE_K: tl.constexpr
):
    """sum_d w_d tanh(a_id + b_jd) of a tile; A (hidden, q), B (hidden, k)."""
    reciprocals = tl.zeros((TILE_Q, TILE_K), tl.float32)
    total = 0.0
    if in_range != 0:
        for d in range(hidden):
            x = tl.exp(2.0 * tl.load(A + i, mask=has_query, other=0.0))
            y = tl.exp(2.0 * tl.load(B + j, mask=has_key, other=0.0))
            w = tl.load(W + d)
            total += w
            reciprocals += w * (1.0 / (1.0 + x[:, None] * y[None, :]))
            A += q_len
            B += k_len
    else:
        for d in range(hidden):
            a = tl.load(A + i, mask=has_query, other=0.0)
            b = tl.load(B + j, mask=has_key, other=0.0)
            w = tl.load(W + d)
            total += w
            reciprocals += w * (1.0 / (1.0 + tl.exp(2.0 * (a[:, None] + b[None, :]))))
            A += q_len
            B += k_len
    return total - 2.0 * reciprocals


@triton.jit
def forward(
    A, B, W, V, ALLOWED, COUNTS, IN_RANGE, OUT, LSE, q_len, k_len, hidden, mask_n, mask_q, mask_k,
    VALUE: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr, HAS_MASK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The output and the log sum of exponentials of a tile of queries; the softmax is rescaled from tile to tile."""
    tiles = tl.cdiv(q_len, TILE_Q)
    n = (tl.program_id(0) // tiles).to(tl.int64)
    i = (tl.program_id(0) % tiles) * TILE_Q + tl.arange(0, TILE_Q)
    has_query = i < q_len
    count, in_range = tl.load(COUNTS + n), tl.load(IN_RANGE + n)
    A += n * hidden * q_len
    B += n * hidden * k_len
    V += n * k_len * VALUE
    ALLOWED += n * mask_n
    top = tl.full((TILE_Q,), -float("inf"), tl.float32)
    total = tl.zeros((TILE_Q,), tl.float32)
    mixed = tl.zeros((TILE_Q, VALUE), tl.float32)
    for start in range(0, count, TILE_K):
        j = start + tl.arange(0, TILE_K)
        allowed = allowed_tile(ALLOWED, i, j, q_len, count, mask_q, mask_k, HAS_MASK)
        has_key = j < count
        s = _scores(A, B, W, i, j, has_query, has_key, in_range, q_len, k_len, hidden, TILE_Q, TILE_K)
        s = tl.where(allowed, s, -float("inf"))
        new_top = tl.maximum(top, tl.max(s, 1))
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
        p = tl.exp(s - shift[:, None])
        factor = tl.exp(top - shift)
        total = total * factor + tl.sum(p, 1)
        v = load_rows(V, j, has_key, VALUE)
        mixed = mixed * factor[:, None] + tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
        top = new_top
    is_empty = total == 0.0
    divisor = tl.where(is_empty, 1.0, total)
    store_rows(OUT + n * q_len * VALUE, i, has_query, mixed / divisor[:, None], VALUE)
    lse = tl.where(is_empty, -float("inf"), top + tl.log(divisor))
    tl.store(LSE + n * q_len + i, lse, mask=has_query)


@triton.jit
def backward_queries(
    A, B, W, V, ALLOWED, COUNTS, IN_RANGE, LSE, DELTA, GRAD, GRAD_A, GRAD_W, q_len, k_len,
    mask_n, mask_q, mask_k,
    HIDDEN: tl.constexpr, VALUE: tl.constexpr, TILE: tl.constexpr, HAS_MASK: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of queries, and its share of that of w; A (q, HIDDEN), B (k, HIDDEN)."""
    tiles = tl.cdiv(q_len, TILE)
    n = (tl.program_id(0) // tiles).to(tl.int64)
    i = (tl.program_id(0) % tiles) * TILE + tl.arange(0, TILE)
    d, c = tl.arange(0, HIDDEN), tl.arange(0, VALUE)
    count, in_range = tl.load(COUNTS + n), tl.load(IN_RANGE + n)
    A += n * q_len * HIDDEN
    B += n * k_len * HIDDEN
    V += n * k_len * VALUE
    ALLOWED += n * mask_n
    has_query = i < q_len
    lse = tl.load(LSE + n * q_len + i, mask=has_query, other=0.0)
    delta = tl.load(DELTA + n * q_len + i, mask=has_query, other=0.0)
    grad = load_rows(GRAD + n * q_len * VALUE, i, has_query, VALUE).to(tl.float32)
    w = tl.load(W + d)
    w_total = tl.sum(w, 0)
    x = tl.exp(2.0 * load_rows(A, i, has_query, HIDDEN))
    slopes = tl.zeros((TILE, HIDDEN), tl.float32)
    shares = tl.zeros((TILE, HIDDEN), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    for j in range(count):
        allowed = has_query
        if HAS_MASK:
            places = i.to(tl.int64) * mask_q + tl.cast(j, tl.int64) * mask_k
            allowed = has_query & (tl.load(ALLOWED + places, mask=has_query, other=0) != 0)
        b = tl.load(B + j * HIDDEN + d)
        if in_range != 0:
            e = x * tl.exp(2.0 * b)[None, :]
        else:
            e = tl.exp(2.0 * (load_rows(A, i, has_query, HIDDEN) + b[None, :]))
        r = 1.0 / (1.0 + e)
        s = w_total - 2.0 * tl.sum(r * w[None, :], 1)
        v = tl.load(V + j * VALUE + c).to(tl.float32)
        through_value = tl.sum(grad * v[None, :], 1)
        p = tl.where(allowed, tl.exp(s - lse), 0.0)
        grad_s = p * (through_value - delta)
        slopes += grad_s[:, None] * (r - r * r)
        shares += grad_s[:, None] * r
        total += grad_s
    store_rows(GRAD_A + n * q_len * HIDDEN, i, has_query, 4.0 * slopes * w[None, :], HIDDEN)
    grad_w = tl.sum(total, 0) - 2.0 * tl.sum(shares, 0)
    tl.store(GRAD_W + tl.program_id(0).to(tl.int64) * HIDDEN + d, grad_w)


@triton.jit
def backward_keys(
    A, B, W, V, ALLOWED, COUNTS, IN_RANGE, LSE, DELTA, GRAD, GRAD_B, GRAD_V, q_len, k_len,
    mask_n, mask_q, mask_k,
    HIDDEN: tl.constexpr, VALUE: tl.constexpr, TILE: tl.constexpr, HAS_MASK: tl.constexpr,
):  # fmt: skip
    """The gradients of a tile of keys and of their values; A (q, HIDDEN), B (k, HIDDEN)."""
    tiles = tl.cdiv(k_len, TILE)
    n = (tl.program_id(0) // tiles).to(tl.int64)
    first = (tl.program_id(0) % tiles) * TILE
    j = first + tl.arange(0, TILE)
    d, c = tl.arange(0, HIDDEN), tl.arange(0, VALUE)
    count, in_range = tl.load(COUNTS + n), tl.load(IN_RANGE + n)
    A += n * q_len * HIDDEN
    B += n * k_len * HIDDEN
    ALLOWED += n * mask_n
    has_key = j < count
    v = load_rows(V + n * k_len * VALUE, j, has_key, VALUE).to(tl.float32)
    w = tl.load(W + d)
    w_total = tl.sum(w, 0)
    y = tl.exp(2.0 * load_rows(B, j, has_key, HIDDEN))
    slopes = tl.zeros((TILE, HIDDEN), tl.float32)
    grad_v = tl.zeros((TILE, VALUE), tl.float32)
    for i in range(tl.where(first < count, q_len, 0)):
        lse = tl.load(LSE + n * q_len + i)
        delta = tl.load(DELTA + n * q_len + i)
        allowed = has_key
        if HAS_MASK:
            places = tl.cast(i, tl.int64) * mask_q + j.to(tl.int64) * mask_k
            allowed = has_key & (tl.load(ALLOWED + places, mask=has_key, other=0) != 0)
        a = tl.load(A + i * HIDDEN + d)
        if in_range != 0:
            e = y * tl.exp(2.0 * a)[None, :]
        else:
            e = tl.exp(2.0 * (load_rows(B, j, has_key, HIDDEN) + a[None, :]))
        r = 1.0 / (1.0 + e)
        s = w_total - 2.0 * tl.sum(r * w[None, :], 1)
        grad = tl.load(GRAD + (n * q_len + i) * VALUE + c).to(tl.float32)
        p = tl.where(allowed, tl.exp(s - lse), 0.0)
        grad_s = p * (tl.sum(v * grad[None, :], 1) - delta)
        slopes += grad_s[:, None] * (r - r * r)
        grad_v += p[:, None] * grad[None, :]
    store_rows(GRAD_B + n * k_len * HIDDEN, j, j < k_len, 4.0 * slopes * w[None, :], HIDDEN)
    store_rows(GRAD_V + n * k_len * VALUE, j, j < k_len, grad_v, VALUE)
