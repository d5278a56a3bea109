"""flex_attention: scores and masks by functions of one cell."""

from collections.abc import Callable
from typing import Any

import torch
from tests.for_each import for_each
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import regard

B, H, Q, K, D = 2, 4, 130, 70, 16
SLOPES = torch.tensor([0.1, 0.2, 0.3, 0.4])


def alibi(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return score - SLOPES[h] * (i - j).abs()


def capped(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return 2.0 * torch.tanh(score / 2.0)


def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    return i >= j


class Model(nn.Module):
    def __init__(self, attend: Callable[..., Tensor], **options: Any) -> None:
        super().__init__()
        self.attend, self.options = attend, options

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.attend(q, k, v, **self.options)


def written(q: Tensor, k: Tensor, options: dict[str, Any]) -> Tensor:
    k = k.repeat_interleave(H // k.shape[1], 1)
    s = q @ k.mT * options.get("scale", D**-0.5)
    cells = torch.meshgrid(*map(torch.arange, s.shape), indexing="ij")
    if "score_mod" in options:
        s = options["score_mod"](s, *cells)
    if "block_mask" in options:
        s = s.masked_fill(~causal(*cells), -torch.inf)
    return torch.softmax(s, -1)


@for_each("options", ["plain", "alibi", "capped", "causal", "both", "shared"])
def test_functions_of_a_cell_are_computed_row_by_row(options: str) -> None:
    mask = create_block_mask(causal, None, None, Q, K, device="cpu")
    given: dict[str, Any] = {
        "plain": {"scale": 0.3},
        "alibi": {"score_mod": alibi},
        "capped": {"score_mod": capped},
        "causal": {"block_mask": mask},
        "both": {"block_mask": mask, "score_mod": alibi},
        "shared": {"enable_gqa": True},
    }[options]
    model = Model(flex_attention, **given)
    q = torch.randn(B, H, Q, D)
    k, v = (torch.randn(B, 2 if options == "shared" else H, K, D) for _ in range(2))
    with regard.record(model) as tape:
        out = model(q, k, v)
    (one,) = tape
    want = written(q, k, given)
    assert one.captured_from == "flex_attention"
    assert one.verified
    torch.testing.assert_close(one.weights.dense(), want, rtol=0.0, atol=1e-6)
    torch.testing.assert_close(out, want @ v.repeat_interleave(H // v.shape[1], 1), rtol=0.0, atol=1e-5)
    torch.testing.assert_close(one.weights.pick(1, 2)[3:8], want[1, 2, 3:8], rtol=0.0, atol=1e-6)
    some = one.weights.pick(slice(0, 1), slice(1, 4, 2))
    torch.testing.assert_close(some.dense(), want[:1, 1:4:2], rtol=0.0, atol=1e-6)
    torch.testing.assert_close(some.pick(0, 1)[0, 0], want[0, 3, 0, 0], rtol=0.0, atol=1e-6)


def test_some_heads_and_rows_know_their_places() -> None:
    model = Model(flex_attention, score_mod=alibi)
    q, k = torch.randn(B, H, Q, D), torch.randn(B, H, K, D)
    with regard.record(model, heads=[3, 1], rows=[100, 7]) as tape:
        model(q, k, k)
    (one,) = tape
    assert one.verified
    want = written(q, k, {"score_mod": alibi})[:, [3, 1]][..., [100, 7], :]
    torch.testing.assert_close(one.weights.dense(), want, rtol=0.0, atol=1e-6)


def test_a_compiled_call_is_heard() -> None:
    model = Model(torch.compile(flex_attention, backend="eager"), score_mod=alibi)
    q, k = torch.randn(B, H, Q, D), torch.randn(B, H, K, D)
    want = model(q, k, k)
    with regard.record(model) as tape:
        got = model(q, k, k)
    torch.testing.assert_close(got, want, rtol=0.0, atol=1e-5)
    assert tape[0].verified
