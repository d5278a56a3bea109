"""Mechanisms that only surveys name, against the formulas of their papers, number by number in float64, and against the
layers of transformers.
"""

import math

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn
from torch.nn import functional as F

import regard
from regard import Need
from regard.layers import (
    AlternatingCoAttention,
    CrossCovariance,
    Hopfield,
    InducedAttention,
    InteractiveCoAttention,
    Linformer,
    MultiDimensional,
    MultiGrainedCoAttention,
    Nystrom,
    RotatoryAttention,
    SlotAttention,
    WordByWord,
)
from regard.scores import Activated, BiasedBilinear, Kernel, RandomFeatures

Q, K, D, E, H = 5, 7, 4, 6, 3


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def texts(width: int = E) -> tuple[Tensor, Tensor]:
    return torch.randn(Q, D, dtype=torch.float64), torch.randn(K, width, dtype=torch.float64)


def double(module: nn.Module) -> nn.Module:
    """In float64, with numbers in place of parameters that start as zeros."""
    for parameter in module.double().parameters():
        if not parameter.any():
            nn.init.normal_(parameter)
    return module.requires_grad_(False)


def softmax(scores: list[float]) -> list[float]:
    exps = [math.exp(s) for s in scores]
    return [e / sum(exps) for e in exps]


def mix(weights: list[float], rows: Tensor) -> Tensor:
    return torch.stack([w * row for w, row in zip(weights, rows, strict=True)]).sum(0)


def dot(a: Tensor, b: Tensor) -> float:
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))


def apply(weight: Tensor, x: Tensor) -> Tensor:
    return torch.tensor([dot(row, x) for row in weight], dtype=torch.float64)


def test_biased_and_activated_general() -> None:
    q, k = texts()
    biased, activated = double(BiasedBilinear(D, E)), double(Activated.general(D, E))
    assert isinstance(biased, BiasedBilinear)
    assert isinstance(activated, Activated)
    weight = activated.score.get_parameter("key.weight")
    for i in range(Q):
        for j in range(K):
            want = dot(k[j], apply(biased.query.weight, q[i]) + biased.query.bias)
            assert float(biased(q, k)[i, j]) == pytest.approx(want)
            want = math.tanh(dot(q[i], apply(weight, k[j])) + float(activated.offset))
            assert float(activated(q, k)[i, j]) == pytest.approx(want)
    relu = Activated(regard.Dot(scale=1.0), torch.relu)
    torch.testing.assert_close(relu(q, q), torch.relu(q @ q.T).float().double(), rtol=1e-6, atol=1e-6)


def test_multi_dimensional_weights_are_those_of_each_channel() -> None:
    q, k = texts()
    layer = double(MultiDimensional(D, E, H, E))
    got = layer.attend(q, k, need=Need(weights=True))
    score = layer.get_submodule("score")
    for i in range(Q):
        for c in range(E):
            hidden = [
                torch.tanh(apply(score.query.weight, q[i]) + score.query.bias + apply(score.key.weight, k[j]))
                for j in range(K)
            ]
            shares = softmax([dot(score.energy[c], h) for h in hidden])
            assert got.weights[c, i].tolist() == pytest.approx(shares)
            assert float(got.out[i, c]) == pytest.approx(sum(s * float(k[j, c]) for j, s in enumerate(shares)))


def additive(module: nn.Module, g: Tensor, text: Tensor) -> Tensor:
    score = module.get_submodule("score")
    query = apply(score.query.weight, g)
    return mix(softmax([dot(score.energy, torch.tanh(query + apply(score.key.weight, x))) for x in text]), text)


def activated(module: nn.Module, g: Tensor, text: Tensor) -> Tensor:
    score = module.get_submodule("score")
    weight, offset = score.get_parameter("score.key.weight"), float(score.offset)
    return mix(softmax([math.tanh(dot(g, apply(weight, x)) + offset) for x in text]), text)


def test_alternating_co_attention() -> None:
    q, k = texts()
    layer = double(AlternatingCoAttention(D, E, H))
    first = additive(layer.to_k, torch.zeros(D, dtype=torch.float64), k)
    of_q = additive(layer.to_q, first, q)
    of_k = additive(layer.to_k, of_q, k)
    torch.testing.assert_close(layer(q, k), (of_q, of_k))


def test_interactive_and_multi_grained_co_attention() -> None:
    q, k = texts()
    layer = double(InteractiveCoAttention(D, E))
    want = activated(layer.to_q, k.mean(0), q), activated(layer.to_k, q.mean(0), k)
    torch.testing.assert_close(layer(q, k), want)
    q, k = texts(D)
    both = double(MultiGrainedCoAttention(D))
    score = both.fine.score
    pairs = [[dot(score.query, x) + dot(score.key, y) + dot(score.both, x * y) for y in k] for x in q]
    coarse = activated(both.coarse.to_q, k.mean(0), q), activated(both.coarse.to_k, q.mean(0), k)
    fine_q = mix(softmax([max(row) for row in pairs]), q)
    fine_k = torch.stack([mix(softmax(row), k) for row in pairs]).mean(0)
    got = both(q, k)
    torch.testing.assert_close(got, (torch.cat([coarse[0], fine_q]), torch.cat([coarse[1], fine_k])))


