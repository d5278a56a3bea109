"""What a trained captioner comes to: its scores, what it says of pictures, and where each word looked."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.cli.answers import tell
from regard.cli.loading import Weights, recorded, weigh, weighed
from regard.cli.pictures import looked_at
from regard.data.captions import read_captions
from regard.data.scenes import Captioned
from regard.tasks.caption import Caption
from regard.tasks.captioner import Captioner
from regard.tasks.captioning import alike, evaluate, has_test, read
from regard.tasks.interpreter import Beam, Greedy, Said
from regard.tasks.restored import restored

if TYPE_CHECKING:
    from regard.cli import evaluate as evaluating
    from regard.cli import predict

_BEAM, _SAMPLES = 5, 5


@dataclass(frozen=True, eq=False)
class Loaded:
    """A captioner with its weights."""

    task: Caption
    captioner: Captioner
    step: int


def load(run: Path, weights: Weights, device: str, threads: int | None) -> Loaded:
    record = recorded(run)
    task, path = restored(Caption, record.task), weighed(run, weights)
    captioner = Captioner.of(task, run)
    return Loaded(task, captioner, weigh(captioner.model, path, device, threads or record.threads))


def evaluated(typed: "evaluating.Options") -> int:
    """regard evaluate, of a run that captions."""
    loaded = load(typed.run, typed.weights, typed.device, typed.threads)
    split, some = _captioned(typed, loaded)
    beam = _BEAM if typed.beam is None else typed.beam
    penalty = 1.0 if typed.length_penalty is None else typed.length_penalty
    begun = time.perf_counter()
    scores, said = evaluate(loaded.captioner, some, Greedy() if beam == 1 else Beam(beam, length_penalty=penalty))
    seconds = time.perf_counter() - begun
    if typed.out is not None:
        lines = "".join(one.text.replace("\n", " ") + "\n" for one in said)
        typed.out.write_text(lines, encoding="utf-8", newline="\n")
    tell(typed, loaded.step, seconds, len(some), "pictures", {"split": split, "beam": beam, "scores": scores})
    if not typed.json:
        if split == "valid" and typed.split != "valid":
            print(f"{typed.run} has no test pictures: these are those to validate on, which its weights were chosen by")
        _show(some, said)
    return 0


def _captioned(typed: "evaluating.Options", loaded: Loaded) -> tuple[str, Captioned]:
    """The pictures to be judged on, and what to call them."""
    facts = loaded.captioner.facts
    if not typed.test:
        split = typed.split or "test" if has_test(loaded.task) else "valid"
        some = read(loaded.task, split)
        alike(some, f"the {split} split", facts)
        return split, some
    if len(typed.test) > 1:
        raise ValueError(f"--test must be one .tsv file, got {len(typed.test)}; join them first")
    some = read_captions(typed.test[0], loaded.task.size)
    alike(some, typed.test[0], facts)
    return str(typed.test[0]), some


def _show(some: Captioned, said: Sequence[Said]) -> None:
    print()
    for n in range(0, len(said), max(1, len(said) // _SAMPLES))[:_SAMPLES]:
        right = some.captions[n]
        print(f"  {said[n].text}" + ("" if said[n].text in right else f"   right: {' / '.join(right)}"))


def predicted(typed: "predict.Options") -> int:
    """regard predict, of a run that captions."""
    loaded = load(typed.run, typed.weights, typed.device, typed.threads)
    if typed.picture is not None and len(typed.inputs) != 1:
        raise ValueError(f"--picture draws the words of one picture, got {len(typed.inputs)}; name one")
    pixels = looked_at(typed, loaded.captioner.facts)
    top = typed.top or 1
    found = loaded.captioner.describe(pixels, Beam(max(_BEAM, top), nbest=top))
    for name, said in zip(typed.inputs, found, strict=True):
        if typed.json:
            told = [{"caption": one.text, "log_prob": one.log_prob, "score": one.score} for one in said]
            print(json.dumps({"file": name, "captions": told}, ensure_ascii=False))
        else:
            print(f"{name}\t" + "\t".join(one.text for one in said))
    if typed.picture is not None:
        draw(loaded.captioner, pixels[0], found[0][0], typed.picture)
    return 0


def draw(captioner: Captioner, pixels: NDArray[np.uint8], said: Said, path: Path) -> Path:  # "h w c"
    """One map a word, over the picture."""
    import torch

    from regard.view.recording_figure import draw_recording

    recording = captioner.recorded(pixels, said)
    return draw_recording(recording, path, what="captions", image=torch.from_numpy(pixels.copy()))
