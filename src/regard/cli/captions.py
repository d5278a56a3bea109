"""What a trained captioner comes to: its scores, what it says of pictures, and where each word looked."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.cli.answers import tell, write
from regard.cli.pictures import looked_at
from regard.cli.sights import captioning
from regard.data.embedded.scenes import Captioned
from regard.data.images.captions import read_captions
from regard.decoding.search import Beam, Greedy
from regard.tasks._image_data import ImageStats
from regard.tasks.caption.options import Caption
from regard.tasks.caption.predictor import Captioner
from regard.tasks.caption.task import alike, evaluate, has_test, read
from regard.tasks.translate.predictor import TranslationHypothesis

if TYPE_CHECKING:
    from regard.cli.verbs import evaluate as evaluating
    from regard.cli.verbs import predict

_BEAM, _SAMPLES = 5, 5


def evaluated(typed: "evaluating.Options") -> int:
    """regard evaluate, of a run that captions."""
    loaded = captioning(typed.run, typed.weights, typed.device, typed.threads)
    split, some = _captioned(typed, loaded.task, loaded.by.facts)
    beam = _BEAM if typed.beam is None else typed.beam
    penalty = 1.0 if typed.length_penalty is None else typed.length_penalty
    begun = time.perf_counter()
    scores, said = evaluate(loaded.by.captioner, some, Greedy() if beam == 1 else Beam(beam, length_penalty=penalty))
    seconds = time.perf_counter() - begun
    write(typed, [one.text for one in said])
    tell(typed, loaded.step, seconds, len(some), "pictures", {"split": split, "beam": beam, "scores": scores})
    if not typed.json:
        if split == "valid" and typed.split != "valid":
            print(f"{typed.run} has no test pictures: these are those to validate on, which its weights were chosen by")
        _show(some, said)
    return 0


def _captioned(typed: "evaluating.Options", task: Caption, facts: ImageStats) -> tuple[str, Captioned]:
    """The pictures to be judged on, and what to call them."""
    if not typed.test:
        split = typed.split or "test" if has_test(task) else "valid"
        some = read(task, split)
        alike(some, f"the {split} split", facts)
        return split, some
    if len(typed.test) > 1:
        raise ValueError(f"--test must be one .tsv file, got {len(typed.test)}; join them first")
    some = read_captions(typed.test[0], task.size)
    alike(some, typed.test[0], facts)
    return str(typed.test[0]), some


def _show(some: Captioned, said: Sequence[TranslationHypothesis]) -> None:
    print()
    for n in range(0, len(said), max(1, len(said) // _SAMPLES))[:_SAMPLES]:
        right = some.captions[n]
        print(f"  {said[n].text}" + ("" if said[n].text in right else f"   right: {' / '.join(right)}"))


def predicted(typed: "predict.Options") -> int:
    """regard predict, of a run that captions."""
    captioner = captioning(typed.run, typed.weights, typed.device, typed.threads).by.captioner
    if typed.picture is not None and len(typed.inputs) != 1:
        raise ValueError(f"--picture draws the words of one picture, got {len(typed.inputs)}; name one")
    pixels = looked_at(typed, captioner.facts)
    top = typed.top or 1
    found = captioner.describe(pixels, Beam(max(_BEAM, top), nbest=top))
    for name, said in zip(typed.inputs, found, strict=True):
        if typed.json:
            told = [{"caption": one.text, "log_prob": one.log_prob, "score": one.score} for one in said]
            print(json.dumps({"file": name, "captions": told}, ensure_ascii=False))
        else:
            print(f"{name}\t" + "\t".join(one.text for one in said))
    if typed.picture is not None:
        draw(captioner, pixels[0], found[0][0], typed.picture)
    return 0


def draw(captioner: Captioner, pixels: NDArray[np.uint8], said: TranslationHypothesis, path: Path) -> Path:  # "h w c"
    """One map a word, over the picture."""
    import torch

    from regard.viz.recording.figures import draw_recording

    recording = captioner.recorded(pixels, said)
    return draw_recording(recording, path, what="captions", image=torch.from_numpy(pixels.copy()))
