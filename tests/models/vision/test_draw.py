"""DRAW: the equation of its filters, the bound, steps, samples, what it learns, and its errors."""

import copy
import math
import runpy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Bernoulli, Normal, kl_divergence

import regard
from regard.models import DRAW
from regard.models.vision.draw import DRAWState, GaussianGrid, divergence, gaussian_filters

pytestmark = pytest.mark.usefixtures("float64")

HEIGHT, WIDTH, STEPS, LATENT, HIDDEN = 7, 11, 3, 2, 13


def built(attention: str = "grid", **options: int) -> DRAW:
    """With grids and a first state that differ from those of a new model."""
    torch.manual_seed(0)
    sizes = {"steps": STEPS, "latent": LATENT, "hidden": HIDDEN, "read": 5, "write": 3, **options}
    model = DRAW(2, (HEIGHT, WIDTH), attention=attention, **sizes)
    for first in (model.first_canvas, model.first_encoder, model.first_decoder):
        nn.init.normal_(first, std=0.5)
    return model


def fixed(cells: int, size: tuple[int, int], *parameters: float) -> GaussianGrid:
    """g̃_X, g̃_Y, log σ², log δ̃ and log γ that depend on nothing."""
    grid = GaussianGrid(1, cells, size)
    nn.init.zeros_(grid.project.weight)
    grid.project.bias.data = torch.tensor(parameters)
    return grid


