"""Tracked dialogues from files of any layout: WoZ 2.0, MultiWOZ, or columns separated by tabs.  No torch here.

    dialogue <tab> turn <tab> system <tab> acts <tab> user <tab> inform <tab> request
    a1 <tab> 1 <tab> <tab> <tab> Thai food, please. <tab> food=thai <tab>
    a1 <tab> 2 <tab> Which area? <tab> area <tab> The north. The address? <tab> area=north <tab> address

The columns are named by the first line, in any order; acts and request may be left out. Several labels are separated by
semicolons. The turns of a dialogue stand below each other, counted from 1.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from regard.common.wording import shortened
from regard.data.json_layout import JsonLayout
from regard.data.text.pairs import read_records
from regard.data.tracking.corrections import LabelCorrector
from regard.data.tracking.dialogue import Ontology, SystemAct, TrackedDialogue, build_turns
from regard.data.tracking.multiwoz import read_multiwoz, slot_name
from regard.data.tracking.woz import read_woz, read_woz_ontology

_LAYOUTS = "it must hold dialogues in the layout of WoZ 2.0 or MultiWOZ"
_ONTOLOGIES = "an ontology must be that of WoZ 2.0, or an object of slots with lists of values"
_NEEDED, _OPTIONAL = ("dialogue", "turn", "system", "user", "inform"), ("acts", "request")
_HOLDS = "a line of column names (dialogue, turn, system, user, inform; acts, request) and one turn per line, with tabs"


@dataclass(frozen=True)
class TrackedFile:
    """The dialogues of a file, and the corrections of its labels with how often each was needed."""

    dialogues: list[TrackedDialogue]
    corrections: Mapping[str, int] = field(default_factory=dict)


def is_json(path: Path) -> bool:
    """Whether a name is that of JSON, packed or not."""
    return path.name.removesuffix(".gz").endswith(".json")


def read_tracked(path: Path) -> TrackedFile:
    """The dialogues of a file, `.gz` unpacked: JSON of WoZ 2.0 or MultiWOZ by its suffix, otherwise columns."""
    file = _read_json(path) if is_json(path) else TrackedFile(list(_read_columns(path)))
    if not file.dialogues:
        raise ValueError(f"{path} has no dialogues; give a file with one at least")
    for dialogue in file.dialogues:
        if not dialogue.turns:
            raise ValueError(f"{path}: dialogue {dialogue.name} is empty; give it a turn, or leave it out")
    if not any(turn.user.strip() for dialogue in file.dialogues for turn in dialogue.turns):
        raise ValueError(f"{path} has no words of a user in any turn, so there is nothing to track; add them")
    return file


def has_turn_columns(line: str) -> bool:
    """Whether a line names the columns of turns with labels."""
    return {*_NEEDED} <= {name.strip().lower() for name in line.split("\t")}


def _read_json(path: Path) -> TrackedFile:
    file = JsonLayout(path, _LAYOUTS)
    content = file.parse()
    entries = list(content.values()) if isinstance(content, dict) else content
    first = entries[0] if isinstance(entries, list) and entries else None
    keys = first.keys() if isinstance(first, dict) else ()
    if isinstance(content, list) and "dialogue" in keys:
        labels = LabelCorrector("woz")
        return TrackedFile(list(read_woz(content, file, labels)), labels.counts)
    if ("log" if isinstance(content, dict) else "turns") in keys:
        labels = LabelCorrector("multiwoz")
        return TrackedFile(list(read_multiwoz(content, file, labels)), labels.counts)
    raise ValueError(f"{path} is JSON of another layout: {_LAYOUTS}; convert it")


def _read_columns(path: Path) -> Iterator[TrackedDialogue]:
    rows: list[tuple[int, list[str]]] = [(n, line.split("\t")) for n, line in enumerate(read_records(path, _HOLDS), 1)]
    header = [name.strip().lower() for name in rows[0][1]]
    if not {*_NEEDED} <= {*header} <= {*_NEEDED, *_OPTIONAL} or len(header) != len({*header}):
        raise ValueError(
            f"{path}:1: the file must have {_HOLDS}, got {shortened(', '.join(rows[0][1]))}; name the columns"
        )
    place = {name: header.index(name) for name in header}
    dialogues: dict[str, list[tuple[int, dict[str, str]]]] = {}
    last = None
    for number, parts in rows[1:]:
        if not any(map(str.strip, parts)):
            continue
        if len(parts) != len(header):
            raise ValueError(
                f"{path}:{number}: a line must have {len(header)} columns as the first line, got {len(parts)}; "
                "put a tab between columns"
            )
        row = {name: parts[place[name]].strip() if name in place else "" for name in (*_NEEDED, *_OPTIONAL)}
        name = row["dialogue"]
        if name in dialogues and name != last:
            raise ValueError(
                f"{path}:{number}: dialogue {name} goes on behind another one; put the turns of a dialogue below each "
                "other"
            )
        turns = dialogues.setdefault(name, [])
        if row["turn"] != str(len(turns) + 1):
            raise ValueError(
                f"{path}:{number}: dialogue {name} has turn {row['turn'] or 'without a number'} where turn "
                f"{len(turns) + 1} must stand; put the turns of a dialogue in order, counted from 1"
            )
        turns.append((number, row))
        last = name
    for name, entries in dialogues.items():
        yield TrackedDialogue(
            name,
            build_turns(
                (
                    row["system"],
                    tuple(SystemAct(*act.partition("=")[::2]) for act in _labels(row["acts"])),
                    row["user"],
                    dict(_inform(label, path, number) for label in _labels(row["inform"])),
                    tuple(sorted({*_labels(row["request"])})),
                )
                for number, row in entries
            ),
        )


def _labels(cell: str) -> list[str]:
    return [label.strip() for label in cell.split(";") if label.strip()]


def _inform(label: str, path: Path, number: int) -> tuple[str, str]:
    slot, _, value = (part.strip() for part in label.partition("="))
    if not slot or not value:
        raise ValueError(
            f"{path}:{number}: an inform must be slot=value, got {label!r}; separate several by semicolons"
        )
    return slot, value


def read_ontology(path: Path) -> Ontology:
    """The ontology of a JSON file: that of WoZ 2.0, or an object of slots with lists of values, as MultiWOZ has it.

    The second has no requests.
    """
    file = JsonLayout(path, _ONTOLOGIES)
    content = file.checked(file.parse(), dict, "the ontology")
    if "informable" in content:
        return read_woz_ontology(content, file, LabelCorrector("woz"))
    labels = LabelCorrector("multiwoz")
    slots = {
        slot_name(labels.correct(slot)): labels.values(file.texts(values, f"the values of {slot!r}"))
        for slot, values in content.items()
    }
    return Ontology(slots, ())
