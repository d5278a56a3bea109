"""Every formula of five widely copied tutorials, written plainly in float64, against its name in regard.

A formula that is misprinted is written as docs/as-printed.md corrects it; that page has the print and a counterexample.
"""

import math
import runpy
from collections.abc import Iterator

import pytest
import torch
from tests.docs.pages import ROOT
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import Need
from regard.models.seq2seq import Seq2Seq

WEIGHTS = Need(weights=True)
D, E, N, Q = 3, 5, 7, 2  # widths of queries and keys, numbers of keys and queries


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    with torch.no_grad():
        yield
    torch.set_default_dtype(torch.float32)


def equal(got: Tensor | None, want: Tensor | list) -> None:
    torch.testing.assert_close(got, torch.as_tensor(want), rtol=0, atol=1e-12)


def scores(score: regard.Score, q: Tensor, k: Tensor) -> Tensor:
    return regard.attend(q, k, score=score, need=Need(scores=True)).scores


def softmax(values: Tensor) -> Tensor:
    exps = torch.tensor([math.exp(value) for value in values])
    return exps / sum(exps)


def multiplicative() -> None:
    """h_tᵀ W h̄_s"""
    score, h_t, h_s = regard.Bilinear(D, E), torch.randn(Q, D), torch.randn(N, E)
    equal(scores(score, h_t, h_s), [[h @ score.key.weight @ s for s in h_s] for h in h_t])


def additive() -> None:
    """vᵀ tanh(W_1 h_t + W_2 h̄_s)"""
    score, h_t, h_s = regard.Additive(D, E, 4), torch.randn(Q, D), torch.randn(N, E)
    parts = [[score.query(h) + score.key(s) for s in h_s] for h in h_t]
    equal(scores(score, h_t, h_s), [[score.energy @ part.tanh() for part in row] for row in parts])


def dot_products() -> None:
    """xᵀ q and xᵀ q / √d"""
    q, x = torch.randn(Q, D), torch.randn(N, D)
    products = torch.tensor([[sum(a * b for a, b in zip(one, other, strict=True)) for other in x] for one in q])
    equal(scores(regard.Dot(scale=1.0), q, x), products)
    equal(scores(regard.Dot(), q, x), products / math.sqrt(D))


def set_distance() -> None:
    """Σ_j d(x_i, x_j)"""
    x = torch.randn(N, D)
    total = torch.tensor([sum(math.dist(a, b) for b in x) for a in x])
    for name, sign in (("set-outlier", 1), ("set-distance", -1)):
        equal(regard.mechanism(name, D).attend(x[:1], x, need=WEIGHTS).weights[0], softmax(sign * total))


def weights_and_context() -> None:
    """α_ts = exp(score) / Σ exp(score); c_t = Σ_s α_ts h̄_s"""
    h_t, h_s = torch.randn(Q, D), torch.randn(N, D)
    alpha = torch.stack([softmax(h_s @ h) for h in h_t])
    got = regard.attend(h_t, h_s, score=regard.Dot(scale=1.0), need=WEIGHTS)
    equal(got.weights, alpha)
    equal(got.out, torch.stack([sum(a * s for a, s in zip(row, h_s, strict=True)) for row in alpha]))


def key_values() -> None:
    """att((K, V), q) = Σ_n α_n v_n; K = V is ordinary attention; Q Kᵀ V"""
    q, k, v = torch.randn(Q, D), torch.randn(N, D), torch.randn(N, E)
    alpha = torch.stack([softmax(k @ one / math.sqrt(D)) for one in q])
    equal(regard.attention(q, k, v), alpha @ v)
    equal(regard.attention(q, k), alpha @ k)
    equal(regard.mechanism("unnormalized", D)(q, k, v), q @ k.T @ v)


