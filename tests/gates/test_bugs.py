"""Bugs of popular collections that cannot happen here, each test named after one."""

import math

import pytest
import torch
from tests.for_each import for_each
from torch import nn

from regard import GATES, Need, gate
from regard.gates import (
    BAM,
    CBAM,
    CSRA,
    ChannelGate,
    External,
    ExternalBlock,
    MagnitudeSaliency,
    MaxSaliency,
    MultiHeadExternal,
    SimAM,
    SpatialGate,
    SqueezeExcite,
)

every = for_each("name", GATES)


@pytest.mark.parametrize("size", [1, 3, 5, 6, 7, 8, 14])
@pytest.mark.parametrize("dilation", [1, 2, 4])
def test_bam_with_padding_unlike_its_dilation_shrank_the_map(size: int, dilation: int) -> None:
    x = torch.randn(2, 32, size, size)
    weights = BAM(32, dilation=dilation).weights(x)
    assert weights.shape == x.shape
    if size > 1:
        assert weights[0, 0].unique().numel() > 1, "the map of places has become one number"


def test_bam_raised_for_a_batch_of_one_in_training() -> None:
    for shape in ((1, 32, 5, 8), (1, 32, 1, 1)):
        module = BAM(32).train()
        before = module.norm.running_mean.clone()
        out = module(torch.randn(shape))
        assert out.isfinite().all()
        out.sum().backward()
        # one value has no statistics: what it is normalised by is what is known, and stays
        assert torch.equal(module.norm.running_mean, before)


@pytest.mark.parametrize(
    "module", [BAM(8), CBAM(8), SpatialGate(), ExternalBlock(8)], ids=lambda module: type(module).__name__
)
def test_batch_norm_of_a_single_value_raised(module: nn.Module) -> None:
    assert module.train()(torch.randn(1, 8, 1, 1)).isfinite().all()


@every
def test_psa_wrote_into_its_input_and_muse_replaced_its_parameters(name: str) -> None:
    module, x = gate(name, 6), torch.randn(3, 6, 5, 7)
    parameters = dict(module.named_parameters())
    before = [t.detach().clone() for t in (x, *parameters.values())]
    module(x)
    module(x.requires_grad_()).sum().backward()
    assert all(p is parameters[key] for key, p in module.named_parameters())
    assert all(torch.equal(t, old) for t, old in zip((x, *parameters.values()), before, strict=True))


def masked_map() -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.ones(2, 5, 7, dtype=torch.bool)
    mask[0, 3:], mask[1, :, 4:] = False, False
    return torch.randn(2, 8, 5, 7), mask


@pytest.mark.parametrize("module", [External(8), MultiHeadExternal(8, 2)], ids=["one head", "several"])
def test_emsa_masked_after_the_softmax(module: nn.Module) -> None:
    x, mask = masked_map()
    got = module.attend(x, mask=mask, need=Need(weights=True))
    assert got.out.isfinite().all()
    total = got.weights.sum(-1)
    seen = mask.flatten(1) if total.ndim == 2 else mask.flatten(1).unsqueeze(1).expand_as(total)
    torch.testing.assert_close(total, seen.float())


@pytest.mark.parametrize("module", [External(8), MultiHeadExternal(8, 2)], ids=["one head", "several"])
def test_external_attention_depended_on_padding(module: nn.Module) -> None:
    x, mask = masked_map()
    other = torch.where(mask.unsqueeze(1), x, torch.full_like(x, 1e4))
    out = module(x, mask=mask)
    torch.testing.assert_close(out, module(other, mask=mask))
    assert not out[~mask.unsqueeze(1).expand_as(out)].any()
    # a masked place is an absent one
    torch.testing.assert_close(out[:1, :, :3], module(x[:1, :, :3]))


@pytest.mark.parametrize("module", [External(8), MultiHeadExternal(8, 2)], ids=["one head", "several"])
def test_self_attention_gave_nan_for_an_empty_row(module: nn.Module) -> None:
    x = torch.randn(2, 8, 5, 7, requires_grad=True)
    mask = torch.zeros(2, 5, 7, dtype=torch.bool)
    mask[1] = True
    out = module(x, mask=mask)
    assert not out[0].any()
    out.sum().backward()
    assert x.grad.isfinite().all()
    assert not x.grad[0].any()


def test_external_attention_divided_by_nothing_for_large_scores() -> None:
    module = External(8)
    x = (1e4 * torch.randn(2, 8, 5, 7)).requires_grad_()
    got = module.attend(x, need=Need(weights=True))
    torch.testing.assert_close(got.weights.sum(-1), torch.ones(2, 35))
    got.out.sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("module", [External(256), MultiHeadExternal(256)], ids=["one head", "several"])
