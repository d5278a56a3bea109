"""regard faithfulness: how far attributions, and the attention of a trained model, can be trusted as explanations."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from regard.cli import run_options
from regard.cli.output import note, warn
from regard.cli.parsing.output_paths import check_output
from regard.cli.parsing.parser import parse
from regard.cli.run_options import LoadOptions
from regard.common.options.checks import CheckedOptions
from regard.common.options.fields import flag, left_open, option, positional, random_seed


@dataclass(frozen=True)
class FaithfulnessOptions(CheckedOptions):
    """Measure attributions of a classifier: what removing the words of a text, or the patches of a picture, that a
    method ranks highest does to the output, how far methods agree, and whether other attention gives the same output.

    Example: regard faithfulness runs/reviews "a good film" --page page.html
    """

    run: Path = positional()
    """The folder of a run of classify-text, match or classify-image, or of a released classifier in transformers'
    layout."""
    texts: tuple[str, ...] = positional()
    """The texts, in quotes, or the files of pictures."""
    methods: tuple[str, ...] = left_open("all that apply")
    """The methods, by name, as in `regard attribute --help`."""
    target: str | None = left_open("the likeliest class of each input")
    """The class whose logit is explained."""
    removal: Literal["delete", "mask-keys", "pad"] = "delete"
    """How words are removed: deleted, masked as keys of every attention, or with the vector of padding. Patches that
    are deleted are black."""
    seed: int = random_seed(0)
    """Determines random orders, permutations of attention, and the starts of the search for other attention."""
    page: Path | None = option(None, metavar="FILE")
    """Write a page of one input: tinted by every method, with curves, agreement and a verdict; .html."""
    json: bool = flag()
    """Print a JSON object per input instead."""
    load: dict[str, Any] = field(default_factory=dict)


def run(args: Sequence[str]) -> int:
    options = parse(FaithfulnessOptions, "regard faithfulness", args, sections={"load": LoadOptions})
    check_output("--page", options.page, options.run, (".html",), {"the picture": options.texts})
    if options.page is not None and len(options.texts) > 1:
        raise ValueError(f"--page shows one text, and {len(options.texts)} are given; name one")
    loaded = run_options.load(options.run, options.load)
    from regard.experiments.explanations import faithfulness_run

    explained = faithfulness_run(
        loaded, options.texts, options.target, options.methods or None, removal=options.removal, seed=options.seed
    )
    if options.json:
        for text, measured in zip(options.texts, explained.report.inputs, strict=True):
            print(json.dumps({"text": text, **measured.to_json()}, ensure_ascii=False))
    else:
        print(explained.explain())
        warn(explained.report.notes)
    if options.page is not None:
        explained.write_page(options.page)
        note(f"the page is in {options.page}")
    return 0
