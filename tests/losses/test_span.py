"""The loss of a span against its formula."""

import torch

from regard.losses.span import span_nll

SPANS = torch.tensor([[0, 4], [2, 2], [1, 3]])


def test_the_formula() -> None:
    start, end = torch.randn(2, 3, 5, dtype=torch.float64)
    start[1, 3:] = end[1, 3:] = -torch.inf  # padding
    loss = span_nll(start, end, SPANS)
    for n, (k, last) in enumerate(SPANS.tolist()):
        p1, p2 = (scores[n].exp() / scores[n].exp().sum() for scores in (start, end))
        torch.testing.assert_close(loss[n], -(p1[k].log() + p2[last].log()))


def test_gradients() -> None:
    start, end = (torch.randn(3, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: span_nll(a, b, SPANS), (start, end))


def test_padding_has_no_gradient_and_no_nan() -> None:
    start = torch.randn(3, 5)
    start[1, 3:] = -torch.inf
    start.requires_grad_()
    span_nll(start, start, SPANS).sum().backward()
    assert start.grad.isfinite().all()
    assert not start.grad[1, 3:].any()


def test_half_precision_is_computed_in_float32() -> None:
    start, end = torch.randn(2, 3, 5).bfloat16()
    loss = span_nll(start, end, SPANS)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, span_nll(start.float(), end.float(), SPANS))
