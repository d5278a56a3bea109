"""Shared by the verbs record and view: the recording of a folder, figures over images, notes. No torch here."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from regard.cli.terminal_output import write_styled

if TYPE_CHECKING:
    from torch import Tensor

    from regard.recording.recording import Recording
    from regard.recording.run import RecordedRun

# figures that lie over an image, and the kinds of attention that they draw
_OVER_IMAGE = {
    "overlay": ("self", "cross", "alignment", "gate", "glimpse", "hop"),
    "class-token": ("self",),
    "captions": ("cross", "alignment"),
    "glimpses": ("glimpse",),
    "saliency": ("self", "cross", "alignment", "gate", "glimpse", "hop"),
}


def record_folder(
    folder: Path,
    argument: str | None,
    layers: Sequence[str],
    weights: Literal["best", "last", "average"] | None,
    *,
    gates: bool = False,
) -> "RecordedRun":
    """The model of the folder, a run or one that transformers saved, recorded while it reads the text or image.

    None stands for an example that a run held out from training. `gates` adds those of the recurrent cells of a run.
    """
    from regard.recording.pretrained.folder import CONFIG, is_image_model
    from regard.recording.run import check_not_empty
    from regard.training.run_folder import RECORD

    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; name one that holds a model, or a run")
    if (folder / RECORD).exists():
        recorded = _record_run(folder, argument, layers, weights or "best", gates)
        check_not_empty(recorded.recording, folder, layers)
        return recorded
    if not (folder / CONFIG).exists():
        raise FileNotFoundError(
            f"{folder} holds neither {CONFIG}, a model that transformers saved, nor {RECORD}, a run; name another"
        )
    if weights is not None:
        raise ValueError(f"--weights {weights} is for the folder of a run, and {folder} is not one; leave it out")
    if gates:
        raise ValueError(
            f"--gates is for the folder of a run with recurrent layers, and {folder} is none; leave it out"
        )
    if is_image_model(folder):
        from regard.recording.pretrained.image import record_image

        return record_image(folder, _image_path(folder, argument), layers)
    if argument is None:
        raise ValueError(f"{folder} holds a model of transformers, which has no text of its own; give one")
    _check_not_image(folder, argument)
    from regard.recording.pretrained.text import record_text

    return record_text(folder, argument, layers)


def _record_run(
    folder: Path, argument: str | None, layers: Sequence[str], weights: Literal["best", "last", "average"], gates: bool
) -> "RecordedRun":
    from regard.common import image_files
    from regard.common.input_kind import InputKind
    from regard.inference.predictor import labelled_recording
    from regard.recording.run import RecordedRun
    from regard.tasks.loading import load_run
    from regard.tasks.registry import read_config

    config = read_config(folder)
    kind = config.input_kind
    if not kind.is_attended:
        raise ValueError(
            f"{folder} is a run of {config.name}, which reads neither a text nor an image; name another run"
        )
    if kind is InputKind.IMAGE:
        # raises for a file that is no image before the model is loaded
        image_files.read(_image_path(folder, argument), mode="RGB")
    elif argument is not None and kind.is_text:
        if not argument.strip():
            raise ValueError("the text is empty, so there is nothing to record; give a sentence")
        _check_not_image(folder, argument)
    predictor = load_run(folder, weights, "cpu").predictor
    argument = config.load().example(folder) if argument is None else argument
    if argument is None:
        raise ValueError(f"{folder} has no example of its own; give an input")
    inputs = predictor.read(argument)
    predictor.check_attends("a recording")
    output, recording = labelled_recording(predictor, inputs, layers=layers, gates=gates, run=folder.name)
    if gates and not any(item.kind == "cell" for item in recording):
        raise ValueError(
            f"--gates records GRU and LSTM, and no layer of {folder} that was recorded is one; leave it out"
        )
    alignment, image = predictor.alignment(inputs, output), predictor.image(inputs)
    return RecordedRun(recording, predictor.summary(output), alignment, image)


def _check_not_image(folder: Path, argument: str) -> None:
    """Raises for the file of an image where a text is read: its name is hardly meant."""
    from regard.common.image_files import SUFFIXES

    if Path(argument).suffix.lower() in SUFFIXES and Path(argument).is_file():
        raise ValueError(
            f"{folder} reads text, and {argument} is the file of an image; give a sentence, or name a model that reads "
            f"images. To record the name as text, add a space: '{argument} '"
        )


def _image_path(folder: Path, argument: str | None) -> Path:
    if argument is None:
        raise ValueError(f"{folder} reads images; name one, such as three.png")
    return Path(argument)


def merge_words(recording: "Recording") -> "Recording":
    """From word to word; tokens without marks of sub-words are words already."""
    from regard.recording.analysis.words import marks_of

    tokens = [*(recording.queries or ()), *(recording.keys or ())]
    if tokens and not marks_of(tokens):
        return recording
    try:
        return recording.merge_words()
    except ValueError as error:
        raise ValueError(f"--words cannot join them: {error}; or leave --words out") from error


def has_grids(recording: "Recording") -> bool:
    """Whether any of its maps lies over the patches of an image."""
    return any(item.grid is not None for item in recording)


def check_over_image(recording: "Recording", option: str, what: str | None) -> None:
    """Raises if nothing in the recording attends to the patches of an image; `option` is what asked for it."""
    from regard.viz.recording.selection import is_channel_gate

    if not has_grids(recording):
        only = ": its gates weigh whole channels" if all(map(is_channel_gate, recording)) else ""
        raise ValueError(
            f"{option} needs attention over patches of an image, and there is none here{only}; leave it out"
        )
    kinds = _OVER_IMAGE[what] if what in _OVER_IMAGE else _OVER_IMAGE["overlay"]
    if not any(item.grid is not None and item.kind in kinds for item in recording):
        raise ValueError(
            f"{option} draws attention of kind {' or '.join(kinds)}, and there is none here; try --what overlay"
        )


def image_under(recording: "Recording", image: "Tensor | None", out: Path, what: str | None = None) -> "Tensor | None":
    """The image, where the file shows it: a page or a figure of attention over its patches."""
    drawn = out.suffix in (".html", ".png", ".svg", ".pdf") and (what is None or what in _OVER_IMAGE)
    return image if drawn and has_grids(recording) else None


def print_recording(recording: "Recording") -> None:
    """Prints the recording as wide as the terminal, in colour if it is one."""
    from regard.viz.show import show

    width = max(shutil.get_terminal_size((100, 24)).columns, 40)
    write_styled(show(recording).text(width=width, colour=sys.stdout.isatty()))


def count_maps(recording: "Recording") -> str:
    """The number of maps and modules, and of maps without a certificate."""
    unverified = sum(not item.verified for item in recording)
    maps = f"{len(recording)} map{'s' if len(recording) != 1 else ''}"
    checked = f"{unverified} of them UNVERIFIED" if unverified else "each checked against what the model computed"
    return f"{maps} of {len(recording.names)} module{'s' if len(recording.names) != 1 else ''}, {checked}"
