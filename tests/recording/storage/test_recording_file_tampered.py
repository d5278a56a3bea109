"""A recording from anybody: every field is checked, and one sentence says what is wrong."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tests.for_each import for_each
from tests.recording.toy import computed, weights

import regard
from regard.attn.maps.attention_map import DenseMap
from regard.common.atomic_files import write_atomically
from regard.common.safetensors_files import encode
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.recording.storage.recording_file import _FIELDS

Change = Callable[[dict[str, Any]], object]


def check_refused(change: Change, sentence: str, folder: Path) -> None:
    """Reads a recording of four maps with other facts."""
    masked = computed(mask=regard.Lengths(torch.tensor([3, 5])))
    maps = (computed(), DenseMap(weights(2, 3, 5, 5)), masked, computed(1, 1, 5, 5))
    path = Recording(tuple(RecordedMap("a", "self", each) for each in maps)).save(folder)
    with safe_open(path, "pt") as file:
        facts = json.loads(file.metadata()["regard.recording"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(facts)
    write_atomically(path, encode(tensors, {"regard.recording": json.dumps(facts)}))
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        Recording.load(path)
    assert str(caught.value).isprintable()


@for_each("name", _FIELDS)
def test_every_field_is_there_and_of_its_type(name: str, tmp_path: Path) -> None:
    meaning = _FIELDS[name].meaning
    check_refused(
        lambda facts: facts["maps"][0].pop(name), f"map 0: {name} must be {meaning}, and is missing", tmp_path
    )
    wrong = 3 if name in ("name", "how") else "\x1b]0;x\x07"
    check_refused(of_map(**{name: wrong}), f"map 0: {name} must be {meaning}, got {wrong!r}", tmp_path)


def of_map(**changes: object) -> Change:
    return lambda facts: facts["maps"][0].update(changes)


def of_form(**changes: object) -> Change:
    return lambda facts: facts["maps"][0]["map"].update(changes)


TAMPERED: dict[str, Change] = {
    "has format 3, this version reads format 2": lambda facts: facts.update(format=3),
    "has format 'x', which is no whole number; take another recording": lambda facts: facts.update(format="x"),
    "maps must be a list, and is missing": lambda facts: facts.pop("maps"),
    "maps must be a list, got {}": lambda facts: facts.update(maps={}),
    "map 0 must be fields by name, got 'a'": lambda facts: facts.update(maps=["a"]),
    "about must be texts by name, and is missing": lambda facts: facts.pop("about"),
    "about: model must be text, got 3": lambda facts: facts.update(about={"model": 3}),
    "queries must be tokens of text, or nothing": lambda facts: facts.update(queries=[1, 2]),
    "keys must be tokens of text, or nothing, got 'ab'": lambda facts: facts.update(keys="ab"),
    "map 0: kind must be one of self, cross, alignment": of_map(kind="weird"),
    "map 0: step must be a whole number from 0, got True": of_map(step=True),
    "map 0: certificate must be a number from 0 as text": of_map(certificate="-1"),
    "map 0: grid must be two sizes from 1, or nothing, got [2]": of_map(grid=[2]),
    "map 0: grid must be two sizes from 1, or nothing, got [0, 2]": of_map(grid=[0, 2]),
    "map 0: grid must have at most the 5 patches of (2, 3, 5, 5), got": of_map(grid=[2, 3]),
    "map 0: rows must be 5, one per query of (2, 3, 5, 5), got 1": of_map(rows=[0]),
    "map 0: heads must be as many as (2, 3, 5, 5) has, got 4": of_map(heads=[0, 1, 2, 3]),
    "map 0: slope must be (2, 3, 5, 5) as its map": of_map(slope={"weights": "0.map.keys"}),
    "a map must be made of maps that fit one another, got []": of_map(map={"heads": []}),
    "fit one another, got [(2, 3, 5, 7), (2, 3, 5, 5)]": of_map(
        map={"heads": [{"weights": "0.map.keys"}, {"weights": "1.map.weights"}]}
    ),
    "weights must be floating, (*, qu": of_map(map={"weights": "2.map.mask.lengths"}),
    "there is no tensor 'nowhere' in it": of_form(keys="nowhere"),
    "is not a valid recording": of_form(keys=3),
    "those of a batch (2, 3), not (5, 3)": of_form(batch=[5, 3]),
    "those of a batch (2, 3), not (1, 3)": of_form(batch=[1, 3]),
    "those of a batch (1, 1), not (1, 200000)": lambda facts: facts["maps"][3]["map"].update(batch=[1, 200_000]),
    "unknown mask 'own'": of_form(mask={"kind": "own"}),
    "unknown bias 'own'": of_form(bias={"kind": "own"}),
    "of as many heads as the batch (2, 3) has": of_form(bias={"kind": "alibi", "heads": 10**9}),
    "scale must be a number": of_form(scale="all"),
}


@for_each("sentence", TAMPERED)
def test_a_file_that_was_tampered_with(sentence: str, tmp_path: Path) -> None:
    check_refused(TAMPERED[sentence], sentence, tmp_path)


def test_json_of_any_depth(tmp_path: Path) -> None:
    path = tmp_path / "deep.safetensors"
    save_file({"a": torch.zeros(2)}, path, {"regard.recording": "[" * 100_000})
    sentence = r"deep.safetensors is damaged or no safetensors file .*; take another recording"
    with pytest.raises(ValueError, match=sentence):
        Recording.load(path)