def test_outputs_were_thousands_of_times_too_small(module: nn.Module) -> None:
    assert 0.02 < module(torch.randn(2, 256, 14, 14)).std() < 5


@pytest.mark.parametrize("kind", [CBAM, ChannelGate, SqueezeExcite, BAM])
@pytest.mark.parametrize("channels", [1, 3, 15])
def test_fewer_channels_than_the_reduction_made_a_layer_of_no_width(kind: type[nn.Module], channels: int) -> None:
    module = kind(channels).eval()
    assert all(p.numel() for p in module.parameters())
    with torch.no_grad():
        for key, value in module.named_parameters():
            if key.endswith("down.weight"):
                value.abs_()  # so that relu lets something through
    weights = module.weights(torch.rand(2, channels, 5, 7))
    assert weights.unique().numel() > 1, "a constant gate"


def test_cbam_had_no_batch_norm_and_a_kernel_of_49() -> None:
    module = CBAM(32)
    assert module.spatial.conv.weight.shape == (1, 2, 7, 7)
    assert module.spatial.conv.bias is None
    assert module.spatial.norm.momentum == 0.01


def test_cbam_checkpoints_differ_in_the_order_of_max_and_mean() -> None:
    first, second = CBAM(8, order="max-mean").eval(), CBAM(8, order="mean-max").eval()
    state = first.state_dict()
    state["spatial.conv.weight"] = state["spatial.conv.weight"].flip(1)
    second.load_state_dict(state)
    x = torch.randn(2, 8, 5, 7)
    torch.testing.assert_close(first(x), second(x))


def test_csra_did_not_normalise_its_classifier() -> None:
    module, x = CSRA(8, 3), torch.randn(2, 8, 5, 7)
    want = module(x)
    with torch.no_grad():
        module.weight *= 7
    torch.testing.assert_close(module(x), want)
    with torch.no_grad():
        module.weight[:, 0] = 0
    assert module(x).isfinite().all(), "x / |x| at 0"


def test_csra_had_no_temperature() -> None:
    x = torch.randn(2, 8, 5, 7)
    weights = [
        CSRA(8, 3, heads=1, temperatures=[t], strength=1.0).attend(x, need=Need(weights=True)).weights - 1 / 35
        for t in (1.0, 8.0, 99.0)
    ]
    peaks = [weight.amax(-1).mean() for weight in weights]
    assert peaks[0] < peaks[1] < peaks[2]
    assert peaks[2] == pytest.approx(1.0)
    torch.testing.assert_close(weights[1].sum(-1), torch.ones(2, 1, 3))


@pytest.mark.parametrize("shape", [(2, 3, 1, 1), (2, 3, 1), (2, 3, 1, 1, 1)])
def test_simam_was_nan_at_one_place(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, requires_grad=True)
    out = SimAM()(x)
    half = 1 / (1 + math.exp(-0.5))
    torch.testing.assert_close(out, half * x)
    out.sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, half))


def test_simam_of_a_constant_channel() -> None:
    x = torch.full((2, 3, 5, 7), 2.0, requires_grad=True)
    SimAM()(x).sum().backward()
    assert x.grad.isfinite().all()


def test_ufo_divided_by_a_norm_of_zero() -> None:
    x = torch.zeros(2, 3, 5, 7, requires_grad=True)
    for module in (MagnitudeSaliency(), MagnitudeSaliency(1.0), SimAM(), MaxSaliency()):
        out = module(x)
        assert not out.any()
        assert torch.autograd.grad(out.sum(), x)[0].isfinite().all()


# the cell and the module read a map row by row, in order, and the frequencies of fca come axis by axis
@pytest.mark.parametrize("name", [name for name in GATES if name not in ("gated-cell", "attention-module", "fca")])
@pytest.mark.parametrize("space", [(3, 11), (11, 3)])
def test_the_authors_bam_pooled_by_height_alone(name: str, space: tuple[int, int]) -> None:
    """So maps that are not square broke. A map turned on its side is weighed the same, turned."""
    module, x = gate(name, 6).eval(), torch.randn(2, 6, *space)
    turned = [p for p in module.parameters() if p.ndim == 4 and p.shape[-1] > 1]
    with torch.no_grad():
        for p in turned:
            p.copy_((p + p.transpose(-1, -2)) / 2)
        parts = {"coordinate": "up", "strip-pooling": "strips", "triplet": "branches"}
        if name in parts:  # the layers of the two axes
            *_, first, second = getattr(module, parts[name])
            second.load_state_dict(first.state_dict())
    torch.testing.assert_close(module(x.transpose(2, 3)), module(x).transpose(2, 3), rtol=1e-5, atol=1e-5)
