"""SelfAttentionGAN: its norms, its attention, and who learns from what."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrize

import regard
from regard.attn.call import Need
from regard.models.sagan import MAPS, ConditionalBatchNorm, SelfAttentionGAN

SIZE, CHANNELS, CLASSES, NOISE = 12, 3, 5, 7


def small(attention: str = "whole", seed: int = 0) -> SelfAttentionGAN:
    torch.manual_seed(seed)
    return SelfAttentionGAN(SIZE, CHANNELS, CLASSES, noise=NOISE, width=4, attention=attention)


def asked(count: int = 11) -> tuple[Tensor, Tensor]:
    return torch.randn(count, NOISE), torch.arange(count) % CLASSES


def matrices(model: nn.Module) -> dict[str, Tensor]:
    """Every matrix that a layer of generator and discriminator multiplies with, as it does."""
    return {
        name: module.weight.detach().flatten(1)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | nn.Conv2d | nn.Embedding) and not name.startswith("average")
    }


@settings(max_examples=8, deadline=None)
@given(
    quarter=st.integers(1, 4),
    channels=st.sampled_from([1, 3]),
    classes=st.integers(1, 4),
    width=st.integers(1, 5),
    attention=st.sampled_from([*MAPS]),
    count=st.integers(1, 3),
)
def test_any_size(quarter: int, channels: int, classes: int, width: int, attention: str, count: int) -> None:
    model = SelfAttentionGAN(4 * quarter, channels, classes, noise=3, width=width, attention=attention).eval()
    y = torch.arange(count) % classes
    x = model(torch.randn(count, 3), y)
    assert x.shape == (count, channels, 4 * quarter, 4 * quarter)
    assert x.abs().max() <= 1
    assert model.discriminator(x, y).shape == (count,)


@pytest.mark.parametrize("training", [True, False])
def test_conditional_norm_is_torch_s_of_each_class(training: bool) -> None:
    torch.manual_seed(0)
    norm, x, y = ConditionalBatchNorm(3, 5), torch.randn(11, 3, 2, 7) + 1, torch.arange(11) % 5
    nn.init.normal_(norm.scale)
    nn.init.normal_(norm.shift)
    norm.train(training)
    plain = [nn.BatchNorm2d(3).train(training) for _ in range(5)]
    for label, other in enumerate(plain):
        other.load_state_dict({**norm.norm.state_dict(), "weight": norm.scale[label], "bias": norm.shift[label]})
    every = [other(x) for other in plain]
    want = torch.stack([every[label][n] for n, label in enumerate(y.tolist())])
    torch.testing.assert_close(norm(x, y), want)
    torch.testing.assert_close(norm.norm.running_var, plain[0].running_var)


def test_every_matrix_has_norm_one() -> None:
    model = small()
    z, y = asked()
    for _ in range(60):  # one power iteration each
        model.discriminator(model.draw(z, y).detach(), y)
    found = matrices(model)
    assert len(found) == 25
    assert all(parametrize.is_parametrized(model.get_submodule(name)) for name in found)
    for name, matrix in found.items():
        assert torch.linalg.matrix_norm(matrix, 2).item() == pytest.approx(1.0, abs=0.02), name


@pytest.mark.parametrize("attention", ["quarter", "half", "whole"])
def test_attention_begins_as_nothing_and_is_learned(attention: str) -> None:
    model, (z, y) = small(attention).eval(), asked()
    without = copy.deepcopy(model)
    for part in (without.average, without.discriminator):
        part.attention = nn.Identity()
    x = model(z, y)
    assert torch.equal(x, without(z, y))
    assert torch.equal(model.discriminator(x, y), without.discriminator(x, y))
    for part in (model.average, model.discriminator):
        nn.init.constant_(part.attention.residual, 0.8)
    assert not torch.allclose(model(z, y), x)
    assert not torch.allclose(model.discriminator(x, y), without.discriminator(x, y))


def test_the_block_is_seen() -> None:
    model, (z, y) = small("half").eval(), asked(2)
    with regard.record(model) as tape:
        x = model(z, y)
        model.discriminator(x, y)
    assert [one.name for one in tape] == ["average.attention.attention", "discriminator.attention.attention"]
    for one in tape:
        assert one.verified
        assert (one.kind, one.shape, one.grid) == ("self", (2, 1, 36, 36), (6, 6))
    block = model.average.attention
    seen = block.attend(torch.randn(2, 8, 6, 6), need=Need(weights=True)).weights
    torch.testing.assert_close(seen.sum(-1), torch.ones(2, 1, 36))


def test_a_discriminator_that_is_still_gives_gradients_and_takes_none() -> None:
    model, (z, y) = small().eval(), asked()
    x = model.draw(z, y)
    out = model.frozen_discriminator()(x, y)
    assert torch.equal(out, model.discriminator(x, y))
    (-out.sum()).backward()
    assert all(p.grad is None for p in model.discriminator.parameters())
    assert all(p.grad is not None for p in model.generator.parameters())
    assert all(p.requires_grad for p in model.discriminator.parameters())


def test_the_projection_is_as_it_is_written() -> None:
    model, (_, y) = small().eval(), asked()
    d, x = model.discriminator, torch.randn(11, CHANNELS, SIZE, SIZE)
    seen: list[Tensor] = []
    with d.real.register_forward_hook(lambda module, args, out: seen.append(args[0])):
        out = d(x, y)
    (pooled,) = seen
    want = F.linear(pooled, d.real.weight, d.real.bias)[:, 0] + torch.einsum("bd,bd->b", d.of_class.weight[y], pooled)
    torch.testing.assert_close(out, want)
    one_by_one = torch.cat([d(x[n : n + 1], y[n : n + 1]) for n in range(3)])
    torch.testing.assert_close(out[:3], one_by_one)


def test_the_average_follows() -> None:
    model, (z, y) = small(), asked()
    before = {name: t.clone() for name, t in model.average.state_dict().items()}
    for p in model.generator.parameters():
        nn.init.normal_(p)
    model.draw(z, y)
    model.update_ema(0.75)
    own = model.generator.state_dict()
    for name, t in model.average.state_dict().items():
        kept = 0.0 if name.endswith(("._u", "._v", "num_batches_tracked")) else 0.75
        torch.testing.assert_close(t, (kept * before[name] + (1 - kept) * own[name]).to(t.dtype), msg=name)
    assert not any(p.requires_grad for p in model.average.parameters())


def test_copies_and_states() -> None:
    model, (z, y) = small().eval(), asked()
    want = model(z, y)
    assert torch.equal(copy.deepcopy(model)(z, y), want)
    other = small(seed=1).eval()
    assert not torch.equal(other(z, y), want)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(z, y), want)
    torch.testing.assert_close(model.double()(z.double(), y).float(), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": 10}, "size must be a multiple of 4 for SelfAttentionGAN, .* got 10; try size=12"),
        ({"attention": "third"}, "unknown attention 'third'"),
        ({"noise": 0}, "noise must be a whole number"),
    ],
)
def test_a_model_that_cannot_be(options: dict[str, int], said: str) -> None:
    sizes = {"size": 8, "channels": 1, "classes": 2, **options}
    with pytest.raises(ValueError, match=said):
        SelfAttentionGAN(**sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("z", "y", "said"),
    [
        (torch.zeros(2, 6), torch.zeros(2).long(), r"z must be \(images, 7 numbers\), got \(2, 6\); try torch.randn"),
        (torch.zeros(2, 7), torch.zeros(3).long(), r"y must be one integer per image, 2 of them, got torch.int64"),
        (torch.zeros(2, 7), torch.zeros(2), r"y must be one integer .*, got torch.float32 \(2\); give the class"),
        (torch.zeros(2, 7), torch.tensor([0, 5]), "y must be classes from 0 to 4, got 0 to 5; build the model for"),
        (torch.zeros(2, 7), torch.tensor([-1, 0]), "y must be classes from 0 to 4, got -1 to 0"),
    ],
)
def test_questions_that_cannot_be(z: Tensor, y: Tensor, said: str) -> None:
    for call in (small(), small().draw):
        with pytest.raises(ValueError, match=said):
            call(z, y)


def test_images_that_are_no_such() -> None:
    with pytest.raises(ValueError, match=r"3 channels, 12, 12\), got \(2, 3, 8, 12\); scale the images to that size"):
        small().discriminator(torch.zeros(2, 3, 8, 12), torch.zeros(2).long())
