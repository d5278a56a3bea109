"""Sparsemax and entmax 1.5 of scale · q kᵀ, times v, on a GPU, and their gradients, without weights in memory.

    x = z - tau,   z = s - max s (sparsemax) or half of it (entmax 1.5),   p = x+ or (x+)^2,   sum p = 1

Every pass over the keys computes the scores again, tile by tile: one for the greatest score, one per step of Newton's
search for tau, one for the output. sum p - 1 is convex in tau and falls, so steps from tau = -1, left of the root,
never pass it; the search ends when no row of the tile moves. The gradient of a score is u (g - sum u g / sum u), with
u = 1 or x on the support and g the gradient of a weight. A kernel per result: one that held several would spill.
"""

import triton
import triton.language as tl

from regard.kernels.triton.tiles import allowed_tile, load_rows, store_rows

# far more than any row needs; a step smaller than the tolerance is rounding
_MOST_STEPS = tl.constexpr(40)
_TOLERANCE = tl.constexpr(2.4e-7)


@triton.jit
def _scores(q, k, allowed, scale, PRECISION: tl.constexpr):
    s = tl.dot(q, tl.trans(k), input_precision=PRECISION) * scale
    return tl.where(allowed, s, -float("inf"))


@triton.jit
def _above(q, k, allowed, scale, top, tau, SQUARED: tl.constexpr, PRECISION: tl.constexpr):
    """x of the pairs in the support, zero of all others."""
    z = _scores(q, k, allowed, scale, PRECISION) - top[:, None]
    if SQUARED:
        z = 0.5 * z
    return tl.where(allowed, tl.maximum(z - tau[:, None], 0.0), 0.0)


