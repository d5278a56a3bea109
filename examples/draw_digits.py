"""Digits drawn by attention: DRAW, the same network without attention, and plain variational autoencoders.

    python examples/draw_digits.py --seeds 3 --steps 600 --picture draw.png

Pixels of scikit-learn's digits have values from 0 to 16; here a pixel is 1 from 8 on, otherwise 0, so that the bound is
one of a probability. The score is the bound on −log p(x) of the test digits, in nats per image: less is better. The
weights are those of the step with the least bound on the validation digits.
"""

import argparse
import copy
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.images.digit_splits import digit_images
from regard.data.splitting import Split
from regard.models import DRAW

STEPS, LATENT, HIDDEN = 8, 8, 96
VARIANTS: dict[str, dict[str, Any]] = {
    "DRAW": {"steps": STEPS, "latent": LATENT, "attention": "grid"},
    "DRAW without attention": {"steps": STEPS, "latent": LATENT, "attention": "none"},
    "VAE": {"steps": 1, "latent": LATENT, "attention": "none"},
    "VAE, as many latents": {"steps": 1, "latent": STEPS * LATENT, "attention": "none"},
}


def binary_digits(split: Split) -> Tensor:  # -> "n 1 8 8"
    """One split of the digits, the same for every seed of the training."""
    pixels = torch.from_numpy(digit_images(split, seed=0).pixels)
    return (pixels >= 128).movedim(-1, 1).float()


@torch.no_grad()
def bound(model: DRAW, images: Tensor, draws: int) -> float:
    """Nats per image, the mean over this many draws of the same noise."""
    generator = torch.Generator().manual_seed(1)
    noise = [torch.randn(len(images), model.steps, model.latent, generator=generator) for _ in range(draws)]
    return sum(float(model(images, each).mean()) for each in noise) / draws


def train(variant: str, seed: int, steps: int) -> DRAW:
    torch.manual_seed(seed)
    images, held_out = binary_digits("train"), binary_digits("valid")
    model = DRAW(1, (8, 8), hidden=HIDDEN, **VARIANTS[variant])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    best, weights = float("inf"), copy.deepcopy(model.state_dict())
    for step in range(1, steps + 1):
        loss = model(images[torch.randint(len(images), (128,))]).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if step % 100 == 0 or step == steps:
            current = bound(model, held_out, 5)
            if current < best:
                best, weights = current, copy.deepcopy(model.state_dict())
    model.load_state_dict(weights)
    return model.eval()


@torch.no_grad()
def draw(model: DRAW, path: Path) -> None:
    """A row per digit: where each step reads, in blue on the digit, and writes, in red on the canvas; and samples."""
    from matplotlib.figure import Figure

    torch.manual_seed(0)
    images = binary_digits("test")[[0, 150, 300]]
    drawn, samples = model.draw(images), model.sample(1)[0]
    assert drawn.reads is not None
    assert drawn.writes is not None
    rows = [f"digit {n + 1}, {place}" for n in range(len(images)) for place in ("read", "write")]
    figure = Figure(figsize=(9.6, 9.0), layout="constrained")
    axes = figure.subplots(len(rows) + 1, model.steps)
    for step in range(model.steps):
        for n, image in enumerate(images):
            read, write = axes[2 * n, step], axes[2 * n + 1, step]
            read.imshow(image[0], cmap="gray_r", vmin=0, vmax=1)
            _outline(read, drawn.reads[n, step], model.patch[0], "tab:blue")
            write.imshow(drawn.canvases[n, step, 0], cmap="gray_r", vmin=0, vmax=1)
            _outline(write, drawn.writes[n, step], model.patch[0], "tab:red")
        axes[-1, step].imshow(samples[step, 0], cmap="gray_r", vmin=0, vmax=1)
        axes[0, step].set_title(f"step {step + 1}", fontsize=12)
    for row, name in zip(axes, [*rows, "sample"], strict=True):
        row[0].set_ylabel(name.replace(", ", "\n"), fontsize=12)
        for each in row:
            each.set(xticks=[], yticks=[], xlim=(-1.5, 8.5), ylim=(8.5, -1.5))
    figure.savefig(path, dpi=110)


def _outline(axes: Any, box: Tensor, cells: int, colour: str) -> None:
    """The square of the filters' centres; the line is the wider, the greater their standard deviation is."""
    from matplotlib.patches import Rectangle

    x, y, stride, deviation = box.tolist()
    side = stride * (cells - 1)
    # pixels are counted from 1, and those of a picture from 0
    corner = x - 1 - side / 2, y - 1 - side / 2
    axes.add_patch(Rectangle(corner, side, side, fill=False, color=colour, linewidth=min(1 + 2 * deviation, 6)))


def main() -> int:
    parser = argparse.ArgumentParser(description="DRAW on scikit-learn's digits.")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw what is read and written (.png, .svg, .pdf)")
    options = parser.parse_args()
    test = binary_digits("test")
    for variant in VARIANTS:
        models = [train(variant, seed, options.steps) for seed in range(options.seeds)]
        scores = torch.tensor([bound(model, test, 20) for model in models])
        print(f"{variant:24} {scores.mean():5.2f} nats   from {scores.min():.2f} to {scores.max():.2f}")
        if variant == "DRAW" and options.picture is not None:
            draw(models[0], options.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