def test_rotatory_attention() -> None:
    left, target = texts(D)
    right = torch.randn(3, D, dtype=torch.float64)
    layer = double(RotatoryAttention(D))
    reads = layer.get_submodule("reads")
    of_left, of_right = (activated(reads[n], target.mean(0), t) for n, t in (("left", left), ("right", right)))
    target_by = (
        activated(reads["target_by_left"], of_left, target),
        activated(reads["target_by_right"], of_right, target),
    )
    torch.testing.assert_close(layer(target, left, right), torch.cat([of_left, of_right, *target_by]))


def test_word_by_word() -> None:
    q, k = texts()
    layer = double(WordByWord(D, E, H))
    r, rows = torch.zeros(E, dtype=torch.float64), []
    for h in q:
        query = apply(layer.score.query.weight, h) + apply(layer.state.weight, r)
        scores = [dot(layer.score.energy, torch.tanh(query + apply(layer.score.key.weight, y))) for y in k]
        r = mix(softmax(scores), k) + torch.tanh(apply(layer.carry.weight, r))
        rows.append(r)
    torch.testing.assert_close(layer(q, k), torch.stack(rows))
    memory = layer.project_kv(k)
    state = layer.start(memory)
    for h, want in zip(q, rows, strict=True):
        got, state = layer.step(h[None], memory, state)
        torch.testing.assert_close(got.out[0], want)


def test_hopfield_replaces_its_state() -> None:
    q, k = texts(D)
    v = torch.randn(K, H, dtype=torch.float64)
    rows = []
    for state in q:
        for _ in range(2):
            state = mix(softmax([1.7 * dot(state, x) for x in k]), k)
        rows.append(mix(softmax([1.7 * dot(state, x) for x in k]), v))
    torch.testing.assert_close(Hopfield(3, scale=1.7)(q, k, v), torch.stack(rows))
    torch.testing.assert_close(Hopfield(1)(q, k, v), regard.attention(q, k, v))


def test_linformer_mixes_the_keys() -> None:
    q, k = texts(D)
    layer = double(Linformer(9, 3))
    keys = torch.stack([sum(layer.mix_keys[r, j] * k[j] for j in range(K)) for r in range(3)])
    values = torch.stack([sum(layer.mix_values[r, j] * k[j] for j in range(K)) for r in range(3)])
    want = [mix(softmax([dot(x, y) / D**0.5 for y in keys]), values) for x in q]
    torch.testing.assert_close(layer(q, k), torch.stack(want))


def test_slots_compete() -> None:
    q, k = texts()
    layer = double(SlotAttention(D, E, rounds=2))
    slots, x = q, F.layer_norm(k, (E,), layer.norm_inputs.weight, layer.norm_inputs.bias)
    for _ in range(2):
        queries = [apply(layer.query.weight, s) for s in layer.norm_slots(slots)]
        columns = [softmax([dot(apply(layer.key.weight, y), s) / D**0.5 for s in queries]) for y in x]
        after = []
        for i, slot in enumerate(slots):
            shares = [column[i] + 1e-8 for column in columns]
            mean = mix([s / sum(shares) for s in shares], torch.stack([apply(layer.value.weight, y) for y in x]))
            new = layer.update(mean[None], slot[None])
            after.append((new + layer.mlp(layer.norm_mlp(new)))[0])
        slots = torch.stack(after)
    torch.testing.assert_close(layer(q, k), slots)


def test_cross_covariance_is_attention_between_channels() -> None:
    x = torch.randn(K, E, dtype=torch.float64)
    layer = double(CrossCovariance(E, 2))
    q, k, v = ((x @ part.weight.T + part.bias).T for part in (layer.query, layer.key, layer.value))
    rows = []
    for h in range(2):
        scale = math.exp(float(layer.attention.score.log_scale[h]))
        here = range(3 * h, 3 * h + 3)
        for c in here:
            scores = [scale * dot(q[c], k[d]) / float(q[c].norm() * k[d].norm()) for d in here]
            rows.append(mix(softmax(scores), v[3 * h : 3 * h + 3]))
    torch.testing.assert_close(layer(x), torch.stack(rows).T @ layer.out.weight.T + layer.out.bias)


def test_induced_points_are_two_attentions() -> None:
    layer = double(InducedAttention(8, 3, 2))
    q, k = torch.randn(Q, 8, dtype=torch.float64), torch.randn(K, 8, dtype=torch.float64)
    heads = [torch.nn.MultiheadAttention(8, 2, batch_first=True).double() for _ in range(2)]
    for mine, theirs in zip((layer.read, layer.write), heads, strict=True):
        theirs.load_state_dict(mine.to_torch().state_dict())
    points = heads[0](layer.points, k, k)[0]
    torch.testing.assert_close(layer(q, k), heads[1](q, points, points)[0])


