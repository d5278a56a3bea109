"""The alignment of a transcript over the spectrogram of its sound, with the time in seconds, as a figure."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from regard.viz.plots.canvas import WEIGHTS, fit_scale
from regard.viz.plots.figure_file import figure_file

# inches: of a second, of a row of letters, of the spectrogram, of the smallest and the largest figure
_SECOND, _ROW, _SPECTROGRAM, _WIDTHS, _HEIGHT = 2.4, 0.16, 1.3, (4.0, 14.0), (1.0, 9.0)
# labels of rows; more would overlap
_MAX_LETTERS = 60


def draw_alignment(
    frames: Tensor,
    weights: Tensor,
    letters: Sequence[str],
    path: Path,
    *,
    seconds: float,
    highest: float,
    title: str = "",
) -> Path:  # "t m", "letters states"
    """Draws frames over the weights of every letter to the states of the same sound, into a .png, .svg or .pdf.

    `seconds` is the length of the sound, `highest` the frequency of the upper end of the last band, in hertz.
    """
    if len(letters) != len(weights):
        raise ValueError(f"letters must name the {len(weights)} rows of weights, got {len(letters)}; give one per row")
    width = min(max(_SECOND * seconds, _WIDTHS[0]), _WIDTHS[1])
    height = min(max(_ROW * len(letters), _HEIGHT[0]), _HEIGHT[1])
    with figure_file(path, [*letters, title], (width + 1.2, _SPECTROGRAM + height + 0.8)) as (figure, spell):
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[_SPECTROGRAM, height])
        sound = above.imshow(
            frames.T.numpy(), origin="lower", aspect="auto", cmap="magma", extent=(0, seconds, 0, frames.shape[1])
        )
        bands = frames.shape[1]
        above.set(ylabel="mel band", yticks=[0, bands], yticklabels=["0 Hz", f"{highest:g} Hz"], title=spell(title))
        scale = fit_scale([weights])
        attended = below.imshow(
            weights.float().numpy(),
            aspect="auto",
            cmap=WEIGHTS,
            norm=scale.norm(),
            extent=(0, seconds, len(letters), 0),
        )
        step = -(-len(letters) // _MAX_LETTERS)
        rows = range(0, len(letters), step)
        below.set(yticks=[n + 0.5 for n in rows], yticklabels=[spell(letters[n]) for n in rows], xlabel="seconds")
        below.tick_params(axis="y", length=0)
        figure.colorbar(sound, ax=above, label="energy")
        figure.colorbar(attended, ax=below, label="weight")
    return path
