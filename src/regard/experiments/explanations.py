"""attribute_run and faithfulness_run: the output of a run attributed to its input, and how far to trust that."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard.attribution import Attribution, Faithfulness, FaithfulnessReport
from regard.attribution.attribute import attribute
from regard.attribution.faithfulness import faithfulness
from regard.inference.bounded_classifier import PictureClassifier
from regard.tasks.loading import LoadedRun, load_run
from regard.viz.faithfulness import FaithfulnessPage, MethodRow, write_page
from regard.viz.plots.attributions import draw_attributions, draw_picture_attributions
from regard.viz.recording.page.packing import png_data_url
from regard.viz.text.terminal import heatmap


@dataclass(frozen=True, eq=False)
class ExplainedOutput:
    """The attributions of one output of a run, by several methods."""

    attributions: tuple[Attribution, ...]
    image: torch.Tensor | None  # "c h w" from 0 to 1; None of a text

    @property
    def title(self) -> str:
        """The target and its probability."""
        first = self.attributions[0]
        return f"{first.target} {100 * first.probability:.1f} %"

    @property
    def warnings(self) -> list[str]:
        return [f"{each.method}: {sentence}" for each in self.attributions for sentence in each.warnings]

    def explain(self, *, width: int = 100, colour: bool = False) -> str:
        """A line of blocks per method, each scaled to its greatest score, and the highest scores of each."""
        first = self.attributions[0]
        if first.grid is None:
            scores = [each.scores / each.scores.abs().max().clamp_min(1e-30) for each in self.attributions]
            names = [each.method for each in self.attributions]
            picture = heatmap(torch.stack(scores), names, first.tokens, width=width, colour=colour) + "\n"
        else:
            rows, columns = first.grid.shape
            picture = f"{rows} × {columns} patches, named (row, column) from the upper left"
        lines = [f"{self.title}, logit {first.output:.3f}", picture]
        for each in self.attributions:
            best = ", ".join(f"{each.tokens[n]} {float(each.scores[n]):+.3f}" for n in each.ranking()[:5])
            lines.append(f"{each.method}: {best}{_completeness(each)}")
        return "\n".join(lines)

    def draw(self, path: Path) -> None:
        """Draws the text tinted by its scores, or the scores over the picture, once per method."""
        if self.image is not None:
            image = self.image.movedim(0, -1)
            grids = {each.method: each.grid for each in self.attributions if each.grid is not None}
            draw_picture_attributions(image.expand(*image.shape[:2], 3), grids, path, self.title)
        else:
            scores = {each.method: each.scores for each in self.attributions}
            draw_attributions(self.attributions[0].tokens, scores, path, self.title)


@dataclass(frozen=True, eq=False)
class ExplainedInputs:
    """The attributions of several inputs of a run, measured."""

    report: FaithfulnessReport
    images: tuple[torch.Tensor | None, ...]  # "c h w" from 0 to 1; None of a text

    def explain(self) -> str:
        """The measures of every method as a table."""
        return self.report.explain()

    def write_page(self, path: Path) -> None:
        """Writes the page of the first input: tinted by every method, with curves, agreement and a verdict."""
        write_page(faithfulness_page(self.report.inputs[0], self.images[0]), path)


def attribute_run(
    run: Path | str | LoadedRun,
    input: str,
    target: str | None = None,
    methods: Sequence[str] = ("integrated-gradients",),
) -> ExplainedOutput:
    """Attributes the output for a text, or for the picture of a file, by each of the methods of `regard.attribute`."""
    loaded = _explainable(run, "attribute", ("class", "part"))
    predictor: Any = loaded.predictor
    value = predictor.read(input)
    attributions = tuple(attribute(predictor, value, target, method) for method in methods)
    return ExplainedOutput(attributions, _image(predictor, value))


def faithfulness_run(
    run: Path | str | LoadedRun,
    inputs: Sequence[str],
    target: str | None = None,
    methods: Sequence[str] | None = None,
    *,
    removal: str = "delete",
    seed: int = 0,
) -> ExplainedInputs:
    """Measures the attributions of texts, or of the pictures of files, as `regard.faithfulness` does."""
    loaded = _explainable(run, "faithfulness", ("class",))
    predictor: Any = loaded.predictor
    values = [predictor.read(each) for each in inputs]
    report = faithfulness(predictor, values, target, methods, removal=removal, seed=seed)
    return ExplainedInputs(report, tuple(_image(predictor, value) for value in values))


def _explainable(run: Path | str | LoadedRun, verb: str, outputs: Sequence[str]) -> LoadedRun:
    """The run; raises if its predictor has no output of these kinds that can be explained."""
    loaded = run if isinstance(run, LoadedRun) else load_run(Path(run))
    if loaded.predictor.explains not in outputs:
        others = ", tags or translates" if "part" in outputs else ""
        raise ValueError(
            f"regard {verb} explains no output of a run of {loaded.config.name}; name a run that classifies texts or "
            f"images{others}"
        )
    return loaded


def _image(predictor: Any, value: Any) -> torch.Tensor | None:
    return predictor.bounded_inputs([value])[0] if isinstance(predictor, PictureClassifier) else None


def _completeness(attribution: Attribution) -> str:
    sums = attribution.completeness
    if sums is None:
        return ""
    return f" (their sum misses f(x) − f(x') = {sums.difference:.3f} by {sums.error:.1e}, {sums.steps:,} steps)"


def faithfulness_page(measured: Faithfulness, image: torch.Tensor | None = None) -> FaithfulnessPage:
    """The content of the page of one text, or of a picture, "c h w" from 0 to 1."""
    first = next(iter(measured.attributions.values()))
    rows = [
        MethodRow(name, tuple(each.scores.tolist()), scores.comprehensiveness, scores.sufficiency, scores.curve)
        for (name, each), scores in zip(measured.attributions.items(), measured.scores.values(), strict=True)
    ]
    names = list(measured.attributions)
    notes = [f"{sentence}." for sentence in FaithfulnessReport((measured,)).notes]
    if (test := measured.attention) is not None:
        notes.append(
            f"Uniform attention changes the probabilities by {test.uniform_change:.3f}, permuted attention by "
            f"{test.permuted_change:.3f} (median), and the most different map by {test.adversarial.change:.3f}."
        )
        # the most different attention that keeps the output, if it is one map over all tokens
        if len(test.adversarial.weights) == 1 and test.adversarial.weights[0].shape[-1] == len(first.tokens):
            rows.append(MethodRow("other attention, same output", tuple(test.adversarial.scores.tolist())))
    return FaithfulnessPage(
        title=f"{first.target} {100 * first.probability:.1f} %",
        verdict=measured.sentence,
        tokens=first.tokens,
        rows=tuple(rows),
        removed=measured.removed,
        random=MethodRow(
            f"random {measured.units}", (), measured.random.comprehensiveness, measured.random.sufficiency
        ),
        band=measured.band,
        agreement=tuple(tuple(measured.agreement[a, b] for b in names) for a in names if measured.can_be_ranked),
        removal=measured.removal,
        notes=tuple(notes),
        unit=measured.unit,
        units=measured.units,
        grid=None if first.grid is None else (first.grid.shape[0], first.grid.shape[1]),
        image=None if image is None else png_data_url(image),
    )
