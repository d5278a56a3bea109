"""ConvSeq2Seq: its equations in explicit loops, torch's convolutions, every mechanism, its gradients and its errors."""

import math

import pytest
import torch
from tests.for_each import for_each
from tests.models.cases import SOURCE, TARGET, B, S, T, built, conv, given
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from regard import MECHANISMS, record
from regard.attn.call import Need
from regard.attn.stepwise import part_without_steps
from regard.layers.conv.gated_convolution import GatedConvolution, WeightNormLinear
from regard.models import ConvSeq2Seq

pytestmark = pytest.mark.usefixtures("float64")

# of the catalogue, what a decoder can call with one query at a time
STEPWISE = [n for n, make in MECHANISMS.items() if part_without_steps(make(8, 8)) is None]
HALF = math.sqrt(0.5)


def normed(layer: WeightNormLinear, x: Tensor) -> Tensor:  # "i" -> "o"
    rows = [g * (v @ x) / v.norm() for g, v in zip(layer.gain, layer.direction, strict=True)]
    return torch.stack(rows) + layer.bias


def gated(layer: GatedConvolution, window: list[Tensor]) -> Tensor:  # k of "c" -> "c"
    both = normed(layer.linear, torch.cat(window))
    return both[: layer.width] * both[layer.width :].sigmoid()


def plain_logits(model: ConvSeq2Seq, source: list[int], target: list[int]) -> list[Tensor]:
    """The paper's equations, position by position."""
    e = [model.source.weight[token] + model.source_place.table.weight[i] for i, token in enumerate(source)]
    x = [normed(model.encoder_first, each) for each in e]
    for layer in model.encoder:
        zero, side = torch.zeros(layer.width), layer.kernel // 2
        padded = [zero] * side + x + [zero] * side
        x = [(gated(layer, padded[i : i + layer.kernel]) + x[i]) * HALF for i in range(len(x))]
    z = [normed(model.encoder_last, each) for each in x]
    g = [model.target.weight[token] + model.target_place.table.weight[i] for i, token in enumerate(target)]
    y = [normed(model.decoder.first, each) for each in g]
    for layer in model.decoder.layers:
        kernel, width = layer.convolution.kernel, layer.convolution.width
        padded, out = [torch.zeros(width)] * (kernel - 1) + y, []
        for t in range(len(y)):
            h = gated(layer.convolution, padded[t : t + kernel])
            d = (normed(layer.query, h) + g[t]) * HALF
            a = torch.stack([d @ key for key in z]).softmax(0)
            c = sum(a[j] * (z[j] + e[j]) * HALF for j in range(len(z))) * math.sqrt(len(z))
            out.append(((h + normed(layer.context, c)) * HALF + y[t]) * HALF)
        y = out
    return [model.output.weight @ normed(model.decoder.last, each) + model.output.bias for each in y]


@torch.no_grad()
def test_loops() -> None:
    model, (source, lengths, target) = built(conv(kernel=3, decoder_layers=3)).eval(), given()
    got = model(source, lengths, target)
    for n in range(B):
        want = plain_logits(model, source[n, : lengths[n]].tolist(), target[n].tolist())
        torch.testing.assert_close(got[n], torch.stack(want), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("left", "right"), [(2, 0), (1, 1)])
def test_torch_convolution(left: int, right: int) -> None:
    """With torch's weight norm, convolution and gated linear unit, forward and backward."""
    torch.manual_seed(0)
    ours, theirs = GatedConvolution(5, 3), weight_norm(nn.Conv1d(5, 10, 3))
    matrix = ours.linear.direction.detach().unflatten(1, (3, 5)).transpose(1, 2)  # "2c c k"
    theirs.parametrizations.weight.original1.data.copy_(matrix)
    theirs.parametrizations.weight.original0.data.copy_(ours.linear.gain.detach().add(0.3)[:, None, None])
    ours.linear.gain.data.add_(0.3)
    ours.linear.bias.data.normal_()
    theirs.bias.data.copy_(ours.linear.bias)
    x = torch.randn(2, 7, 5)
    padded = nn.functional.pad(x.transpose(1, 2), (left, right))
    got, want = ours(x, left, right), nn.functional.glu(theirs(padded), dim=1).transpose(1, 2)
    torch.testing.assert_close(got, want)
    got.square().sum().backward()
    want.square().sum().backward()
    gradients = theirs.parametrizations.weight
    torch.testing.assert_close(ours.linear.gain.grad, gradients.original0.grad.flatten())
    wanted = gradients.original1.grad.transpose(1, 2).flatten(1)
    torch.testing.assert_close(ours.linear.direction.grad, wanted)


