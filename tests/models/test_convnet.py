"""The small residual network: shapes of every size, gates where they belong, parity with transformers' ResNet."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.gates.catalogue import GATES
from regard.models.convnet import ConvNet, ResidualBlock


class Double(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.channels = channels

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1] == self.channels
        return 2 * x


def test_the_stem_takes_every_second_position() -> None:
    torch.manual_seed(0)
    every, second = ConvNet(1, 5, width=2).eval(), ConvNet(1, 5, width=2, stem_stride=2).eval()
    second.load_state_dict(every.state_dict())
    x = torch.randn(2, 1, 9, 6)
    torch.testing.assert_close(second.stem(x), every.stem(x)[:, :, ::2, ::2])
    assert second(x).shape == (2, 5)


def test_a_block_is_that_of_transformers() -> None:
    from transformers.models.resnet.modeling_resnet import ResNetBasicLayer

    theirs, ours = ResNetBasicLayer(5, 7, stride=2).eval(), ResidualBlock(5, 7, stride=2, gate=None).eval()
    for module in (*theirs.modules(), *ours.modules()):
        if isinstance(module, nn.BatchNorm2d):
            for t in (module.weight, module.bias, module.running_mean, module.running_var):
                nn.init.uniform_(t, 0.5, 1.5)
    pairs = {
        "layer.0.convolution": "first",
        "layer.0.normalization": "first_norm",
        "layer.1.convolution": "second",
        "layer.1.normalization": "second_norm",
        "shortcut.convolution": "skip.0",
        "shortcut.normalization": "skip.1",
    }
    for a, b in pairs.items():
        ours.get_submodule(b).load_state_dict(theirs.get_submodule(a).state_dict())
    x = torch.randn(2, 5, 9, 6)
    torch.testing.assert_close(ours(x), theirs(x))


def test_the_gate_stands_before_the_sum() -> None:
    torch.manual_seed(0)
    plain = ResidualBlock(5, 5, stride=1, gate=None).eval()
    gated = ResidualBlock(5, 5, stride=1, gate=Double).eval()
    gated.load_state_dict(plain.state_dict())
    x = torch.randn(2, 5, 4, 3)
    inner = plain.second_norm(plain.second(torch.relu(plain.first_norm(plain.first(x)))))
    torch.testing.assert_close(plain(x), torch.relu(x + inner))
    torch.testing.assert_close(gated(x), torch.relu(x + 2 * inner))
    net = ConvNet(1, 2, width=3, depths=(2, 1), gate=Double)
    assert [module.channels for module in net.modules() if isinstance(module, Double)] == [3, 3, 6]


@pytest.mark.parametrize(
    ("options", "x", "said"),
    [
        ({"depths": ()}, None, r"depths must be blocks of each stage, 1 or more, got \(\); try depths=\(1, 1, 1\)"),
        ({"depths": (1, 0)}, None, r"depths must be blocks of each stage, 1 or more, got \(1, 0\)"),
        ({}, (2, 8, 8), r"x must be \(images, 1 channels, height, width\), got \(2, 8, 8\); grey images have one"),
        ({}, (2, 3, 8, 8), r"x must be \(images, 1 channels, height, width\), got \(2, 3, 8, 8\)"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, Any], x: tuple[int, ...] | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ConvNet(1, 2, **options)(torch.zeros(x or (1, 1, 4, 4)))


def test_few_channels_last_do_not_break_memory() -> None:
    """A pointwise convolution with a stride does, in torch 2.13: places are left out before it."""
    torch.manual_seed(0)
    net = ConvNet(1, 5, width=2, depths=(1, 1, 1))
    assert all(m.kernel_size != (1, 1) or m.stride == (1, 1) for m in net.modules() if isinstance(m, nn.Conv2d))
    for size in (8, 7):
        x = torch.randn(20, size, size, 1).permute(0, 3, 1, 2)
        net(x).sum().backward()
    block, x = net.blocks[1].eval(), torch.randn(3, 2, 7, 5)
    strided = nn.functional.conv2d(x, block.skip[0].weight, stride=2)
    made = block.second_norm(block.second(torch.relu(block.first_norm(block.first(x)))))
    torch.testing.assert_close(block(x), torch.relu(block.skip[1](strided) + made))


@pytest.mark.parametrize(("dims", "size"), [(1, (13,)), (2, (13, 7)), (3, (5, 13, 7))])
def test_maps_of_any_rank(dims: int, size: tuple[int, ...]) -> None:
    net = ConvNet(2, 3, dims=dims, width=4, depths=(1, 1), stem_stride=2).eval()
    x = torch.randn(2, 2, *size)
    assert net(x).shape == (2, 3)
    # time is not strided
    halved = tuple(-(-n // 4) for n in size)
    assert net.features(x).shape[2:] == (halved if dims < 3 else (size[0], *halved[1:]))
    assert net.stride == (1 if dims == 3 else 4)
    with pytest.raises(
        ValueError, match=r"x must be \((images|clips), 2 channels, .*\), got .*; grey .* have one channel"
    ):
        net(x[:, :1])
    with pytest.raises(ValueError, match="ConvNet reads maps with 1, 2 or 3 axes of positions, got dims=4; clips have"):
        ConvNet(2, 3, dims=4)


def of_lengths(net: ConvNet, x: Tensor, lengths: list[int]) -> None:
    """Maps and logits in a batch are those of every clip alone, whatever stands behind its end."""
    together, logits = net.features(x, torch.tensor(lengths)), net(x, torch.tensor(lengths))
    for n, length in enumerate(lengths):
        alone = net.features(x[n : n + 1, :, :length])[0]
        torch.testing.assert_close(together[n][:, : alone.shape[1]], alone, rtol=0, atol=1e-10)
        assert not together[n][:, alone.shape[1] :].any()
        torch.testing.assert_close(logits[n], net(x[n : n + 1, :, :length])[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("gate", [None, *GATES])
@pytest.mark.parametrize("dims", [1, 3])
@torch.no_grad()
def test_a_clip_in_a_batch_is_the_clip_alone(dims: int, gate: str | None) -> None:
    torch.manual_seed(0)
    make = None if gate is None else lambda channels: GATES[gate](channels, dims)
    net = ConvNet(2, 3, dims=dims, width=4, depths=(1, 1), gate=make).double().eval()
    for module in net.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            nn.init.uniform_(module.bias, 0.5, 1.5)
    of_lengths(net, torch.randn(4, 2, 11, *(5, 7)[: dims - 1], dtype=torch.float64), [3, 11, 6, 3])


@pytest.mark.parametrize("dims", [1, 3])
@torch.no_grad()
def test_a_causal_map_reads_nothing_behind_a_position(dims: int) -> None:
    torch.manual_seed(0)
    net = ConvNet(2, 3, dims=dims, width=4, depths=(1, 1), causal=True).double().eval()
    x = torch.randn(1, 2, 12, *(5, 7)[: dims - 1], dtype=torch.float64)
    whole = net.features(x)
    for end in range(1, 13):
        part = net.features(x[:, :, :end])
        torch.testing.assert_close(whole[:, :, : part.shape[2]], part, rtol=0, atol=1e-10)
    of_lengths(net, x.expand(3, *x.shape[1:]), [5, 12, 1])
