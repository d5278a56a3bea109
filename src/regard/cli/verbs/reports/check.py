"""regard check: whether a run is whole, loads, and answers as it did."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli import run_options
from regard.cli.output import note
from regard.cli.parsing.parser import parse
from regard.cli.run_options import LoadOptions
from regard.common.options.fields import flag, positional
from regard.common.wording import plural

if TYPE_CHECKING:
    from regard.tasks.loading import LoadedRun


@dataclass(frozen=True)
class CheckOptions:
    """Check a run before it is served: verify the checksums of its files, load it, and predict its stored examples.

    --write-manifest stores SHA-256 checksums and the answers to some inputs in RUN/manifest.json, which a copy of the
    run is then checked against; `regard serve` does so whenever it loads the run. Without a manifest the checksums
    inside the files are verified, and the model answers once. Exit code 2 if anything differs.

    Example: regard check runs/reviews "a good film" --write-manifest
    """

    run: Path = positional()
    """The folder of a run, or of a released model in transformers' layout."""
    inputs: tuple[str, ...] = positional(())
    """With --write-manifest: inputs to store with their answers, as `regard predict` takes them; if left out, one that
    was held out from the training."""
    write_manifest: bool = flag()
    """Write manifest.json into the run."""
    json: bool = flag()
    """Print one JSON object instead."""
    load: dict[str, Any] = field(default_factory=dict)


def run(args: Sequence[str]) -> int:
    options = parse(CheckOptions, "regard check", args, sections={"load": LoadOptions})
    if options.inputs and not options.write_manifest:
        raise ValueError(
            f"{options.inputs[0]!r} is an example to store; give --write-manifest as well, or leave the input out"
        )
    loaded = run_options.load(options.run, options.load)
    from regard.tasks import manifest

    if options.write_manifest:
        path = manifest.write(loaded, options.inputs or _held_out(loaded))
        note(f"the manifest is written to {path}; copy it with the run")
    checked = manifest.check(loaded, answers=options.load.get("quantization") is None)
    if options.json:
        print(json.dumps({"run": str(options.run), **asdict(checked)}, ensure_ascii=False))
        return 0
    print(f"version {checked.version}: the {checked.weights} weights of step {checked.step:,}")
    if checked.has_manifest:
        examples = plural(checked.examples, "stored example")
        print(f"{plural(checked.files, 'file')} as in manifest.json, {examples} answered as before")
    else:
        print(f"{plural(checked.files, 'file')} read, and the model answers; there is no manifest.json to compare with")
    return 0


def _held_out(loaded: "LoadedRun") -> list[str]:
    """An input that was held out from the training, if the data are still there."""
    try:
        example = loaded.task.example(loaded.folder)
    except (OSError, ValueError) as error:
        note(f"no example is stored ({error}); name inputs behind the run")
        return []
    if example is None:
        note("no example is stored; name inputs behind the run")
    return [] if example is None else [example]
