"""regard attribute: how much each word of a text, or patch of a picture, adds to the output of a model."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.cli import run_options
from regard.cli.output import check_writable, note, warn
from regard.cli.parsing.output_paths import not_an_input
from regard.cli.parsing.parser import parse
from regard.cli.run_options import LoadOptions
from regard.common.options.fields import flag, left_open, option, positional

FIGURES = (".png", ".svg", ".pdf")
TASKS = ("classify-text", "match", "tag", "translate", "classify-image")


@dataclass(frozen=True)
class AttributeOptions:
    """Attribute the output of a model to its tokens: the class of a text, of a pair of texts or of a picture, a tag or
    span of a text, or a word of a translation; one line of scores per method.

    Methods: attention, rollout, flow, relevance, gradient, integrated-gradients, leave-one-out, masked-keys.

    Example: regard attribute runs/reviews "a good film" --methods attention leave-one-out
    """

    run: Path = positional()
    """The folder of a run of classify-text, match, tag, translate or classify-image, or of a released model in
    transformers' layout."""
    text: str = positional()
    """The text, in quotes; both texts of a pair with a tab or a line break between them; or the file of a picture."""
    methods: tuple[str, ...] = ("integrated-gradients",)
    """The methods, by name."""
    target: str | None = left_open("the likeliest class, the first span, the whole translation")
    """The class whose logit is explained; of a tagger WORD=TAG, WORDS=LABEL, or one of both alone; of a translator a
    word of the translation. WORD#2 is the second one."""
    picture: Path | None = option(None, metavar="FILE")
    """Draw the text tinted by its scores, or the scores over the picture, once per method: .png, .svg or .pdf."""
    json: bool = flag()
    """Print a JSON object per method instead."""
    load: dict[str, Any] = field(default_factory=dict)


def run(args: Sequence[str]) -> int:
    options = parse(AttributeOptions, "regard attribute", args, sections={"load": LoadOptions})
    check_writable("--picture", options.picture, FIGURES)
    not_an_input("--picture", options.picture, options.run, {"the picture": [options.text]})
    loaded = run_options.load(options.run, options.load)
    import regard
    from regard.experiments.explanations import as_json, check_explained, print_scores
    from regard.viz.attribution.figure import draw_attributions
    from regard.viz.attribution.picture_figure import draw_picture_attributions

    check_explained(options.run, loaded, "attribute", TASKS)
    predictor: Any = loaded.predictor
    given = predictor.read(options.text)
    results = [regard.attribute(predictor, given, options.target, method) for method in options.methods]
    first = results[0]
    if options.json:
        for result in results:
            print(json.dumps({"text": options.text, **as_json(result)}, ensure_ascii=False))
    else:
        print(f"{first.target} {100 * first.probability:.1f} %, logit {first.output:.3f}")
        print_scores(results)
    warn([f"{result.method}: {sentence}" for result in results for sentence in result.warnings])
    if options.picture is not None:
        title = f"{first.target} {100 * first.probability:.1f} %"
        grids = {each.method: each.grid for each in results if each.grid is not None}
        if grids:
            image = predictor.bounded_inputs([given])[0].movedim(0, -1)
            draw_picture_attributions(image.expand(*image.shape[:2], 3), grids, options.picture, title)
        else:
            draw_attributions(first.tokens, {each.method: each.scores for each in results}, options.picture, title)
        note(f"the scores are drawn in {options.picture}")
    return 0