def test_random_features_are_unbiased_and_orthogonal() -> None:
    """The mean over many draws is the exponential of the score; orthogonal directions have the lower variance."""
    q, k = 0.5 * torch.randn(6, 8, dtype=torch.float64), 0.5 * torch.randn(6, 8, dtype=torch.float64)
    want = torch.exp(q @ k.T / 8**0.5)
    spreads = []
    for orthogonal in (True, False):
        generator = torch.Generator().manual_seed(1)
        draws = []
        for _ in range(300):
            features = RandomFeatures(8, 16, orthogonal=orthogonal, generator=generator).double()
            draws.append(features(q) @ features(k).T)
        found = torch.stack(draws)
        deviation = (found.mean(0) - want).abs() / (found.std(0) / len(found) ** 0.5)
        assert deviation.max() < 4.0  # standard errors
        spreads.append(float((found - want).square().mean()))
    assert spreads[0] < spreads[1]


@for_each("name", ["performer", "nystrom"])
def test_errors_fall_with_features_and_landmarks(name: str) -> None:
    q, k, v = (0.8 * torch.randn(40, 8, dtype=torch.float64) for _ in range(3))
    want, errors = regard.attention(q, k, v), []
    for count in (4, 40, 400) if name == "performer" else (2, 10, 40):
        if name == "performer":
            score = Kernel(RandomFeatures(8, count, generator=torch.Generator().manual_seed(2)).double())
            got = regard.attention(q, k, v, score=score, normalize=regard.normalizers.Sum())
        else:
            got = Nystrom(count, iterations=None)(q, k, v)
        errors.append(float((got - want).abs().mean()))
    assert errors[0] > errors[1] > errors[2]
    assert name == "performer" or errors[2] < 1e-8  # every key is a landmark


def random_feature_attention(x: Tensor, features: RandomFeatures) -> Tensor:
    return regard.attention(x, x, score=Kernel(features), normalize=regard.normalizers.Sum())


@for_each("width", [16, 128, 256, 512])
def test_random_features_of_every_width_have_the_digits_of_float32(width: int) -> None:
    x, features = torch.randn(5, width), RandomFeatures(width, 32)
    got = random_feature_attention(x, features)
    torch.testing.assert_close(got.double(), random_feature_attention(x.double(), features), rtol=1e-3, atol=1e-3)


def test_keys_along_a_direction_stay_finite() -> None:
    """Their exponents are ‖w‖²/2, far more than float32 takes."""
    features = RandomFeatures(512, 32)
    x = features.directions[:5] * 512**0.25
    got = random_feature_attention(x, features)
    assert got.isfinite().all()
    assert got.any(-1).all()


def test_nystrom_is_that_of_transformers() -> None:
    """With one head, for which its starting point is that of the matrix alone, and without its convolution."""
    from transformers import NystromformerConfig
    from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

    sizes = {"hidden_size": 8, "num_attention_heads": 1, "num_landmarks": 4, "segment_means_seq_len": 12}
    theirs = NystromformerSelfAttention(NystromformerConfig(**sizes, attention_probs_dropout_prob=0.0)).double().eval()
    x = torch.randn(2, 12, 8, dtype=torch.float64)
    with torch.no_grad():
        for linear in (theirs.query, theirs.key, theirs.value):
            linear.weight.normal_()
        theirs.conv.weight.zero_()
        for row in x:  # its starting point is that of the greatest number of a batch
            want = theirs(row[None])[0][0]
            got = Nystrom(4)(theirs.query(row), theirs.key(row), theirs.value(row))
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def test_latents_are_those_of_perceiver_in_transformers() -> None:
    from transformers import PerceiverConfig
    from transformers.models.perceiver.modeling_perceiver import PerceiverAttention

    config = PerceiverConfig(num_latents=3, d_latents=8, d_model=8, attention_probs_dropout_prob=0.0)
    shape = {"is_cross_attention": True, "qk_channels": 8, "v_channels": 8, "num_heads": 2}
    theirs = PerceiverAttention(config, **shape, q_dim=8, kv_dim=8, use_query_residual=False).double().eval()
    layer = double(InducedAttention(8, 3, 2))
    inner = theirs.get_submodule("self")
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_()
        for part in (inner.layernorm1, inner.layernorm2):  # the layer of regard has no norms: a block has them
            part.weight.fill_(1.0)
            part.bias.zero_()
        for name in ("query", "key", "value"):
            getattr(layer.read, name).load_state_dict(getattr(inner, name).state_dict())
        layer.read.out.load_state_dict(theirs.output.dense.state_dict())
        x = F.layer_norm(torch.randn(2, K, 8, dtype=torch.float64), (8,))
        layer.points.copy_(F.layer_norm(layer.points, (8,), eps=1e-12))
        want = theirs(layer.points.expand(2, -1, -1), inputs=x)[0]
    torch.testing.assert_close(layer.latents(x).out, want, rtol=1e-4, atol=1e-4)
