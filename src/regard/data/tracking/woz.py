"""WoZ 2.0: a list of dialogues, each turn with its label and its belief state  (Wen et al. 2017).  No torch here.

    [{"dialogue_idx": 0, "dialogue": [{"turn_idx": 0, "system_transcript": "", "system_acts": ["area", ["food",
      "thai"]], "transcript": "…", "turn_label": [["food", "thai"], ["request", "phone"]],
      "belief_state": [{"act": "inform", "slots": [["food", "thai"]]}]}, …]}, …]

The ontology is an object with "informable", values by slot, and "requestable".
"""

from collections.abc import Iterator, Mapping
from typing import Any

from regard.data.json_layout import JsonLayout
from regard.data.tracking.corrections import LabelCorrector
from regard.data.tracking.dialogue import Ontology, SystemAct, TrackedDialogue, TrackedTurn

# the slot of a label that names a request
_REQUEST = "request"


def read_woz(content: list[Any], file: JsonLayout, labels: LabelCorrector) -> Iterator[TrackedDialogue]:
    """The dialogues of a parsed file."""
    for number, entry in enumerate(content):
        item = file.checked(entry, dict, f"dialogue {number}")
        name = str(item.get("dialogue_idx", number))
        turns = file.get(item, "dialogue", list, f"dialogue {name}")
        yield TrackedDialogue(name, tuple(_turn(turn, n, name, file, labels) for n, turn in enumerate(turns)))


def _turn(entry: Any, index: int, dialogue: str, file: JsonLayout, labels: LabelCorrector) -> TrackedTurn:
    place = f"turn {index + 1} of dialogue {dialogue}"
    item = file.checked(entry, dict, place)
    if (given := file.get(item, "turn_idx", int, place)) != index:
        raise ValueError(
            f"{file.path}: {place} has the turn_idx {given}, and {index} must stand there; put the turns of a dialogue "
            "in order, from 0 on"
        )
    informs: dict[str, str] = {}
    requests: dict[str, None] = {}
    for slot, value in _pairs(file.get(item, "turn_label", list, place), file, f"'turn_label' of {place}", labels):
        if slot == _REQUEST:
            requests[value] = None
        else:
            informs[slot] = value
    state: dict[str, str] = {}
    for belief in file.get(item, "belief_state", list, place):
        belief = file.checked(belief, dict, f"'belief_state' of {place}")
        if belief.get("act") != _REQUEST:
            pairs = file.get(belief, "slots", list, f"'belief_state' of {place}")
            state |= dict(_pairs(pairs, file, f"'slots' of {place}", labels))
    acts = [
        SystemAct(labels.correct(act)) if isinstance(act, str) else SystemAct(*_pair(act, file, place, labels))
        for act in file.get(item, "system_acts", list, place)
    ]
    system, user = (file.text(item, key, place).strip() for key in ("system_transcript", "transcript"))
    return TrackedTurn(system, tuple(dict.fromkeys(acts)), user, informs, tuple(sorted(requests)), state)


def _pairs(entries: list[Any], file: JsonLayout, place: str, labels: LabelCorrector) -> list[tuple[str, str]]:
    return [_pair(entry, file, place, labels) for entry in entries]


def _pair(entry: Any, file: JsonLayout, place: str, labels: LabelCorrector) -> tuple[str, str]:
    if not isinstance(entry, list) or len(entry) != 2 or not all(isinstance(part, str) for part in entry):
        raise ValueError(
            f"{file.path}: a label of {place} must be a slot and a value, got {entry!r}; {file.layouts}; convert it"
        )
    slot, value = map(labels.correct, entry)
    return slot, value


def read_woz_ontology(content: Mapping[str, Any], file: JsonLayout, labels: LabelCorrector) -> Ontology:
    """The ontology of a parsed file."""
    informable = file.get(content, "informable", dict, "the ontology")
    requestable = file.get(content, "requestable", list, "the ontology")
    slots = {
        labels.correct(slot): labels.values(file.texts(values, f"the values of {slot!r}"))
        for slot, values in informable.items()
        if slot != _REQUEST
    }
    return Ontology(slots, labels.values(file.texts(requestable, "'requestable' of the ontology")))
