"""SpatialTransformerNetwork: the equation of its sampler, gradients, what it finds, and its errors."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.models import SpatialTransformerNetwork
from regard.models.vision.spatial_transformer import SpatialTransformer

pytestmark = pytest.mark.usefixtures("float64")


def moved(layer: SpatialTransformer) -> SpatialTransformer:
    """With a transform that depends on the image."""
    torch.manual_seed(0)
    nn.init.normal_(layer.theta.weight, std=0.5)
    nn.init.normal_(layer.theta.bias, std=0.3)
    return layer


def plain_sample(x: Tensor, matrix: Tensor, crop: tuple[int, int]) -> Tensor:  # "c h w", "2 3" -> "c i j"
    """Jaderberg et al. 2015, equations 1 and 5, one cell after the other."""
    _, height, width = x.shape
    out = torch.zeros(len(x), *crop)
    for i in range(crop[0]):
        for j in range(crop[1]):
            centre = torch.tensor([(2 * j + 1) / crop[1] - 1, (2 * i + 1) / crop[0] - 1, 1.0])
            right, down = matrix @ centre
            # −1 and 1 are the edges of the image, pixel n has its centre at n + 1/2
            column, row = ((right + 1) * width - 1) / 2, ((down + 1) * height - 1) / 2
            for n in range(height):
                for m in range(width):
                    weight = (1 - abs(column - m)).clamp_min(0) * (1 - abs(row - n)).clamp_min(0)
                    out[:, i, j] += weight * x[:, n, m]
    return out


@pytest.mark.parametrize("transform", ["attention", "affine"])
@torch.no_grad()
def test_the_equation(transform: str) -> None:
    layer = moved(SpatialTransformer(2, (3, 5), transform=transform, hidden=7))
    x = torch.randn(3, 2, 7, 11)
    got, matrices = layer(x), layer.matrix(x)
    assert got.shape == (3, 2, 3, 5)
    for image, matrix, crop in zip(x, matrices, got, strict=True):
        torch.testing.assert_close(crop, plain_sample(image, matrix, (3, 5)))
    if transform == "attention":
        assert torch.equal(matrices[:, 0, 0], matrices[:, 1, 1])
        assert not matrices[:, 0, 1].any()
        assert not matrices[:, 1, 0].any()
    assert matrices.std(0).max() > 0.01


def test_it_is_the_identity_at_first() -> None:
    x = torch.randn(2, 1, 6, 4)
    for transform in ("attention", "affine"):
        layer = SpatialTransformer(1, (6, 4), transform=transform)
        torch.testing.assert_close(layer(x), x)


def test_gradients() -> None:
    layer = moved(SpatialTransformer(1, (3, 2), hidden=3))
    x = torch.randn(2, 1, 5, 7, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: layer(x), (x, *layer.theta.parameters()), fast_mode=True)
    model = SpatialTransformerNetwork(2, (7, 9), 3, width=4, depths=(1,), hidden=5)
    moved(model.transformer)
    model(torch.randn(5, 2, 7, 9)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert all(p.grad.any() for p in model.transformer.parameters())


def test_the_sampled_pixels_are_recorded() -> None:
    model = SpatialTransformerNetwork(2, (7, 9), 3, width=4, depths=(1,), hidden=5).eval()
    moved(model.transformer)
    x = torch.randn(3, 2, 7, 9)
    with torch.no_grad():
        want = model(x)
        with regard.record(model) as recording:
            got = model(x)
    assert torch.equal(got, want)
    (item,) = recording
    assert (item.name, item.kind, item.grid, item.shape) == ("transformer", "glimpse", (7, 9), (3, 1, 1, 63))
    assert item.verified
    read = torch.einsum("bp,bcp->bc", item.weights.dense()[:, 0, 0], x.flatten(2))
    torch.testing.assert_close(read, model.transformer(x).mean((2, 3)))


def test_half_types_keep_their_places() -> None:
    """A shift of 2⁻¹⁰ moves an image of 512 pixels by a quarter of one; bfloat16 has no such number beside 1."""
    layer = SpatialTransformer(1, (512, 4)).bfloat16()
    nn.init.constant_(layer.theta.bias, 2**-10)
    x = torch.arange(512.0).view(1, 1, 512, 1).expand(-1, -1, -1, 4).bfloat16()
    grid = layer.grid(x)
    want = layer.float().grid(x.float())
    assert grid.dtype == torch.float32
    torch.testing.assert_close(grid, want, rtol=0, atol=1e-6)
    got = layer.bfloat16()(x)
    assert got.dtype == torch.bfloat16
    sampled = F.grid_sample(x.float(), want, align_corners=False)
    torch.testing.assert_close(got, sampled.bfloat16())


def test_an_empty_batch_has_no_crops() -> None:
    network = SpatialTransformerNetwork(2, (8, 8), 3, width=4).eval()
    assert network(torch.zeros(0, 2, 8, 8)).shape == (0, 3)


def test_state_dict_and_deepcopy_round_trip() -> None:
    model = SpatialTransformerNetwork(1, (7, 9), 3, width=4, depths=(1,)).eval()
    x = torch.randn(2, 1, 7, 9)
    assert torch.equal(copy.deepcopy(model)(x), model(x))
    fresh = SpatialTransformerNetwork(1, (7, 9), 3, width=4, depths=(1,)).eval()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(x), model(x))
    assert model.transformer.crop == (4, 5)
    torch.testing.assert_close(model.float()(x.float()), fresh(x).float(), rtol=1e-4, atol=1e-4)


def test_a_place_is_found() -> None:
    """A bright square somewhere must be the whole crop."""
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    layer = SpatialTransformer(1, (4, 4), hidden=16)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.002)

    def batch() -> Tensor:
        x = torch.zeros(32, 1, 12, 12)
        for image, (row, column) in zip(x, torch.randint(0, 9, (32, 2)).tolist(), strict=True):
            image[:, row : row + 4, column : column + 4] = 1.0
        return x

    before = F.mse_loss(layer(batch()), torch.ones(32, 1, 4, 4)).item()
    for _ in range(50):
        loss = F.mse_loss(layer(batch()), torch.ones(32, 1, 4, 4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.2 * before


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(ValueError, match="unknown transform 'afine'; did you mean 'affine'"):
        SpatialTransformer(1, (3, 3), transform="afine")
    with pytest.raises(ValueError, match="height must be a whole number, 1 or more, for SpatialTransformer, got 0"):
        SpatialTransformer(1, (0, 3))
    with pytest.raises(ValueError, match=r"x must be \(images, 1 channels, height, width\), got .*x.unsqueeze\(1\)"):
        SpatialTransformer(1, (3, 3))(torch.zeros(2, 5, 5))
