"""Every sentence that is raised anywhere is read by a test somewhere.

A law over the text of both: what a `raise` says, and what the tests look for. Sentences that belong to the tests of
no single package are read here. The equation is held to more, by test_bad_input: there each one is raised.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.for_each import for_each
from tests.test_bad_input import SOURCES
from torch import nn

import regard
from regard.attn.maps.attention_map import DenseMap
from regard.cli.recording_output import merge_words
from regard.cli.verbs import view
from regard.common import image_files
from regard.common.dataclass_json import to_json
from regard.data.images.captions import read_captions
from regard.data.images.labelled import digits, read_images
from regard.inference.predictor import check_texts
from regard.models.convnet import ConvNet
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.recording.storage.map_codec import _decode_call
from regard.tasks.caption.options import Caption
from regard.tasks.glimpse.options import Glimpse
from regard.tasks.language_model.options import EvaluateLanguageModel, GenerateText
from regard.tasks.loading import weights_path
from regard.tasks.translate.options import Translate
from regard.training.checkpoint import collect
from regard.training.config import TrainingConfig
from regard.training.fit import fit
from regard.viz.alignment import Alignment
from regard.viz.plots.image_grid import write_png
from regard.viz.recording.page.builder import page_layers

ROOT = Path(__file__).parent
SOURCE = Path(regard.__file__).parent
# raised to be caught within the same file, or by machines that are out of memory
INTERNAL = {
    "attn/mechanisms/explicit_weights.py": "a bare call is compared by its mechanism",
    "kernels/native_library.py": "found no memory for its scratch rows",
    "models/pretrained/sentencepiece_files.py": "a field of bytes holds a number",
    "viz/recording/tile_server.py": "the server stops",
}
# shorter parts of a sentence say nothing, and so many letters in a row are no accident
ENOUGH, TOLD = 8, 20


def recorded(queries: int = 2, keys: int = 3, name: str = "a", **facts: Any) -> RecordedMap:
    return RecordedMap(name, "self", DenseMap(torch.full((1, 2, queries, keys), 1 / keys)), certificate=0.0, **facts)


def unmarked() -> None:
    def fail() -> None:
        raise ValueError("pieces are missing")

    merge_words(SimpleNamespace(queries=("▁a", "b"), keys=None, merge_words=fail))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Options:
    value: object


class Extra(nn.Module):
    def get_extra_state(self) -> dict[str, int]:
        return {"a": 1}


def two_sizes(folder: Path) -> None:
    for name, size in (("a", (5, 4)), ("b", (6, 4))):
        (folder / name).mkdir()
        Image.new("L", size).save(folder / name / "one.png")
    read_images(folder)


def captioned(folder: Path, line: str = "one.png\ta digit\n") -> Path:
    Image.new("L", (5, 4)).save(folder / "one.png")
    (folder / "captions.tsv").write_text(line, encoding="utf-8")
    return folder / "captions.tsv"


def without(library: str, act: Callable[[], object]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, library, None)
        act()


def a_call() -> None:
    form = {"queries": "q", "keys": "k", "batch": [7], "positions": None}
    _decode_call(form, {"q": torch.zeros(2, 3, 5), "k": torch.zeros(2, 4, 5)}.__getitem__)


FILE = Path("a.safetensors")
READ: dict[type[Exception], dict[str, Callable[[Path], object]]] = {
    FileNotFoundError: {"yet; train it: regard train": lambda at: weights_path(at, "average")},
    ValueError: {
        "--words cannot join them: pieces are missing; or": lambda _: unmarked(),
        "--what map is for a file; add --out, such as --out a.png": lambda _: view.ViewOptions(FILE, what="map"),
        "--head 1 means nothing with --serve; leave one of them out": lambda _: view.ViewOptions(
            FILE, head=1, serve=True
        ),
        "--stride 9 exceeds --window 8, so tokens would be left out; try --stride 8": lambda _: EvaluateLanguageModel(
            window=8, stride=9
        ),
        "--stop '' would end every text at once; name a word, or leave it out": lambda _: GenerateText(stop=("",)),
        "; give size, such as size=32, to make them alike": two_sizes,
        "captions.tsv:1: there is no file": lambda at: read_captions(captioned(at, "two.png\ta digit\n"), None),
        "has 1 picture and too few different ones to hold some out; give more": lambda at: Caption(
            train=captioned(at)
        ).prepare(at),
        "shift=1 belongs to scene='plain': others are composed anew; leave it out": lambda _: Glimpse(
            shift=1, scene="translated"
        ),
        "got (2, 8, 8); grey images have one channel, x.unsqueeze(1)": lambda _: ConvNet(1, 3)(torch.zeros(2, 8, 8)),
        "SqueezeExcite is on meta, x on cpu; move one, as in gate.to('cpu')": lambda _: regard.gates.SqueezeExcite(
            4
        ).to("meta")(torch.zeros(1, 4, 2, 2)),
        "the calls of 'a' are of several kinds or batches, or of some rows only": lambda _: Recording(
            (recorded(), replace(recorded(), kind="cross", call=1))
        ).stitch(),
        "; fix it with dataclasses.replace before it is saved": lambda at: Recording(
            (replace(recorded(), call=-1),)
        ).save(at / "a.safetensors"),
        "queries and keys are those of a batch (2,), not (7,)": lambda _: a_call(),
        "sinks are keys of one text, and the maps have 3 and 5 keys; take one kind and one call": lambda _: Recording(
            (recorded(), recorded(keys=5, name="b"))
        ).sinks(),
        "take one stack and one pass alone, as in select(layers='encoder*', calls=0)": lambda _: Recording(
            (recorded(3), recorded(5, 5, "b"))
        ).rollout(),
        "all 3 keys of 'a' would be hidden; leave one of them": lambda _: Recording((recorded(),)).without_keys(
            [0, 1, 2]
        ),
        "recording must hold at least one map, got none; record a forward pass first": lambda _: page_layers(
            Recording(()), None, 0
        ),
        "queries is no option of an Alignment, which has its own; leave it out": lambda _: regard.show(
            Alignment(["a"], ["b"], torch.ones(1, 1)), queries=["c"]
        ),
    },
    ImportError: {
        "the digits need scikit-learn; install it with: pip install": lambda _: without("sklearn.datasets", digits),
        "pictures need pillow; install it with: pip install 'regard[vision]'": lambda _: without(
            "PIL", lambda: image_files.read(b"")
        ),
        "pictures need pillow; install it with: pip install": lambda at: without(
            "PIL", lambda: write_png(at / "a.png", np.zeros((5, 7, 1), np.uint8))
        ),
    },
    TypeError: {
        "translate has no option xyz='red'; its options are ['attention',": lambda _: Translate.of(xyz="red"),
        "translate has no option dataa='reverse'; did you mean 'data'? its options": lambda _: Translate.of(
            dataa="reverse"
        ),
        "width must be a whole number, got '8'; write it in digits, such as width=1": lambda _: Translate.of(width="8"),
        "layers must be a whole number, got 1.5; write it in digits, such as layers=1": lambda _: Translate.of(
            layers=1.5
        ),
        "steps must be a whole number, got '2'; write it in digits, such as steps=1": lambda _: TrainingConfig(
            steps="2"
        ),
        "lr must be a number, got '0.1'; write it in digits, such as lr=1": lambda _: TrainingConfig(steps=2, lr="0.1"),
        "training must be a TrainingConfig, got {'steps': 1}; write training=TrainingConfig(steps=1000)": lambda path: (
            next(fit(Translate(), path / "run", {"steps": 1}))
        ),
        "config must be the options of a task, got 'translate'; write Translate.of(data='reverse')": lambda path: next(
            fit("translate", path / "run", TrainingConfig(steps=1))
        ),
        "inputs must be a list of texts, got None; try predictor.predict(['a text'])": lambda _: check_texts(None),
        "0j is no value of JSON": lambda _: to_json(Options(0j)),
        ", and checkpoints hold tensors only; make it a buffer, or drop get_extra_state": lambda _: collect(Extra()),
        "must be whole numbers, a slice of them or one, got 'a'; try heads=0": lambda _: Recording(
            (recorded(),)
        ).select(heads=["a"]),
    },
}


@for_each(("kind", "sentence"), [(kind, sentence) for kind, cases in READ.items() for sentence in cases])
def test_the_sentence_says_what_where_and_the_way_out(kind: type[Exception], sentence: str, tmp_path: Path) -> None:
    with pytest.raises(kind, match=re.escape(sentence)):
        READ[kind][sentence](tmp_path)


def fixed(said: ast.expr) -> list[str]:
    """The parts of a sentence that are written down."""
    if isinstance(said, ast.Constant):
        return [said.value] if isinstance(said.value, str) else []
    if isinstance(said, ast.JoinedStr):
        return [part.value for part in said.values if isinstance(part, ast.Constant)]
    return []


def raised(file: Path) -> Iterator[tuple[int, list[str]]]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            parts = [part.strip() for part in fixed(node.exc.args[0])]
            if enough := [part for part in parts if len(part) >= ENOUGH]:
                yield node.lineno, enough


def looked_for() -> set[str]:
    """What stands between the wildcards of all strings of all tests but docstrings."""
    found = set()
    for file in ROOT.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        told = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
                plain = re.sub(r"\\(\W)", r"\1", node.value)
                found |= {part.strip() for part in re.split(r"\.[*+]\??|\n", plain)}
    return {part for part in found if len(part) >= ENOUGH}


def runs(parts: tuple[str, ...]) -> set[str]:
    """Every TOLD letters in a row of a sentence; the longest part of a shorter one."""
    letters = min(TOLD, max(map(len, parts)))
    return {part[i : i + letters] for part in parts for i in range(len(part) - letters + 1)}


def test_every_sentence_is_read_somewhere() -> None:
    texts = looked_for()
    whole = "\n".join(texts)
    said = [
        (file.relative_to(SOURCE).as_posix(), line, tuple(parts))
        for file in sorted(SOURCE.rglob("*.py"))
        for line, parts in raised(file)
    ]
    times = Counter(run for parts in {parts for _, _, parts in said} for run in runs(parts))
    # runs of the length of most are looked up: a search in the whole text takes a thousand times as long
    read = {run for text in texts for n in range(len(text) - TOLD + 1) if (run := text[n : n + TOLD]) in times}
    unread = []
    for name, line, parts in said:
        if name.startswith(SOURCES) or INTERNAL.get(name, "\0") in " ".join(parts):
            continue
        # words that another sentence has as well do not tell which of them was read
        own = {run for run in runs(parts) if times[run] == 1 and " " in run} or runs(parts)
        if not any(run in read or (len(run) < TOLD and run in whole) for run in own):
            unread.append(f"{name}:{line} {' … '.join(parts)}")
    assert not unread, "nobody reads:\n" + "\n".join(unread)