@triton.jit
def threshold(
    Q, K, ALLOWED, COUNTS, TOP, TAU, scale, q_len, k_len, mask_n, mask_q, mask_k,
    WIDTH: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr, HAS_MASK: tl.constexpr, SQUARED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The greatest score and tau of a tile of queries; tau is inf in a row without a key, NaN in one that holds it."""
    tiles = tl.cdiv(q_len, TILE_Q)
    n = (tl.program_id(0) // tiles).to(tl.int64)
    i = (tl.program_id(0) % tiles) * TILE_Q + tl.arange(0, TILE_Q)
    has_query = i < q_len
    count = tl.load(COUNTS + n)
    K += n * k_len * WIDTH
    ALLOWED += n * mask_n
    q = load_rows(Q + n * q_len * WIDTH, i, has_query, WIDTH)
    top = tl.full((TILE_Q,), -float("inf"), tl.float32)
    is_invalid = tl.zeros((TILE_Q,), tl.int32)
    for start in range(0, count, TILE_K):
        j = start + tl.arange(0, TILE_K)
        allowed = allowed_tile(ALLOWED, i, j, q_len, count, mask_q, mask_k, HAS_MASK)
        s = _scores(q, load_rows(K, j, j < count, WIDTH), allowed, scale, PRECISION)
        top = tl.maximum(top, tl.max(s, 1))
        # maxima pass over NaN
        is_invalid = tl.maximum(is_invalid, tl.max(((s != s) | (s == float("inf"))).to(tl.int32), 1))
    is_empty = top == -float("inf")
    top = tl.where(is_empty, 0.0, top)
    tau = tl.full((TILE_Q,), -1.0, tl.float32)
    steps = 0
    moving = 1
    while moving > 0:
        excess = tl.full((TILE_Q,), -1.0, tl.float32)
        slope = tl.zeros((TILE_Q,), tl.float32)
        for start in range(0, count, TILE_K):
            j = start + tl.arange(0, TILE_K)
            allowed = allowed_tile(ALLOWED, i, j, q_len, count, mask_q, mask_k, HAS_MASK)
            x = _above(q, load_rows(K, j, j < count, WIDTH), allowed, scale, top, tau, SQUARED, PRECISION)
            if SQUARED:
                excess += tl.sum(x * x, 1)
                slope += 2.0 * tl.sum(x, 1)
            else:
                excess += tl.sum(x, 1)
                slope += tl.sum(tl.where(x > 0.0, 1.0, 0.0), 1)
        step = tl.where(slope > 0.0, excess / tl.where(slope > 0.0, slope, 1.0), 0.0)
        tau += step
        steps += 1
        moving = tl.max((step > _TOLERANCE).to(tl.int32), 0) * tl.where(steps < _MOST_STEPS, 1, 0)
    tau = tl.where(is_invalid > 0, float("nan"), tl.where(is_empty, float("inf"), tau))
    tl.store(TOP + n * q_len + i, top, mask=has_query)
    tl.store(TAU + n * q_len + i, tau, mask=has_query)


@triton.jit
def forward(
    Q, K, V, ALLOWED, COUNTS, TOP, TAU, OUT, scale, q_len, k_len, mask_n, mask_q, mask_k,
    WIDTH: tl.constexpr, VALUE: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr, HAS_MASK: tl.constexpr,
    SQUARED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The output of a tile of queries."""
    tiles = tl.cdiv(q_len, TILE_Q)
    n = (tl.program_id(0) // tiles).to(tl.int64)
    i = (tl.program_id(0) % tiles) * TILE_Q + tl.arange(0, TILE_Q)
    has_query = i < q_len
    count = tl.load(COUNTS + n)
    K += n * k_len * WIDTH
    V += n * k_len * VALUE
    ALLOWED += n * mask_n
    q = load_rows(Q + n * q_len * WIDTH, i, has_query, WIDTH)
    top = tl.load(TOP + n * q_len + i, mask=has_query, other=0.0)
    tau = tl.load(TAU + n * q_len + i, mask=has_query, other=float("inf"))
    total = tl.zeros((TILE_Q,), tl.float32)
    mixed = tl.zeros((TILE_Q, VALUE), tl.float32)
    for start in range(0, count, TILE_K):
        j = start + tl.arange(0, TILE_K)
        has_key = j < count
        allowed = allowed_tile(ALLOWED, i, j, q_len, count, mask_q, mask_k, HAS_MASK)
        p = _above(q, load_rows(K, j, has_key, WIDTH), allowed, scale, top, tau, SQUARED, PRECISION)
        if SQUARED:
            p = p * p
        total += tl.sum(p, 1)
        v = load_rows(V, j, has_key, VALUE)
        mixed += tl.dot(p.to(v.dtype), v, input_precision=PRECISION)
    out = mixed / tl.where(total > 0.0, total, 1.0)[:, None]
    out = tl.where(tau[:, None] == tau[:, None], out, float("nan"))
    store_rows(OUT + n * q_len * VALUE, i, has_query, out, VALUE)


@triton.jit
def _slopes(x, tau, SQUARED: tl.constexpr):
    """u: x on the support for entmax 1.5, 1 for sparsemax; NaN in a row whose tau is NaN."""
    if SQUARED:
        u = x
    else:
        u = tl.where(x > 0.0, 1.0, 0.0)
    return tl.where(tau[:, None] == tau[:, None], u, float("nan"))


@triton.jit
def backward_means(
    Q, K, V, ALLOWED, COUNTS, TOP, TAU, GRAD, MEAN, scale, q_len, k_len, mask_n, mask_q, mask_k,
    WIDTH: tl.constexpr, VALUE: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr, HAS_MASK: tl.constexpr,
    SQUARED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """sum u g / sum u of a tile of queries."""
    tiles = tl.cdiv(q_len, TILE_Q)
    n = (tl.program_id(0) // tiles).to(tl.int64)
    i = (tl.program_id(0) % tiles) * TILE_Q + tl.arange(0, TILE_Q)
    has_query = i < q_len
    count = tl.load(COUNTS + n)
    K += n * k_len * WIDTH
    V += n * k_len * VALUE
    ALLOWED += n * mask_n
    q = load_rows(Q + n * q_len * WIDTH, i, has_query, WIDTH)
    top = tl.load(TOP + n * q_len + i, mask=has_query, other=0.0)
    tau = tl.load(TAU + n * q_len + i, mask=has_query, other=float("inf"))
    # sum u g is the product of the gradient of the output and sum u v
    mixed = tl.zeros((TILE_Q, VALUE), tl.float32)
    total = tl.zeros((TILE_Q,), tl.float32)
    for start in range(0, count, TILE_K):
        j = start + tl.arange(0, TILE_K)
        has_key = j < count
        allowed = allowed_tile(ALLOWED, i, j, q_len, count, mask_q, mask_k, HAS_MASK)
        x = _above(q, load_rows(K, j, has_key, WIDTH), allowed, scale, top, tau, SQUARED, PRECISION)
        u = _slopes(x, tau, SQUARED)
        v = load_rows(V, j, has_key, VALUE)
        mixed += tl.dot(u.to(v.dtype), v, input_precision=PRECISION)
        total += tl.sum(u, 1)
    grad = load_rows(GRAD + n * q_len * VALUE, i, has_query, VALUE).to(tl.float32)
    mean = tl.sum(mixed * grad, 1) / tl.where(total == 0.0, 1.0, total)
    tl.store(MEAN + n * q_len + i, mean, mask=has_query)


@triton.jit
def backward_queries(
    Q, K, V, ALLOWED, COUNTS, TOP, TAU, GRAD, MEAN, GRAD_Q, scale, q_len, k_len, mask_n, mask_q, mask_k,
    WIDTH: tl.constexpr, VALUE: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr, HAS_MASK: tl.constexpr,
    SQUARED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of queries."""
    tiles = tl.cdiv(q_len, TILE_Q)
    n = (tl.program_id(0) // tiles).to(tl.int64)
    i = (tl.program_id(0) % tiles) * TILE_Q + tl.arange(0, TILE_Q)
    has_query = i < q_len
    count = tl.load(COUNTS + n)
    K += n * k_len * WIDTH
    V += n * k_len * VALUE
    ALLOWED += n * mask_n
    q = load_rows(Q + n * q_len * WIDTH, i, has_query, WIDTH)
    grad = load_rows(GRAD + n * q_len * VALUE, i, has_query, VALUE)
    top = tl.load(TOP + n * q_len + i, mask=has_query, other=0.0)
    tau = tl.load(TAU + n * q_len + i, mask=has_query, other=float("inf"))
    mean = tl.load(MEAN + n * q_len + i, mask=has_query, other=0.0)
    grad_q = tl.zeros((TILE_Q, WIDTH), tl.float32)
    for start in range(0, count, TILE_K):
        j = start + tl.arange(0, TILE_K)
        has_key = j < count
        allowed = allowed_tile(ALLOWED, i, j, q_len, count, mask_q, mask_k, HAS_MASK)
        k = load_rows(K, j, has_key, WIDTH)
        u = _slopes(_above(q, k, allowed, scale, top, tau, SQUARED, PRECISION), tau, SQUARED)
        through_value = tl.dot(grad, tl.trans(load_rows(V, j, has_key, VALUE)), input_precision=PRECISION)
        grad_s = u * (through_value - mean[:, None])
        grad_q += tl.dot(grad_s.to(k.dtype), k, input_precision=PRECISION)
    store_rows(GRAD_Q + n * q_len * WIDTH, i, has_query, grad_q * scale, WIDTH)


@triton.jit
def backward_keys(
    Q, K, V, ALLOWED, COUNTS, TOP, TAU, GRAD, MEAN, GRAD_K, GRAD_V, scale, q_len, k_len,
    mask_n, mask_q, mask_k,
    WIDTH: tl.constexpr, VALUE: tl.constexpr, TILE_Q: tl.constexpr, TILE_K: tl.constexpr, HAS_MASK: tl.constexpr,
    SQUARED: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of a tile of keys and of their values."""
    tiles = tl.cdiv(k_len, TILE_K)
    n = (tl.program_id(0) // tiles).to(tl.int64)
    first = (tl.program_id(0) % tiles) * TILE_K
    j = first + tl.arange(0, TILE_K)
    count = tl.load(COUNTS + n)
    Q += n * q_len * WIDTH
    GRAD += n * q_len * VALUE
    ALLOWED += n * mask_n
    has_key = j < count
    k = load_rows(K + n * k_len * WIDTH, j, has_key, WIDTH)
    v = load_rows(V + n * k_len * VALUE, j, has_key, VALUE)
    grad_k = tl.zeros((TILE_K, WIDTH), tl.float32)
    grad_v = tl.zeros((TILE_K, VALUE), tl.float32)
    for start in range(0, tl.where(first < count, q_len, 0), TILE_Q):
        i = start + tl.arange(0, TILE_Q)
        has_query = i < q_len
        allowed = allowed_tile(ALLOWED, i, j, q_len, count, mask_q, mask_k, HAS_MASK)
        q = load_rows(Q, i, has_query, WIDTH)
        grad = load_rows(GRAD, i, has_query, VALUE)
        top = tl.load(TOP + n * q_len + i, mask=has_query, other=0.0)
        tau = tl.load(TAU + n * q_len + i, mask=has_query, other=float("inf"))
        mean = tl.load(MEAN + n * q_len + i, mask=has_query, other=0.0)
        x = _above(q, k, allowed, scale, top, tau, SQUARED, PRECISION)
        u = _slopes(x, tau, SQUARED)
        if SQUARED:
            x = x * x
        grad_v += tl.dot(tl.trans(x.to(grad.dtype)), grad, input_precision=PRECISION)
        through_value = tl.dot(grad, tl.trans(v), input_precision=PRECISION)
        grad_s = tl.where(allowed, u * (through_value - mean[:, None]), 0.0)
        grad_k += tl.dot(tl.trans(grad_s.to(q.dtype)), q, input_precision=PRECISION)
    store_rows(GRAD_K + n * k_len * WIDTH, j, j < k_len, grad_k * scale, WIDTH)
    store_rows(GRAD_V + n * k_len * VALUE, j, j < k_len, grad_v, VALUE)
