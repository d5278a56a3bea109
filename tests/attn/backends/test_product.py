"""The product of scores, biases, masks, normalizers and reads, on every backend that accepts the combination.

One normalizer meets each score, bias and mask, in turn, so that every three of the four meet somewhere.
With --whole (`make test-all`) all four meet.
"""

import itertools
from dataclasses import replace

import pytest
import torch
from tests.attn.backends.cases import CERTAIN, NORMALIZERS, READS, Case, Sizes, resolved, tensors
from tests.for_each import for_each

from regard.attn.backends import BACKENDS
from regard.attn.call import AttentionCall, Need

TINY = Sizes(b=2, h=2, q=3, k=4, d=2, v=3)
# one of each kind that is computed in a way of its own; what differs by a number alone meets others in the pairs
SCORES = (
    "dot",
    "bilinear",
    "additive",
    "cosine-trained",
    "distance",
    "euclid",
    "trilinear",
    "location",
    "kernel-elu",
)
BIASES = ("none", "alibi", "t5", "shaw", "xl", "gaussian", "added", "hiding")
MASKS = (
    "none",
    "causal",
    "window",
    "prefixes",
    "lengths",
    "documents",
    "given",
    "causal-lengths",
    "either",
    "not-lengths",
)
WEIGHERS = (
    "softmax-cool",
    "softmax-trained",
    "sigmoid-trained",
    "sparsemax",
    "entmax15",
    "entmax-trained",
    "topk",
    "null-trained",
    "sum",
)
reads = [READS[name](TINY) for name in CERTAIN]


def call_of(case: Case, need: Need) -> AttentionCall:
    q, k, v = (t.detach() for t in tensors(TINY))
    return resolved(q, k, v, need=need, **case.terms(TINY))


@for_each("score", SCORES)
@torch.no_grad()
def test_every_combination_agrees_with_the_equation(score: str, pytestconfig: pytest.Config) -> None:
    turns = 1 if pytestconfig.getoption("whole") else len(BIASES)
    for (i, bias), (j, mask) in itertools.product(enumerate(BIASES), enumerate(MASKS)):
        first = call_of(Case(score, bias, mask), Need())
        for name in WEIGHERS[(SCORES.index(score) + i + j) % turns :: turns]:
            if not Case(score, bias, mask, name).possible:
                continue
            normalize = NORMALIZERS[name](TINY).double()
            whole = BACKENDS["eager"].run(replace(first, normalize=normalize, need=Need(weights=True)))
            for read in reads:
                want = read.read(whole.weights, first.v).out
                call = replace(first, normalize=normalize, read=read)
                for backend, module in BACKENDS.items():
                    if module.unsupported_reason(call) is None and (backend != "eager" or read is reads[0]):
                        far = (module.run(call).out - want).abs().amax()
                        assert far < 1e-8, f"{Case(score, bias, mask, name)} {read!r}: {backend} is off by {far:.2g}"
