"""Draws rotary-frequencies.svg, by how much scalings slow each pair of rotary positions: python docs/draw_rotary.py."""

from pathlib import Path

import torch
from text_sizes import text_faults

from regard.positions import (
    LinearScaling,
    Llama3Scaling,
    NTKScaling,
    ProportionalScaling,
    RotaryScaling,
    YaRNScaling,
)

# texts stay texts, and the same figure gives the same file
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "regard"}
WIDTH, BASE, TRAINED, FACTOR = 128, 10000.0, 4096, 4.0
SCALINGS: dict[str, RotaryScaling] = {
    "linear": LinearScaling(FACTOR),
    "NTK-aware": NTKScaling(FACTOR),
    "YaRN": YaRNScaling(FACTOR, TRAINED),
    "Llama 3": Llama3Scaling(FACTOR, 1.0, 4.0, TRAINED),
    "proportional, a quarter": ProportionalScaling(0.25),
}


def draw(folder: Path) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    device = torch.device("cpu")
    plain = LinearScaling(1.0).rates(WIDTH, BASE, 1, device)
    turns = TRAINED * plain / (2 * torch.pi)
    figure, axes = pyplot.subplots(figsize=(8.4, 3.6))
    for style, (name, scaling) in zip(("-", "--", "-", "-.", ":"), SCALINGS.items(), strict=True):
        share = scaling.rates(WIDTH, BASE, 1, device) / plain
        axes.plot(range(WIDTH // 2), share.tolist(), style, label=name, linewidth=2)
    for count in (32, 1):
        pair = int((turns > count).sum())
        axes.axvline(pair, color="#999", linewidth=1)
        axes.text(pair + 0.4, 1.06, f"{count} turns" if count > 1 else "1 turn", fontsize=9, color="#555")
    axes.set_ylim(-0.05, 1.15)
    axes.set_xlabel(f"pair of a head of {WIDTH} channels, base {BASE:,.0f}", fontsize=9)
    axes.set_ylabel("frequency, share of that of the training", fontsize=9)
    axes.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    path = folder / "rotary-frequencies.svg"
    with text_faults() as found, pyplot.rc_context(_STYLE):
        figure.savefig(path, metadata={"Date": None})
    found.check("rotary-frequencies")
    pyplot.close(figure)
    return path


if __name__ == "__main__":
    print(draw(Path(__file__).parent / "images"))