def hard_reads() -> None:
    """E_{z∼p}[x_z] = Σ α_n x_n; x_n̂ with n̂ = argmax α"""
    q, x = torch.randn(Q, D), torch.randn(N, D)
    alpha = torch.softmax(q @ x.T / math.sqrt(D), -1)
    equal(regard.attention(q, x, read=regard.Argmax()), x[alpha.argmax(-1)])
    draws = regard.attend(q.expand(20_000, Q, D), x.expand(20_000, N, D), read=regard.Sample()).out
    torch.testing.assert_close(draws.mean(0), alpha @ x, rtol=0, atol=0.03)


def relevance_sampling() -> None:
    """x̃ = x · att(X, q), read in place"""
    gate, x = regard.gates.Spatial(D, normalize=regard.Softmax()), torch.randn(1, D, N)
    alpha = softmax(x[0].T @ gate.query.weight[0] + gate.query.bias)
    equal(gate(x)[0], x[0] * alpha)


def self_attention() -> None:
    """a_ij = q_i · k_j / √d; b_i = Σ_j softmax_j(a_ij) v_j; output = concat(head_1, …) W^O"""
    layer, a = regard.MultiHead(6, 2, bias=False), torch.randn(1, 4, 6)
    q, k, v = (part(a[0]).unflatten(-1, (2, 3)) for part in (layer.query, layer.key, layer.value))
    b = torch.zeros(4, 2, 3)
    for i in range(4):
        for h in range(2):
            weights = softmax(torch.stack([q[i, h] @ k[j, h] / math.sqrt(3) for j in range(4)]))
            b[i, h] = sum(weights[j] * v[j, h] for j in range(4))
    equal(layer(a)[0], b.flatten(1) @ layer.out.weight.T)


def attention_vector() -> None:
    """a_t = tanh(W_c [c_t; h_t])"""
    model = Seq2Seq(11, 13, width=4, hidden=6, decoder="luong", cell="lstm", attention="general").eval()
    source, target = torch.tensor([[5, 8, 4, 9]]), torch.tensor([[1, 4, 6]])
    encoded = model.encode(source, torch.tensor([4]))
    decoder = model.decoder
    h_t = decoder.stack.run(model.target(target), decoder.bridge(encoded.summary))
    c_t = decoder.attention(h_t, encoded.outputs)
    got = model.teacher_force(source, torch.tensor([4]), target).states
    equal(got, torch.tanh(torch.cat([c_t, h_t], -1) @ decoder.readout.weight.T + decoder.readout.bias))


def half_wave() -> None:
    """PE(pos, 2i) = sin((pos + 1) π / T), PE(pos, 2i + 1) = cos((pos + 1) π / T); x + PE W + PE W′"""
    layer, x = regard.positions.HalfWave(4, longest=N), torch.randn(N, 4)
    angles = torch.tensor([(pos + 1) * math.pi / N for pos in range(N)]).unsqueeze(-1)
    equal(layer(x), x + angles.sin() * layer.sine + angles.cos() * layer.cosine)


def feed_forward() -> None:
    """h = f(x, U), y = f(h, V)"""
    net, x = regard.models.MLP(1, (2, 3), 4, hidden=(5,)).eval(), torch.randn(2, 1, 2, 3)
    h = torch.relu(x.transpose(2, 3).flatten(1) @ net.layers[0].weight.T + net.layers[0].bias)
    equal(net(x), h @ net.head.weight.T + net.head.bias)


def recurrent() -> None:
    """h_t = f(x_t, h_{t−1}, U, W), y_t = g(h_t, V)"""
    model = Seq2Seq(11, 13, width=4, hidden=6, decoder="per-position", cell="rnn", bidirectional=False).eval()
    source, target = torch.tensor([[5, 8, 4, 9]]), torch.tensor([[1, 4, 6, 5]])
    (rnn,) = [part for part in model.modules() if isinstance(part, nn.RNN)]
    h, states = torch.zeros(6), []
    for x in model.source(source)[0]:
        h = torch.tanh(rnn.weight_ih_l0 @ x + rnn.bias_ih_l0 + rnn.weight_hh_l0 @ h + rnn.bias_hh_l0)
        states.append(h)
    (readout,) = [part for part in model.decoder.modules() if isinstance(part, nn.Linear)]
    equal(model.teacher_force(source, torch.tensor([4]), target).states[0], torch.tanh(readout(torch.stack(states))))


