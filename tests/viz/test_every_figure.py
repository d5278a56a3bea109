"""Every figure function: the same bytes twice, and all text on the canvas and large enough to be read on a page."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import pyplot, rcParams
from tests.docs.pages import script
from tests.for_each import for_each
from tests.viz.recordings import DRAWN, attended, weights
from tests.viz.test_episode import VIEW

from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz import Alignment, Panel, curve, draw, figure, scatter
from regard.viz.plots.attacked_images import AttackedImage, draw_attacked_images
from regard.viz.plots.attributions import draw_attributions, draw_picture_attributions
from regard.viz.plots.clip_strip import draw_strip
from regard.viz.plots.edited_texts import EditedParagraph, draw_edited_texts
from regard.viz.plots.ranking import draw_ranking
from regard.viz.plots.sample_sheet import draw_samples
from regard.viz.plots.signal_curves import draw_signal
from regard.viz.plots.spectrogram import draw_alignment
from regard.viz.recording.figures import draw_recording

text_sizes = script("text_sizes")

PICTURE = torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(0))
LONG = [f"word{n}" for n in range(9)]
FIGURES: dict[str, Callable[[Path], Path]] = {
    "panel": lambda path: figure(Panel(weights(10, 24), "gated-units: weights of 24 channels, by digit"), path),
    "panels": lambda path: figure([Panel(weights(9, 9), f"head {n}", LONG, LONG) for n in range(4)], path),
    "stretched": lambda path: figure([Panel(weights(3, 4), "a title of several words", stretch=True)] * 3, path),
    "equal cells": lambda path: figure(Panel(weights(2, 9), "a title of several words", None, LONG), path, cell=0.15),
    "alignment": lambda path: draw(Alignment(LONG, LONG[:3], weights(3, 9)), path),
    "one token": lambda path: draw_recording(attended(1, 1, 1), path, what="map"),
    "one token, heads": lambda path: draw_recording(attended(1, 1, 1), path, what="heads"),
    "twelve heads": lambda path: draw_recording(attended(2, 12, 11), path, what="heads"),
    "long memory": lambda path: draw_recording(
        Recording((RecordedMap("a", "hop", DenseMap(weights(1, 2, 2)), certificate=0.0),)).with_labels(
            ["hop 1", "hop 2"], ["1 Mary went to the hall. (supports the answer)", "2 John left."]
        ),
        path,
        what="hops",
    ),
    "strip": lambda path: draw_strip(
        np.zeros((20, 8, 8, 1), np.uint8), path, "a clip", steps=weights(20), places=weights(20, 4).view(20, 2, 2)
    ),
    "signal": lambda path: draw_signal(np.zeros((30, 2), np.float32), weights(30), path, "a signal"),
    "samples": lambda path: draw_samples(np.zeros((64, 96, 1), np.uint8), ["3", "8"], ["90 %", "10 %"], path, "digits"),
    "attacked images": lambda path: draw_attacked_images(
        [AttackedImage(PICTURE, PICTURE, "3", "8", [("gate", weights(2, 2), weights(2, 2, seed=1))])],
        path,
        "an attack",
        [],
    ),
    "curve": lambda path: curve({"train": [(0, 3.0), (10, 2.0)], "one": [(0, 1.0)]}, path, "step", "loss"),
    "scatter": lambda path: scatter({"additive": (10.0, 32.0), "dot": (8.0, 31.9)}, path, "minutes", "BLEU"),
    "hard alignments": lambda path: draw(
        [Alignment(["月", "م", "𓀀"], ["$x$", "\x1b"], weights(2, 3), "German", "n", hard=True)] * 2, path
    ),
    "edited texts": lambda path: draw_edited_texts([EditedParagraph("x", [("a", None), ("b", "c")])], path, "texts"),
    "attributions": lambda path: draw_attributions(LONG[:3], {"erasure": weights(3) - 0.4}, path, "a text"),
    "picture attributions": lambda path: draw_picture_attributions(
        PICTURE.movedim(0, -1), {"erasure": weights(2, 2) - 0.4}, path, "a picture"
    ),
    "spectrogram": lambda path: draw_alignment(
        weights(90, 13), weights(5, 23), LONG[:5], path, seconds=0.93, highest=4000.0, title="a sound"
    ),
    "episode": VIEW.save,
    "episode without attention": replace(VIEW, weights=None).save,
    "ranking": lambda path: draw_ranking([("a bird", 0.9), ("a dog", 0.1)], path, "neighbours", "cosine"),
} | {
    f"recording: {what}": lambda path, what=what, make=make, options=options: draw_recording(  # type: ignore[misc]
        make(), path, what=what, **options
    )
    for what, (make, options) in DRAWN.items()
}


STARTS = {".png": b"\x89PNG\r\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}


@for_each(("name", "suffix"), zip(FIGURES, itertools.cycle(STARTS)))
def test_a_figure_is_the_same_twice_and_can_be_read(name: str, suffix: str, tmp_path: Path) -> None:
    before = dict(rcParams)
    with text_sizes.text_faults() as found:
        first, second = (FIGURES[name](tmp_path / f"{n}{suffix}").read_bytes() for n in "ab")
    assert not found.faults
    assert first == second
    assert first.startswith(STARTS[suffix])
    assert dict(rcParams) == before
    assert pyplot.get_fignums() == []


def test_faults_are_found(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    small, large = Figure(figsize=(4, 2)), Figure(figsize=(14, 2))
    small.text(0.9, 0.5, "a text that leaves the canvas", fontsize=9)
    large.text(0.1, 0.5, "tiny", fontsize=6)
    with text_sizes.text_faults() as found:
        small.savefig(tmp_path / "a.png")
        large.savefig(tmp_path / "b.png")
    assert found.faults == ["'a text that leaves the canvas' is cut off", "'tiny' has 3.7 points at page width"]
    with pytest.raises(ValueError, match="x: .*is cut off; .*draw fewer panels"):
        found.check("x")
