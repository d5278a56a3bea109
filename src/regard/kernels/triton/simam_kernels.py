"""SimAM of a feature map on a GPU, x σ(c d² + 1/2), and its gradient: a program per map of one channel.

    d = x - mean x,   v = sum d² / (n - 1),   c = 1 / (4 (v + lam))

With h = grad · x σ(1 - σ), the gradient of the exponent, that of x is

    grad σ + 2 c (d h - mean(d h)) - 8 c² / (n - 1) · sum(d² h) · d
"""

import triton
import triton.language as tl


@triton.jit
def _statistics(X, size, lam, BLOCK: tl.constexpr):
    """The mean, and c."""
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        places = start + tl.arange(0, BLOCK)
        total += tl.load(X + places, mask=places < size, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / size
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        places = start + tl.arange(0, BLOCK)
        x = tl.load(X + places, mask=places < size, other=0.0).to(tl.float32)
        d = tl.where(places < size, x - mean, 0.0)
        squares += d * d
    variance = tl.sum(squares, 0) / tl.maximum(size - 1, 1)
    return mean, 1.0 / (4.0 * (variance + lam))


@triton.jit
def forward(X, OUT, size, lam, BLOCK: tl.constexpr):
    X += tl.program_id(0).to(tl.int64) * size
    OUT += tl.program_id(0).to(tl.int64) * size
    mean, c = _statistics(X, size, lam, BLOCK)
    for start in range(0, size, BLOCK):
        places = start + tl.arange(0, BLOCK)
        x = tl.load(X + places, mask=places < size, other=0.0).to(tl.float32)
        d = x - mean
        tl.store(OUT + places, x * tl.sigmoid(c * d * d + 0.5), mask=places < size)


@triton.jit
def backward(X, GRAD, OUT, size, lam, BLOCK: tl.constexpr):
    X += tl.program_id(0).to(tl.int64) * size
    GRAD += tl.program_id(0).to(tl.int64) * size
    OUT += tl.program_id(0).to(tl.int64) * size
    mean, c = _statistics(X, size, lam, BLOCK)
    first = tl.zeros((BLOCK,), tl.float32)
    second = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        places = start + tl.arange(0, BLOCK)
        x = tl.load(X + places, mask=places < size, other=0.0).to(tl.float32)
        grad = tl.load(GRAD + places, mask=places < size, other=0.0).to(tl.float32)
        d = x - mean
        share = tl.sigmoid(c * d * d + 0.5)
        h = grad * x * share * (1.0 - share)
        first += d * h
        second += d * d * h
    mean_first = tl.sum(first, 0) / size
    pull = 8.0 * c * c * tl.sum(second, 0) / tl.maximum(size - 1, 1)
    for start in range(0, size, BLOCK):
        places = start + tl.arange(0, BLOCK)
        x = tl.load(X + places, mask=places < size, other=0.0).to(tl.float32)
        grad = tl.load(GRAD + places, mask=places < size, other=0.0).to(tl.float32)
        d = x - mean
        share = tl.sigmoid(c * d * d + 0.5)
        h = grad * x * share * (1.0 - share)
        tl.store(OUT + places, grad * share + 2.0 * c * (d * h - mean_first) - pull * d, mask=places < size)
