"""Tracked dialogues from files: three layouts, corrections of labels, and one sentence per mistake."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.for_each import for_each

from regard.data.tracking.corrections import CORRECTIONS, LabelCorrector
from regard.data.tracking.dialogue import Ontology, SystemAct, TrackedDialogue, TrackedTurn
from regard.data.tracking.files import read_ontology, read_tracked

FIXTURES = Path(__file__).parents[2] / "fixtures" / "tracking"
HEADER = "dialogue\tturn\tsystem\tacts\tuser\tinform\trequest\n"
ROWS = (
    "a\t1\t\t\tThai food.\tfood=thai\t\n"
    "a\t2\tWhere? North?\tarea=north; area\tYes. Address? Phone?\tarea=north; food=greek\tphone; address\n"
    "b\t1\t\t\tHello.\t\t\n"
)


def test_woz(tmp_path: Path) -> None:
    found = read_tracked(FIXTURES / "woz.json")
    first, second = found.dialogues[0].turns
    assert first.state == {"price range": "expensive", "area": "centre"} == first.informs
    assert second.acts == (SystemAct("food"), SystemAct("food", "corsica"))
    assert (second.informs, second.requests) == ({"food": "corsica"}, ("phone",))
    assert second.state == {"price range": "expensive", "area": "centre", "food": "corsica"}
    assert found.dialogues[1].turns[1].informs == {"price range": "dontcare"}
    assert found.dialogues[2].turns[0].state == {}
    assert found.corrections == {
        "' expensive' → 'expensive'": 2,
        "'center' → 'centre'": 2,
        "'corsican' → 'corsica'": 1,
        "'east side' → 'east'": 1,
    }
    packed = tmp_path / "woz.json.gz"
    packed.write_bytes(gzip.compress((FIXTURES / "woz.json").read_bytes()))
    assert read_tracked(packed) == found
    ontology = read_ontology(FIXTURES / "ontology-woz.json")
    assert ontology.requests == ("address", "phone")
    assert ontology.values("food") == ("corsica", "thai", "dontcare")
    ontology.check(found.dialogues, packed)


def test_multiwoz_with_a_log() -> None:
    found = read_tracked(FIXTURES / "multiwoz-2.1.json").dialogues
    first, second, third = found[0].turns
    assert (first.system, first.acts, first.informs) == ("", (), {"hotel-pricerange": "cheap"})
    assert second.acts == (SystemAct("hotel-area"),)
    assert (second.informs, second.requests) == ({"hotel-area": "centre"}, ("hotel-phone",))
    assert third.acts == (SystemAct("hotel-name", "bell house"), SystemAct("hotel-area", "centre"))
    assert third.state == {"hotel-pricerange": "cheap", "hotel-area": "centre"}
    assert found[1].turns[0].state == {"hotel-stars": "dontcare", "hotel-book stay": "2", "hotel-book day": "friday"}
    assert found[1].turns[1].informs["taxi-leaveat"] == "17:15"
    # the last words of the user have no answer, so the state stays
    assert found[2].turns[2].state == found[2].turns[1].state == {"taxi-destination": "museum", "taxi-leaveat": "10:00"}
    ontology = read_ontology(FIXTURES / "ontology-multiwoz.json")
    Ontology(ontology.slots, ("hotel-phone",)).check(found, FIXTURES)


def test_multiwoz_with_frames() -> None:
    found = read_tracked(FIXTURES / "multiwoz-2.2.json").dialogues
    assert found[0].turns[1].requests == ("hotel-phone",)
    assert found[0].turns[1].system == "In which area?"
    assert found[1].turns[1].state["taxi-leaveat"] == "17:15"
    # a slot that is taken back is no inform
    assert (found[2].turns[1].informs, found[2].turns[1].state) == ({}, {})


def test_columns(tmp_path: Path) -> None:
    path = tmp_path / "turns.tsv"
    path.write_text(HEADER + ROWS)
    (first, second), (third,) = (dialogue.turns for dialogue in read_tracked(path).dialogues)
    assert first.state == {"food": "thai"}
    assert second == TrackedTurn(
        "Where? North?",
        (SystemAct("area", "north"), SystemAct("area")),
        "Yes. Address? Phone?",
        {"area": "north", "food": "greek"},
        ("address", "phone"),
        {"food": "greek", "area": "north"},
    )
    assert third.state == {}
    path.write_text("user\tdialogue\tturn\tinform\tsystem\nHello.\ta\t1\t\t\n\t\t\t\t\n")
    assert read_tracked(path).dialogues == [TrackedDialogue("a", (TrackedTurn("", (), "Hello.", {}, (), {}),))]


@for_each(
    ("text", "message"),
    [
        ("Dialogue\tturn\n", "1: the file must have a line of column names .*, got 'Dialogue, turn'; name the columns"),
        (HEADER + "a\t1\n", "2: a line must have 7 columns as the first line, got 2; put a tab between columns"),
        (HEADER + ROWS + "a\t3\t\t\tyes\t\t\n", "5: dialogue a goes on behind another one; put the turns of a"),
        (HEADER + ROWS + "b\t3\t\t\tyes\t\t\n", "5: dialogue b has turn 3 where turn 2 must stand; put the turns of"),
        (HEADER + ROWS + "c\t1\t\t\tyes\tfood\t\n", "5: an inform must be slot=value, got 'food'; separate several"),
        (HEADER + "a\t1\tWhere?\t\t\tarea=north\t\n", "turns.tsv has no words of a user in any turn, so there is"),
        (HEADER, " has no dialogues; give a file with one at least"),
    ],
)
def test_mistakes_in_columns(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "turns.tsv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_tracked(path)


def changed(name: str, change: Callable[[Any], object], folder: Path) -> Path:
    """A fixture with a change."""
    content = json.loads((FIXTURES / name).read_text())
    change(content)
    path = folder / "changed.json"
    path.write_text(json.dumps(content))
    return path


@for_each(
    ("name", "change", "message"),
    [
        (
            "woz.json",
            lambda c: c[1]["dialogue"].reverse(),
            "put the turns of a dialogue in order, from 0 on",
        ),
        ("woz.json", lambda c: c[1]["dialogue"].clear(), "dialogue 1 is empty; give it a turn, or leave it out"),
        ("woz.json", lambda c: c.clear(), "is JSON of another layout: it must hold dialogues in the layout of WoZ 2.0"),
        ("woz.json", lambda c: c[0]["dialogue"][0].pop("transcript"), "turn 1 of dialogue 0 has no 'transcript'; it"),
        (
            "woz.json",
            lambda c: c[0]["dialogue"][0].update(turn_label=[["food"]]),
            r"a label of 'turn_label' of turn 1 of dialogue 0 must be a slot and a value, got \['food'\]; it must",
        ),
        (
            "multiwoz-2.1.json",
            lambda c: c["SNG0001.json"]["log"].pop(0),
            "turn 1 of dialogue SNG0001.json must be the words of the user, without metadata, and those of the system",
        ),
        (
            "multiwoz-2.1.json",
            lambda c: c["SNG0001.json"]["log"][0].update(dialog_act={"Hotel-Inform": [["Area"]]}),
            r"'Hotel-Inform' of turn 1 of dialogue SNG0001.json must hold slots with values, got \['Area'\]; it must "
            "hold dialogues in the layout of WoZ 2.0 or MultiWOZ; convert it",
        ),
        (
            "multiwoz-2.2.json",
            lambda c: c[0]["turns"][0]["frames"][0]["state"].update(slot_values=["hotel-area"]),
            "'slot_values' of turn 1 of dialogue SNG0001.json must be an object, got",
        ),
        ("multiwoz-2.2.json", lambda c: c[0]["turns"].pop(0), "dialogue SNG0001.json has 'SYSTEM' with the turn_id"),
        ("ontology-woz.json", lambda c: c.pop("requestable"), "is JSON of another layout: it must hold dialogues"),
    ],
)
def test_mistakes_in_json(name: str, change: Callable[[Any], object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_tracked(changed(name, change, tmp_path))


def test_labels_outside_of_the_ontology() -> None:
    found = read_tracked(FIXTURES / "woz.json").dialogues
    path = FIXTURES / "woz.json"
    slots = {"food": ("corsica",), "price range": ("expensive",), "area": ("centre", "east")}
    Ontology(slots, ("phone", "address")).check(found, path)
    with pytest.raises(ValueError, match="turn 1 of dialogue 2: unknown request 'address'; known are: phone"):
        Ontology(slots, ("phone",)).check(found, path)
    with pytest.raises(ValueError, match="turn 2 of dialogue 0: unknown slot 'food'; known are: area, price range"):
        Ontology({"area": ("centre", "east"), "price range": ("expensive",)}, ("phone",)).check(found, path)
    with pytest.raises(ValueError, match="turn 1 of dialogue 1: unknown value of area 'east'; known are: centre"):
        Ontology({**slots, "area": ("centre",)}, ("phone", "address")).check(found, path)
    assert Ontology.of(found) == Ontology(dict(sorted(slots.items())), ("address", "phone"))
    with pytest.raises(ValueError, match="an ontology must have one slot or more, got none; give dialogues that"):
        Ontology.of(found[2:])


def test_corrections_end_in_one_step() -> None:
    for layout, corrections in CORRECTIONS.items():
        labels = LabelCorrector(layout)
        assert all(labels.correct(right) == right for right in corrections.values())
        assert not labels.counts
        assert labels.correct(" Expensive ") == "expensive"
