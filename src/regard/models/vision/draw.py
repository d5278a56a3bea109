"""DRAW: a recurrent variational autoencoder that reads an image and writes on a canvas by grids of Gaussian filters."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn import observer
from regard.common import checks
from regard.kernels.precision import widen

ATTENTIONS = ("grid", "none")
# |g̃| and the logarithms of variance, stride and intensity are at most this: a filter never divides by 0 or by ∞
_MOST = 8.0


class Filters(NamedTuple):
    """The filters of one grid per image; `box` is its centre, stride and standard deviation, in pixels from 1."""

    down: Tensor  # F_Y, "b n h"
    across: Tensor  # F_X, "b n w"
    intensity: Tensor  # γ, "b"
    box: Tensor  # g_X, g_Y, δ, σ: "b 4"

    def read(self, x: Tensor) -> Tensor:  # "b c h w" -> "b c n n"
        """γ F_Y x F_Xᵀ  (eq. 27)."""
        return self.intensity[:, None, None, None] * self._mean(x)

    def write(self, patch: Tensor) -> Tensor:  # "b c n n" -> "b c h w"
        """F_Yᵀ w F_X / γ  (eq. 29)."""
        return self.down.mT.unsqueeze(1) @ patch @ self.across.unsqueeze(1) / self.intensity[:, None, None, None]

    def observe(self, owner: nn.Module, x: Tensor) -> None:
        """Reports the mean over all filters of what they read, without γ."""
        attention_observer = observer.current_observer()
        if attention_observer is not None:
            weights = torch.einsum("bih,bjw->bhw", self.down, self.across) / self.down.shape[1] ** 2
            attention_observer.on_weighted("glimpse", owner, weights, x, self._mean(x).mean((2, 3)))

    def _mean(self, x: Tensor) -> Tensor:
        return self.down.unsqueeze(1) @ x @ self.across.mT.unsqueeze(1)


def gaussian_filters(centre: Tensor, stride: Tensor, variance: Tensor, cells: int, side: int) -> Tensor:  # "b" each
    """F_ia = exp(−(a − μ_i)² / 2σ²) / Z_i, μ_i = g + (i − N/2 − ½) δ, for pixels a = 1 … side: "b n side"
    (Gregor et al. 2015, eq. 19, 20, 25 and 26).

    Σ_a F_ia = 1, also for a filter far outside of the image: it reads the nearest pixel.
    """
    cell = torch.arange(cells, dtype=centre.dtype, device=centre.device) - (cells - 1) / 2
    mean = centre[:, None] + cell * stride[:, None]  # "b n"
    pixel = torch.arange(1, side + 1, dtype=centre.dtype, device=centre.device)
    distance = (pixel - mean[..., None]).square()
    # relative to the nearest pixel, which divides numerator and Z by the same
    weights = torch.exp((distance.detach().amin(-1, keepdim=True) - distance) / (2 * variance[:, None, None]))
    return weights / weights.sum(-1, keepdim=True)


class GaussianGrid(nn.Module):
    """(g̃_X, g̃_Y, log σ², log δ̃, log γ) = W h + b: N × N filters on an image of A × B pixels
    (Gregor et al. 2015, eq. 21 to 24).

    g_X = (A + 1)/2 (g̃_X + 1), g_Y = (B + 1)/2 (g̃_Y + 1), δ = (max(A, B) − 1)/(N − 1) δ̃: around zero the grid covers the
    image. All five are limited to ±8, which training does not reach.
    """

    def __init__(self, dim: int, cells: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.cells, self.size = cells, size
        self.project = nn.Linear(dim, 5)

    def forward(self, h: Tensor) -> Filters:  # "b d"
        # half types cannot tell the pixels of a large image
        right, down, variance, stride, intensity = widen(self.project(h)).clamp(-_MOST, _MOST).unbind(-1)
        height, width = self.size
        centre_x, centre_y = (width + 1) / 2 * (right + 1), (height + 1) / 2 * (down + 1)
        stride = (max(self.size) - 1) / max(self.cells - 1, 1) * stride.exp()
        variance = variance.exp()
        filters_y = gaussian_filters(centre_y, stride, variance, self.cells, height).to(h.dtype)
        filters_x = gaussian_filters(centre_x, stride, variance, self.cells, width).to(h.dtype)
        box = torch.stack([centre_x, centre_y, stride, variance.sqrt()], -1)
        return Filters(filters_y, filters_x, intensity.exp().to(h.dtype), box)


class DRAWState(NamedTuple):
    """What a step of DRAW leaves to the next one."""

    canvas: Tensor  # "b c h w", logits
    encoder: tuple[Tensor, Tensor]  # h and c, "b h" each
    decoder: tuple[Tensor, Tensor]


class DRAWStep(NamedTuple):
    """One step of DRAW; the boxes are those of `Filters`, None without attention."""

    state: DRAWState
    mean: Tensor  # μ, "b z"
    log_std: Tensor  # log σ, "b z"
    read: Tensor | None  # "b 4"
    write: Tensor | None


class DRAWOutput(NamedTuple):
    """The drawing of given images."""

    canvases: Tensor  # σ(c_t), "b t c h w"
    reconstruction: Tensor  # −log p(x | z), nats: "b"
    divergence: Tensor  # KL of the posterior of each step from N(0, 1), nats: "b t"
    reads: Tensor | None  # "b t 4", the boxes of `Filters`
    writes: Tensor | None

    @property
    def bound(self) -> Tensor:  # "b"
        """−log p(x | z) + Σ_t KL_t: with the mean over noise, at least −log p(x)."""
        return self.reconstruction + self.divergence.sum(1)


def divergence(mean: Tensor, log_std: Tensor) -> Tensor:  # "*b z" twice -> "*b"
    """KL(N(μ, σ²) ‖ N(0, 1)) = ½ Σ (μ² + σ² − log σ² − 1), in nats."""
    return (mean.square() + torch.expm1(2 * log_std) - 2 * log_std).sum(-1) / 2


class DRAW(nn.Module):
    """c_t = c_{t−1} + write(h_t), h_t = decoder(z_t, h_{t−1}), z_t ~ N(μ_t, σ_t²), (μ_t, σ_t) = f(encoder(read(x, x −
    σ(c_{t−1}), h_{t−1}), h_{t−1})), p(x | z) = Bernoulli(σ(c_T))  (Gregor et al. 2015, eq. 3 to 8).

    The encoder reads `read` × `read` filters of the image and of what the canvas misses, the decoder writes with
    `write` × `write` filters: attention="grid". With "none" both see the whole image, and with steps=1 as well the
    model is a plain variational autoencoder. model(x) is the bound on −log p(x) of each image, in nats, whose mean is
    the loss; pixels are from 0 to 1. Noise is drawn unless it is given: one tensor "b t z" of torch.randn.
    """

    def __init__(
        self,
        channels: int,
        size: tuple[int, int],
        *,
        steps: int = 8,
        latent: int = 10,
        hidden: int = 128,
        attention: str = "grid",
        read: int = 4,
        write: int = 4,
    ) -> None:
        super().__init__()
        height, width = size
        checks.positive_ints("DRAW", channels=channels, height=height, width=width, steps=steps, latent=latent)
        checks.positive_ints("DRAW", hidden=hidden, read=read, write=write)
        checks.known("attention", attention, ATTENTIONS)
        self.channels, self.size, self.steps, self.latent = channels, (height, width), steps, latent
        has_grid = attention == "grid"
        self.read_grid = GaussianGrid(hidden, read, self.size) if has_grid else None
        self.write_grid = GaussianGrid(hidden, write, self.size) if has_grid else None
        self.patch = (write, write) if has_grid else self.size
        pixels = channels * (read**2 if has_grid else height * width)
        self.encoder = nn.LSTMCell(2 * pixels + hidden, hidden)
        self.posterior = nn.Linear(hidden, 2 * latent)
        self.decoder = nn.LSTMCell(latent, hidden)
        self.write = nn.Linear(hidden, channels * math.prod(self.patch))
        self.first_canvas = nn.Parameter(torch.zeros(channels, height, width))
        self.first_encoder = nn.Parameter(torch.zeros(hidden))
        self.first_decoder = nn.Parameter(torch.zeros(hidden))

    def forward(self, x: Tensor, noise: Tensor | None = None) -> Tensor:  # "b c h w", "b t z" -> "b"
        return self.draw(x, noise).bound

    def draw(self, x: Tensor, noise: Tensor | None = None) -> DRAWOutput:  # "b c h w", "b t z"
        """All steps: the canvases, the boxes and the two parts of the bound."""
        self._check(x)
        noise = self._noise(len(x), noise)
        state, steps = self.initial_state(len(x)), []
        with observer.alignment_steps():
            for z in noise.unbind(1):
                steps.append(self.step(x, state, z))
                state = steps[-1].state
        reconstruction = F.binary_cross_entropy_with_logits(widen(state.canvas), widen(x), reduction="none")
        return DRAWOutput(
            torch.stack([step.state.canvas for step in steps], 1).sigmoid(),
            reconstruction.sum((1, 2, 3)),
            torch.stack([divergence(widen(step.mean), widen(step.log_std)) for step in steps], 1),
            _stack([step.read for step in steps]),
            _stack([step.write for step in steps]),
        )

    def initial_state(self, count: int) -> DRAWState:
        encoder, decoder = (h.expand(count, -1) for h in (self.first_encoder, self.first_decoder))
        canvas = self.first_canvas.expand(count, -1, -1, -1)
        return DRAWState(canvas, (encoder, torch.zeros_like(encoder)), (decoder, torch.zeros_like(decoder)))

    def step(self, x: Tensor, state: DRAWState, noise: Tensor) -> DRAWStep:  # "b c h w", "b z"
        """Reads the image, samples z = μ + σ · noise and writes."""
        error, h = x - state.canvas.sigmoid(), state.decoder[0]
        read = None
        if self.read_grid is not None:
            filters = self.read_grid(h)
            filters.observe(self.read_grid, x)
            x, error, read = filters.read(x), filters.read(error), filters.box
        encoder = self.encoder(torch.cat([x.flatten(1), error.flatten(1), h], 1), state.encoder)
        mean, log_std = self.posterior(encoder[0]).chunk(2, -1)
        after, write = self.decode(mean + log_std.exp() * noise, state)
        return DRAWStep(after._replace(encoder=encoder), mean, log_std, read, write)

    def decode(self, z: Tensor, state: DRAWState) -> tuple[DRAWState, Tensor | None]:  # "b z"
        """The state after z was written, and the box of what was written."""
        decoder = self.decoder(z, state.decoder)
        patch, box = self.write(decoder[0]).unflatten(1, (self.channels, *self.patch)), None
        if self.write_grid is not None:
            filters = self.write_grid(decoder[0])
            patch, box = filters.write(patch), filters.box
        return DRAWState(state.canvas + patch, state.encoder, decoder), box

    def sample(self, count: int, noise: Tensor | None = None) -> Tensor:  # "b t z" -> "b t c h w"
        """New images: σ(c_t) of every step, of which the last is the mean of the pixels."""
        noise = self._noise(count, noise)
        state, canvases = self.initial_state(count), []
        for z in noise.unbind(1):
            state, _ = self.decode(z, state)
            canvases.append(state.canvas)
        return torch.stack(canvases, 1).sigmoid()

    def _noise(self, count: int, noise: Tensor | None) -> Tensor:
        expected = (count, self.steps, self.latent)
        if noise is None:
            return torch.randn(expected, dtype=self.first_canvas.dtype, device=self.first_canvas.device)
        if noise.shape != expected:
            raise ValueError(
                f"noise must be (images, steps, latent) = {expected}, got {checks.shape(noise)}; "
                f"try torch.randn{expected}"
            )
        return noise

    def _check(self, x: Tensor) -> None:
        expected = self.channels, *self.size
        if x.ndim != 4 or x.shape[1:] != expected:
            raise ValueError(
                f"x must be (images, {', '.join(map(str, expected))}), got {checks.shape(x)}; "
                "grey images have one channel, x.unsqueeze(1)"
            )
        checks.floating("x", x)
        if len(x) and not bool(((x >= 0) & (x <= 1)).all()):
            raise ValueError(
                f"x must be pixels from 0 to 1, got {float(x.min()):g} to {float(x.max()):g}; divide by the greatest "
                "value that a pixel can have"
            )


def _stack(boxes: list[Tensor | None]) -> Tensor | None:
    present = [box for box in boxes if box is not None]
    return torch.stack(present, 1) if present else None
