"""regard faithfulness: how far attributions, and the attention of a trained model, can be trusted as explanations."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from regard.cli import run_options
from regard.cli.output import check_writable, note, warn
from regard.cli.parsing.output_paths import not_an_input
from regard.cli.parsing.parser import parse
from regard.cli.run_options import LoadOptions
from regard.common.options.checks import check_seed
from regard.common.options.fields import flag, left_open, option, positional

TASKS = ("classify-text", "match", "classify-image")


@dataclass(frozen=True)
class FaithfulnessOptions:
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
    seed: int = 0
    """Determines random orders, permutations of attention, and the starts of the search for other attention."""
    page: Path | None = option(None, metavar="FILE")
    """Write a page of one input: tinted by every method, with curves, agreement and a verdict; .html."""
    json: bool = flag()
    """Print a JSON object per input instead."""
    load: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_seed(self)


def run(args: Sequence[str]) -> int:
    options = parse(FaithfulnessOptions, "regard faithfulness", args, sections={"load": LoadOptions})
    check_writable("--page", options.page, (".html",))
    not_an_input("--page", options.page, options.run, {"the picture": list(options.texts)})
    if options.page is not None and len(options.texts) > 1:
        raise ValueError(f"--page shows one text, and {len(options.texts)} are given; name one")
    loaded = run_options.load(options.run, options.load)
    import regard
    from regard.experiments.explanations import (
        check_explained,
        faithfulness_json,
        faithfulness_notes,
        faithfulness_page,
        faithfulness_table,
    )
    from regard.inference.picture_classifier import PictureClassifier
    from regard.viz.attribution.page import write_page

    check_explained(options.run, loaded, "faithfulness", TASKS)
    predictor: Any = loaded.predictor
    given = [predictor.read(text) for text in options.texts]
    report = regard.faithfulness(
        predictor, given, options.target, options.methods or None, removal=options.removal, seed=options.seed
    )
    if options.json:
        for text, measured in zip(options.texts, report.inputs, strict=True):
            print(json.dumps({"text": text, **faithfulness_json(measured)}, ensure_ascii=False))
    else:
        print(faithfulness_table(report))
        warn(faithfulness_notes(report))
    if options.page is not None:
        is_picture = isinstance(predictor, PictureClassifier)
        pixels = predictor.bounded_inputs(given)[0] if is_picture else None
        write_page(faithfulness_page(report.inputs[0], pixels), options.page)
        note(f"the page is in {options.page}")
    return 0
