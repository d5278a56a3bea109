"""LocationAttention against the formulas of Chorowski and of Tacotron 2, step by step."""

import pytest
import torch
from torch import Tensor

from regard import Lengths, Need, Softmax, mechanism
from regard.layers import LocationAttention
from regard.normalizers import NormalizedSigmoid
from regard.scores import LocationSensitive

B, Q, K, D, E = 2, 5, 7, 3, 4


def layer_of(normalize: Softmax | NormalizedSigmoid | None = None) -> LocationAttention:
    return LocationAttention(LocationSensitive(D, E, 11, filters=2, width=5), normalize=normalize)


def energies(layer: LocationAttention, s: Tensor, h: Tensor, previous: Tensor, cumulative: Tensor) -> Tensor:
    """e_j = v · tanh(W s + V h_j + U f_j + b), f_j = Σ_r F_r [α; Σα]_{j+r}, one sample, one step, key by key."""
    score = layer.score
    found = []
    for j in range(len(h)):
        f = torch.zeros(2)
        for r in range(-2, 3):
            if 0 <= j + r < len(h):
                taps = score.filters.weight[:, :, r + 2]
                f = f + taps @ torch.stack([previous[j + r], cumulative[j + r]])
        inner = score.query(s) + score.key.weight @ h[j] + score.location.weight @ f
        found.append(score.energy @ torch.tanh(inner))
    return torch.stack(found)


@pytest.mark.parametrize("kind", ["softmax", "sharp", "smooth"])
def test_the_loop_of_the_paper(kind: str) -> None:
    layer = layer_of({"softmax": None, "sharp": Softmax(0.5), "smooth": NormalizedSigmoid()}[kind])
    torch.nn.init.normal_(layer.score.location.weight)
    q, h = torch.randn(B, Q, D), torch.randn(B, K, E)
    lengths = [7, 4]
    got = layer.attend(q, h, mask=Lengths(torch.tensor(lengths)), need=Need(weights=True))
    for b, n in enumerate(lengths):
        alpha, total = torch.zeros(n), torch.zeros(n)
        for i in range(Q):
            e = energies(layer, q[b, i], h[b, :n], alpha, total)
            if kind == "smooth":
                alpha = torch.sigmoid(e) / torch.sigmoid(e).sum()
            else:
                alpha = torch.softmax(e * (2.0 if kind == "sharp" else 1.0), 0)
            total = total + alpha
            torch.testing.assert_close(got.weights[b, i, :n], alpha, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(got.out[b, i], alpha @ h[b, :n], rtol=1e-4, atol=1e-5)


def test_one_step_at_a_time_equals_all_at_once() -> None:
    layer = layer_of()
    q, h, v = torch.randn(B, Q, D), torch.randn(B, K, E), torch.randn(B, K, 6)
    mask = Lengths(torch.tensor([7, 4]))
    whole = layer.attend(q, h, v, mask=mask, need=Need(weights=True, entropy=True))
    memory = layer.project_kv(h, v)
    trace = layer.start(memory)
    assert not trace.previous.any()
    assert not trace.cumulative.any()
    for t in range(Q):
        got, after = layer.step(q[:, t : t + 1], memory, trace, mask=mask, need=Need(weights=True, entropy=True))
        torch.testing.assert_close(got.out, whole.out[:, t : t + 1])
        torch.testing.assert_close(got.weights, whole.weights[:, t : t + 1])
        torch.testing.assert_close(got.entropy, whole.entropy[:, t : t + 1])
        torch.testing.assert_close(after.previous, got.weights[:, 0])
        torch.testing.assert_close(after.cumulative, trace.cumulative + got.weights[:, 0])
        trace = after
    torch.testing.assert_close(trace.cumulative.sum(-1), torch.full((B,), float(Q)))


def test_a_beam_takes_its_traces_along() -> None:
    layer = layer_of()
    q, h = torch.randn(B, 1, D), torch.randn(B, K, E)
    memory = layer.project_kv(h)
    _, trace = layer.step(q, memory, layer.start(memory))
    index = torch.tensor([1, 1, 0])
    want, _ = layer.step(q[index], layer.project_kv(h[index]), trace.reorder(index))
    got, _ = layer.step(q, memory, trace)
    torch.testing.assert_close(want.out, got.out[index])


def test_sentences() -> None:
    layer = layer_of()
    memory = layer.project_kv(torch.randn(B, K, E))
    with pytest.raises(ValueError, match=r"q must be one step, \(\*b, 1, d\), got \(2, 5, 3\); pass q\[..., :1, :\]"):
        layer.step(torch.randn(B, Q, D), memory, layer.start(memory))
    with pytest.raises(ValueError, match=r"q must be 3 wide for LocationSensitive\(3, 4, 11\), got \(2, 1, 4\)"):
        layer.step(torch.randn(B, 1, E), memory, layer.start(memory))
    with pytest.raises(ValueError, match="lse is not available from LocationAttention, which computes its own weights"):
        layer.attend(torch.randn(B, Q, D), torch.randn(B, K, E), need=Need(lse=True))


def test_a_trace_in_half_precision_goes_on_adding() -> None:
    """In bfloat16 a sum of weights of 1/40 stands still at 8."""
    layer = mechanism("location-sensitive", 8).bfloat16().eval()
    memory = layer.project_kv(torch.randn(1, 40, 8).bfloat16())
    trace = layer.start(memory)
    for _ in range(400):
        trace = trace.after(torch.full((1, 40), 1 / 40))
    torch.testing.assert_close(trace.cumulative, torch.full((1, 40), 10.0))
    with torch.no_grad():
        got, after = layer.step(torch.randn(1, 1, 8).bfloat16(), memory, trace)
    assert got.out.dtype == torch.bfloat16
    assert after.cumulative.dtype == torch.float32
