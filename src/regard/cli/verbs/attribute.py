"""regard attribute: how much each word of a text, or patch of a picture, adds to the output of a model."""

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.cli import run_options
from regard.cli.output import note, warn
from regard.cli.parsing.output_paths import check_output
from regard.cli.parsing.parser import parse
from regard.cli.run_options import LoadOptions
from regard.cli.terminal_output import write_styled
from regard.common.options.fields import flag, left_open, option, positional

FIGURES = (".png", ".svg", ".pdf")


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
    check_output("--picture", options.picture, options.run, FIGURES, {"the picture": [options.text]})
    loaded = run_options.load(options.run, options.load)
    from regard.experiments.explanations import attribute_run

    explained = attribute_run(loaded, options.text, options.target, options.methods)
    if options.json:
        for each in explained.attributions:
            print(json.dumps({"text": options.text, **each.to_json()}, ensure_ascii=False))
    else:
        width = max(shutil.get_terminal_size((100, 24)).columns, 40)
        write_styled(explained.explain(width=width, colour=sys.stdout.isatty()) + "\n")
    warn(explained.warnings)
    if options.picture is not None:
        explained.draw(options.picture)
        note(f"the scores are drawn in {options.picture}")
    return 0