@for_each("name", STEPWISE)
@torch.no_grad()
def test_every_mechanism_goes_step_by_step(name: str) -> None:
    model, (source, lengths, target) = built(conv(attention=name, width=8, layers=1, decoder_layers=2)).eval(), given()
    whole = model.teacher_force(source, lengths, target, Need(weights=True))
    state = model.init_state(source, lengths)
    for t in range(T):
        step = model.step(target[:, t : t + 1], state, weights=True)
        state = step.state
        torch.testing.assert_close(step.logits, model.logits(whole.states)[:, t : t + 1])
        torch.testing.assert_close(step.weights, whole.weights[:, t : t + 1])


@torch.no_grad()
def test_the_alignment_is_the_mean_over_the_recorded_layers() -> None:
    model, args = built(conv(decoder_layers=3)).eval(), given()
    with record(model) as recording:
        weights = model.teacher_force(*args, Need(weights=True)).weights
    maps = [torch.as_tensor(item.weights[:]) for item in recording]
    assert len(maps) == 3
    assert [item.name for item in recording] == [f"decoder.layers.{n}.attention" for n in range(3)]
    torch.testing.assert_close(torch.stack([each.reshape(B, T, S) for each in maps]).mean(0), weights)


def test_the_encoders_gradient_is_scaled_in_training_alone() -> None:
    model, (source, lengths, target) = built(conv(decoder_layers=2)), given()

    def gradient() -> Tensor:
        model.zero_grad()
        model(source, lengths, target).square().sum().backward()
        return model.encoder_last.direction.grad.clone()

    scaled = gradient()
    torch.testing.assert_close(model.eval().requires_grad_(True) and gradient(), 4 * scaled)


def test_hard_attention_reports_the_samples_of_all_layers() -> None:
    torch.manual_seed(0)
    model, args = built(conv(attention="hard", decoder_layers=2)), given()
    output = model.teacher_force(*args)
    assert output.log_prob.shape == output.entropy.shape == (B, T)
    # a sentence of one token has one choice
    torch.testing.assert_close(output.log_prob[2], torch.zeros(T))
    assert (output.log_prob[1] < 0).all()


def test_first_activations_keep_their_scale() -> None:
    """The paper's initialisation: layers neither shrink nor blow up."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float32)
    model = ConvSeq2Seq(SOURCE, TARGET, width=128, hidden=128, layers=8, dropout=0.0).eval()
    source = model.encode(torch.randint(3, SOURCE, (4, 32)), torch.full((4,), 32))
    assert 0.3 < source.keys.std() / source.values.std() < 1.5


def test_errors() -> None:
    with pytest.raises(ValueError, match="kernel must be odd, so that the encoder looks as far back as ahead, got 4"):
        conv(kernel=4)()
    with pytest.raises(
        ValueError, match="attention='bidaf' does not fit a convolutional decoder: .* try attention='dot'"
    ):
        conv(attention="bidaf")()
    model, (source, lengths, target) = conv(longest=6)(), given()
    with pytest.raises(ValueError, match="the source has 7 tokens, but positions='learned' has longest=6 positions"):
        model(source, lengths, target)
    state = model.init_state(source[:, :6], lengths.clamp_max(6))
    for _ in range(6):
        state = model.step(target[:, :1], state).state
    with pytest.raises(ValueError, match="the target has 7 tokens, .* or with positions='sinusoidal'"):
        model.step(target[:, :1], state)