def given(count: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(count, 2, HEIGHT, WIDTH, generator=generator)
    return x, torch.randn(count, STEPS, LATENT, generator=generator)


def plain_filters(centre: float, stride: float, variance: float, cells: int, side: int) -> Tensor:
    """Gregor et al. 2015, equations 19 and 25, one pixel after the other."""
    rows = []
    for i in range(1, cells + 1):
        mean = centre + (i - cells / 2 - 0.5) * stride
        row = [math.exp(-((a - mean) ** 2) / (2 * variance)) for a in range(1, side + 1)]
        rows.append([each / sum(row) for each in row])
    return torch.tensor(rows)


def test_the_equations_of_the_grid() -> None:
    parameters = 0.3, -0.2, 0.4, -0.5, 0.7
    filters = fixed(5, (HEIGHT, WIDTH), *parameters)(torch.zeros(2, 1))
    right, down, variance, stride, intensity = parameters
    centre_x, centre_y = (WIDTH + 1) / 2 * (right + 1), (HEIGHT + 1) / 2 * (down + 1)
    stride = (max(WIDTH, HEIGHT) - 1) / (5 - 1) * math.exp(stride)
    across = plain_filters(centre_x, stride, math.exp(variance), 5, WIDTH)
    downward = plain_filters(centre_y, stride, math.exp(variance), 5, HEIGHT)
    torch.testing.assert_close(filters.across[1], across)
    torch.testing.assert_close(filters.down[1], downward)
    torch.testing.assert_close(filters.box[0], torch.tensor([centre_x, centre_y, stride, math.exp(variance / 2)]))
    x, patch = torch.randn(2, 3, HEIGHT, WIDTH), torch.randn(2, 3, 5, 5)
    read, written = torch.zeros(3, 5, 5), torch.zeros(3, HEIGHT, WIDTH)
    for i in range(5):
        for j in range(5):
            weight = downward[i].outer(across[j])
            read[:, i, j] = math.exp(intensity) * (weight * x[0]).sum((1, 2))
            written += weight * patch[0, :, i, j, None, None] / math.exp(intensity)
    torch.testing.assert_close(filters.read(x)[0], read)
    torch.testing.assert_close(filters.write(patch)[0], written)


def test_a_narrow_grid_on_the_whole_image_samples_it() -> None:
    x = torch.randn(2, 3, 9, 9)
    for cells in (9, 5, 3):
        read = fixed(cells, (9, 9), 0.0, 0.0, -7.0, 0.0, 0.0)(torch.zeros(2, 1)).read(x)
        torch.testing.assert_close(read, F.interpolate(x, (cells, cells), mode="bilinear", align_corners=True))


def test_a_shifted_image_is_a_shifted_read() -> None:
    patch, down, right = torch.randn(1, 1, 5, 5), 3, 4
    x, moved = torch.zeros(2, 1, 1, 40, 40).unbind(0)
    x[..., 15:20, 14:19] = patch
    moved[..., 15 + down : 20 + down, 14 + right : 19 + right] = patch
    one, other = (torch.tensor([17.0]) + shift for shift in (0.0, 3.0))
    stride, variance = torch.tensor([1.3]), torch.tensor([0.6])

    def read(image: Tensor, centre_y: Tensor, centre_x: Tensor) -> Tensor:
        rows, columns = (gaussian_filters(centre, stride, variance, 4, 40) for centre in (centre_y, centre_x))
        return rows.unsqueeze(1) @ image @ columns.mT.unsqueeze(1)

    want = read(x, one, one)
    assert want.abs().max() > 0.1
    torch.testing.assert_close(read(moved, other, one + right), want)
    assert not torch.allclose(read(moved, one, one), want)


def test_extremes_are_finite() -> None:
    """Parameters far beyond the limits, of every sign, in both precisions: filters sum to one, gradients are finite."""
    for dtype in (torch.float32, torch.float64):
        for size in (1e3, 1e30):
            signs = torch.cartesian_prod(*[torch.tensor([-1.0, 0.0, 1.0], dtype=dtype)] * 5)
            grid = GaussianGrid(5, 4, (HEIGHT, WIDTH)).to(dtype)
            grid.project.weight.data = size * torch.eye(5, dtype=dtype)
            x = torch.rand(len(signs), 2, HEIGHT, WIDTH, dtype=dtype)
            filters = grid(signs.requires_grad_())
            for each in (filters.down, filters.across):
                torch.testing.assert_close(each.sum(-1), torch.ones_like(each[..., 0]))
            out = filters.write(filters.read(x))
            assert out.isfinite().all()
            out.sum().backward()
            assert signs.grad is not None
            assert signs.grad.isfinite().all()
    model = built().float()
    assert model.write_grid is not None
    model.write_grid.project.bias.data.fill_(1e30)
    x, noise = given()
    bound = model(x.float(), noise.float())
    bound.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_gradients() -> None:
    parameters = torch.tensor([[3.1, 4.2], [0.8, 1.3], [0.7, 0.4]], requires_grad=True)
    assert torch.autograd.gradcheck(lambda p: gaussian_filters(*p, 3, 7), (parameters,))
    x, noise = given(2)
    for attention in ("grid", "none"):
        model = built(attention)
        assert torch.autograd.gradcheck(lambda *_, m=model: m(x, noise), (*model.parameters(),), fast_mode=True)
        model(x, noise).sum().backward()
        assert all(p.grad is not None and p.grad.any() for p in model.parameters())


@torch.no_grad()
def test_the_bound() -> None:
    x, noise = given()
    for attention in ("grid", "none"):
        model = built(attention)
        drawn = model.draw(x, noise)
        likelihood = Bernoulli(drawn.canvases[:, -1], validate_args=False).log_prob(x).sum((1, 2, 3))
        torch.testing.assert_close(drawn.reconstruction, -likelihood)
        torch.testing.assert_close(model(x, noise), drawn.bound)
        torch.testing.assert_close(drawn.bound, drawn.reconstruction + drawn.divergence.sum(1))
        assert drawn.divergence.shape == (4, STEPS)
        assert (drawn.divergence > 0).all()
    mean, log_std = torch.randn(2, 5, 3)
    want = kl_divergence(Normal(mean, log_std.exp()), Normal(torch.zeros(5, 3), torch.ones(5, 3))).sum(-1)
    torch.testing.assert_close(divergence(mean, log_std), want)


@torch.no_grad()
def test_a_posterior_that_is_the_prior_has_no_divergence() -> None:
    """Then the canvas is one of the samples, from the same noise."""
    model, (x, noise) = built(), given()
    nn.init.zeros_(model.posterior.weight)
    nn.init.zeros_(model.posterior.bias)
    drawn = model.draw(x, noise)
    assert not drawn.divergence.any()
    torch.testing.assert_close(drawn.canvases, model.sample(len(x), noise))


@torch.no_grad()
def test_steps_are_the_whole_and_images_one_by_one() -> None:
    x, noise = given()
    for attention in ("grid", "none"):
        model = built(attention)
        drawn, state = model.draw(x, noise), model.initial_state(len(x))
        for t in range(STEPS):
            before = copy.deepcopy(state)
            step = model.step(x, state, noise[:, t])
            assert _equal(state, before)
            state = step.state
            torch.testing.assert_close(state.canvas.sigmoid(), drawn.canvases[:, t])
            torch.testing.assert_close(divergence(step.mean, step.log_std), drawn.divergence[:, t])
            assert (step.read is None) == (step.write is None) == (attention == "none")
            if step.read is not None:
                assert torch.equal(step.read, drawn.reads[:, t])
                assert torch.equal(step.write, drawn.writes[:, t])
        for n in range(len(x)):
            torch.testing.assert_close(model(x[n : n + 1], noise[n : n + 1]), drawn.bound[n : n + 1])


def _equal(state: DRAWState, other: DRAWState) -> bool:
    tensors, others = ((each.canvas, *each.encoder, *each.decoder) for each in (state, other))
    return all(torch.equal(one, two) for one, two in zip(tensors, others, strict=True))


@torch.no_grad()
def test_without_attention_one_step_is_a_plain_autoencoder() -> None:
    """encoder, z = μ + σ ε, decoder: the image reaches the canvas through z alone."""
    model, (x, noise) = built("none", steps=1), given()
    h = model.first_encoder.expand(len(x), -1), torch.zeros(len(x), HIDDEN)
    seen = torch.cat([x.flatten(1), (x - model.first_canvas.sigmoid()).flatten(1)], 1)
    seen = torch.cat([seen, model.first_decoder.expand(len(x), -1)], 1)
    mean, log_std = model.posterior(model.encoder(seen, h)[0]).chunk(2, -1)
    z = mean + log_std.exp() * noise[:, 0]
    decoded = model.decoder(z, (model.first_decoder.expand(len(x), -1), torch.zeros(len(x), HIDDEN)))[0]
    canvas = model.first_canvas + model.write(decoded).view_as(x)
    drawn = model.draw(x, noise[:, :1])
    torch.testing.assert_close(drawn.canvases[:, 0], canvas.sigmoid())
    assert drawn.reads is drawn.writes is None


@torch.no_grad()
def test_samples_of_a_seed_repeat() -> None:
    model = built()
    torch.manual_seed(3)
    samples = model.sample(4)
    assert samples.shape == (4, STEPS, 2, HEIGHT, WIDTH)
    torch.manual_seed(3)
    assert torch.equal(model.sample(4), samples)
    assert not torch.equal(model.sample(4), samples)
    noise = torch.randn(4, STEPS, LATENT)
    torch.testing.assert_close(model.sample(1, noise[2:3])[0], model.sample(4, noise)[2])


@torch.no_grad()
def test_reads_are_recorded() -> None:
    model, (x, noise) = built().eval(), given()
    want = model(x, noise)
    with regard.record(model) as recording:
        assert torch.equal(model(x, noise), want)
    (item,) = recording
    assert (item.name, item.kind, item.grid) == ("read_grid", "glimpse", (HEIGHT, WIDTH))
    assert item.shape == (4, 1, STEPS, HEIGHT * WIDTH)
    assert item.verified
    torch.testing.assert_close(item.weights.dense().sum(-1), torch.ones(4, 1, STEPS))


@torch.no_grad()
def test_state_dict_and_deepcopy_round_trip() -> None:
    model, (x, noise) = built(), given()
    want = model(x, noise)
    assert torch.equal(copy.deepcopy(model)(x, noise), want)
    fresh = DRAW(2, (HEIGHT, WIDTH), steps=STEPS, latent=LATENT, hidden=HIDDEN, read=5, write=3)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x, noise), want)
    low = model.to(torch.bfloat16)(x.bfloat16(), noise.bfloat16())
    torch.testing.assert_close(low, want.float(), rtol=0.02, atol=0, check_dtype=False)


