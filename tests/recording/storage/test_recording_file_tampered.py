"""A recording from anybody: every field is checked, and what is wrong is told in one sentence."""

import json
import re
from collections.abc import Callable
from pathlib import Path

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


def tampered(path: Path, change: Callable[[dict], object]) -> None:
    """The file with other facts."""
    with safe_open(path, "pt") as file:
        facts = json.loads(file.metadata()["regard.recording"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    change(facts)
    write_atomically(path, encode(tensors, {"regard.recording": json.dumps(facts)}))


def of_map(**changes: object) -> Callable[[dict], object]:
    return lambda facts: facts["maps"][0].update(changes)


def of_form(**changes: object) -> Callable[[dict], object]:
    return lambda facts: facts["maps"][0]["map"].update(changes)


TAMPERED: dict[str, tuple[Callable[[dict], object], str]] = {
    "a direction": (of_map(reversed="yes"), "map 0: reversed must be a truth, got 'yes'"),
    "another format": (lambda facts: facts.update(format=3), "has format 3, this version reads format 2"),
    "a format in words": (
        lambda facts: facts.update(format="x"),
        "has format 'x', which is no whole number; take another recording",
    ),
    "no maps": (lambda facts: facts.pop("maps"), "maps must be a list, and is missing"),
    "maps by name": (lambda facts: facts.update(maps={}), "maps must be a list, got {}"),
    "a map in words": (lambda facts: facts.update(maps=["a"]), "map 0 must be fields by name, got 'a'"),
    "no about": (lambda facts: facts.pop("about"), "about must be texts by name, and is missing"),
    "about a number": (lambda facts: facts.update(about={"model": 3}), "about: model must be text, got 3"),
    "tokens that are numbers": (
        lambda facts: facts.update(queries=[1, 2]),
        "queries must be tokens of text, or nothin",
    ),
    "tokens that are a text": (
        lambda facts: facts.update(keys="ab"),
        "keys must be tokens of text, or nothing, got 'ab'",
    ),
    "no how": (lambda facts: facts["maps"][0].pop("how"), "map 0: how must be text, and is missing"),
    "a name that is a number": (of_map(name=3), "map 0: name must be text, got 3"),
    "a strange kind": (of_map(kind="weird"), "map 0: kind must be one of self, cross, alignment"),
    "a kind for the terminal": (of_map(kind="\x1b]0;pwned\x07"), r"got '\x1b]0;pwned\x07'"),
    "a call for the terminal": (of_map(call="\x1b[2J"), r"map 0: call must be a whole number from 0, got '\x1b[2J'"),
    "a step in words": (of_map(step="x"), "map 0: step must be a whole number from 0, got 'x'"),
    "a step that is a truth": (of_map(step=True), "map 0: step must be a whole number from 0, got True"),
    "a certificate in words": (of_map(certificate="sure"), "map 0: certificate must be a number from 0 as text"),
    "a certificate below nothing": (of_map(certificate="-1"), "map 0: certificate must be a number from 0 as text"),
    "no tolerance": (of_map(tolerance=None), "map 0: tolerance must be a number from 0 as text, got None"),
    "a grid of one side": (of_map(grid=[2]), "map 0: grid must be two sizes from 1, or nothing, got [2]"),
    "a grid of nothing": (of_map(grid=[0, 2]), "map 0: grid must be two sizes from 1, or nothing, got [0, 2]"),
    "a grid beyond the keys": (of_map(grid=[2, 3]), "map 0: grid must have at most the 5 patches of (2, 3, 5, 5), got"),
    "too few rows": (of_map(rows=[0]), "map 0: rows must be 5, one per query of (2, 3, 5, 5), got 1"),
    "rows in words": (of_map(rows="01234"), "map 0: rows must be whole numbers from 0, or nothing, got '01234'"),
    "too many heads": (of_map(heads=[0, 1, 2, 3]), "map 0: heads must be as many as (2, 3, 5, 5) has, got 4"),
    "a form in words": (of_map(map="all"), "map 0: map must be the form of a map, got 'all'"),
    "a slope of another shape": (
        of_map(slope={"weights": "0.map.keys"}),
        "map 0: slope must be (2, 3, 5, 5) as its ma",
    ),
    "no heads at all": (of_map(map={"heads": []}), "a map must be made of maps that fit one another, got []"),
    "heads that do not fit": (
        of_map(map={"heads": [{"weights": "0.map.keys"}, {"weights": "1.map.weights"}]}),
        "fit one another, got [(2, 3, 5, 7), (2, 3, 5, 5)]",
    ),
    "weights that are no matrix": (of_map(map={"weights": "2.map.mask.lengths"}), "weights must be floating, (*, qu"),
    "a tensor that is not there": (of_form(keys="nowhere"), "there is no tensor 'nowhere' in it"),
    "a tensor by number": (of_form(keys=3), "is not a valid recording"),
    "another batch": (of_form(batch=[5, 3]), "those of a batch (2, 3), not (5, 3)"),
    "a smaller batch": (of_form(batch=[1, 3]), "those of a batch (2, 3), not (1, 3)"),
    "many heads out of one": (
        lambda facts: facts["maps"][3]["map"].update(batch=[1, 200_000]),
        "those of a batch (1, 1), not (1, 200000)",
    ),
    "an unknown mask": (of_form(mask={"kind": "own"}), "unknown mask 'own'"),
    "an unknown bias": (of_form(bias={"kind": "own"}), "unknown bias 'own'"),
    "a bias of many heads": (
        of_form(bias={"kind": "alibi", "heads": 10**9}),
        "of as many heads as the batch (2, 3) has",
    ),
    "a scale in words": (of_form(scale="all"), "scale must be a number"),
}


@for_each("case", TAMPERED)
def test_a_file_that_was_tampered_with(case: str, tmp_path: Path) -> None:
    change, said = TAMPERED[case]
    maps = (
        computed(),
        DenseMap(weights(2, 3, 5, 5)),
        computed(mask=regard.Lengths(torch.tensor([3, 5]))),
        computed(1, 1, 5, 5),
    )
    path = Recording(tuple(RecordedMap("a", "self", one) for one in maps)).save(tmp_path)
    tampered(path, change)
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        Recording.load(path)
    assert str(caught.value).isprintable()


def test_json_of_any_depth(tmp_path: Path) -> None:
    path = tmp_path / "deep.safetensors"
    save_file({"a": torch.zeros(2)}, path, {"regard.recording": "[" * 100_000})
    with pytest.raises(
        ValueError, match=r"deep.safetensors is damaged or no safetensors file .*; take another recording"
    ):
        Recording.load(path)