def squeeze_and_excitation() -> None:
    """z_c = mean of u_c; s = σ(W_2 relu(W_1 z)); x̃_c = s_c u_c; process 1: s = σ(z)"""
    gate, u = regard.gates.SqueezeExcite(32), torch.randn(2, 32, 3, 5)
    z = torch.tensor([[sum(channel.flatten()) / 15 for channel in image] for image in u])
    s = torch.sigmoid(torch.relu(z @ gate.down.weight.T + gate.down.bias) @ gate.up.weight.T + gate.up.bias)
    assert gate.down.out_features == 32 // 16
    equal(gate(u), s[..., None, None] * u)
    equal(regard.gate("gap", 32)(u), torch.sigmoid(z)[..., None, None] * u)


def simam() -> None:
    """e_t = mean (−1 − (w x_i + b))² + (1 − (w t + b))² + λ w², its minimum, and X̃ = σ(1/e*) ∘ X"""
    gate, x = regard.gates.SimAM(0.1), torch.randn(1, 1, 3, 4)
    solved, t = gate.solve(x, statistics="others"), x[0, 0, 1, 2]
    others = torch.cat([x.flatten()[:6], x.flatten()[7:]])
    mu, variance = others.mean(), others.var(correction=0)
    below = (t - mu) ** 2 + 2 * variance + 2 * 0.1
    w, b = 2 * (t - mu) / below, -(t + mu) * (t - mu) / below
    equal(torch.stack([part[0, 0, 1, 2] for part in solved[:2]]), [w, b])
    energy = ((-1 - (w * others + b)) ** 2).mean() + (1 - (w * t + b)) ** 2 + 0.1 * w**2
    equal(solved.energy[0, 0, 1, 2], energy)
    equal(4 * (variance + 0.1) / below, energy)
    n = 11
    d = (x - x.mean(dim=[2, 3], keepdim=True)).pow(2)
    v = d.sum(dim=[2, 3], keepdim=True) / n
    equal(gate(x), x * torch.sigmoid(d / (4 * (v + 0.1)) + 0.5))


def printed_head() -> None:
    """Linear, sigmoid, times the input"""
    gate, x = regard.gates.ContextGating(D), torch.randn(1, D, N)
    equal(gate(x)[0].T, torch.stack([torch.sigmoid(gate.scores.weight @ v + gate.scores.bias) * v for v in x[0].T]))


FORMULAS = [
    multiplicative,
    additive,
    dot_products,
    set_distance,
    weights_and_context,
    key_values,
    hard_reads,
    relevance_sampling,
    self_attention,
    attention_vector,
    half_wave,
    feed_forward,
    recurrent,
    squeeze_and_excitation,
    simam,
    printed_head,
]


@for_each("formula", FORMULAS, ids=lambda formula: formula.__name__)
def test_a_printed_formula_is_what_regard_computes(formula: object) -> None:
    """Heads over hidden units and the attention module have loops of their own: tests/gates/test_gated_units.py."""
    formula()


def test_the_printed_module_as_repaired() -> None:
    """memory + Σ_t p_t x_t, the mean under the weights of each head, and the output layer."""
    module = runpy.run_path(str(ROOT / "examples/attention_module.py"))["AttentionModule"](D, E, 2, 0.5).eval()
    x = torch.randn(Q, N, D)
    state = None
    memory = torch.zeros(Q, 2, D)
    for step in range(2):
        out, state = module(x, state)
        for b in range(Q):
            w = [[torch.sigmoid(head.score(row)).item() for row in x[b]] for head in module.heads]
            if step:
                memory[b] = torch.stack([sum(p * row for p, row in zip(each, x[b], strict=True)) for each in w])
            read = torch.stack([sum(p * row for p, row in zip(each, x[b], strict=True)) / N for each in w])
            equal(out[b], module.out((memory[b] + read).flatten()))
    equal(state.memory, memory)