def test_it_learns() -> None:
    """A row of ones somewhere: less than pixels of known frequency need that do not depend on each other."""
    torch.manual_seed(0)
    x = torch.eye(6)[:, None, :, None].expand(-1, -1, -1, 6)
    independent = F.binary_cross_entropy(x.mean(0).expand_as(x), x, reduction="none").sum((1, 2, 3)).mean()
    model = DRAW(1, (6, 6), steps=2, latent=4, hidden=32, read=6, write=6)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(90):
        loss = model(x.repeat(4, 1, 1, 1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.8 * independent.item()


def test_the_example() -> None:
    torch.set_default_dtype(torch.float32)
    example = runpy.run_path(str(Path(__file__).parents[3] / "examples/draw_digits.py"))
    test = example["binary_digits"]("test")
    assert test.unique().tolist() == [0.0, 1.0]
    model = example["train"]("DRAW", 0, 1)
    assert 30 < example["bound"](model, test, 1) < 64 * math.log(2) + 5


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(ValueError, match="unknown attention 'gird'; did you mean 'grid'"):
        DRAW(1, (8, 8), attention="gird")
    with pytest.raises(ValueError, match="steps must be a whole number, 1 or more, for DRAW, got 0"):
        DRAW(1, (8, 8), steps=0)
    model = DRAW(1, (8, 8), steps=2, latent=3)
    with pytest.raises(ValueError, match=r"x must be \(images, 1, 8, 8\), got .*x.unsqueeze\(1\)"):
        model(torch.zeros(2, 8, 8))
    with pytest.raises(ValueError, match="x must be pixels from 0 to 1, got 0 to 16; divide by the greatest value"):
        model(torch.tensor([0.0, 16.0]).repeat(32).view(1, 1, 8, 8))
    with pytest.raises(ValueError, match=r"noise must be \(images, steps, latent\) = \(4, 2, 3\), got .*torch.randn"):
        model.sample(4, torch.zeros(4, 3))
