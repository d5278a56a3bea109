"""MultiWOZ in its two published layouts  (Budzianowski et al. 2018; Zang et al. 2020).  No torch here.

    2.0, 2.1   {"SNG01.json": {"log": [{"text": …, "metadata": {}, "dialog_act": {"Hotel-Request": [["Phone", "?"]]}},
                {"text": …, "metadata": {"hotel": {"semi": {"area": "north"}, "book": {"booked": [], "day": ""}}}, …}]}}
    2.2        [{"dialogue_id": "SNG01.json", "turns": [{"speaker": "USER", "turn_id": "0", "utterance": …, "frames":
                [{"state": {"slot_values": {"hotel-area": ["north"]}, "requested_slots": ["hotel-phone"]}}]}, …]}]

User and system take turns, the user first. A slot is named by its domain: hotel-area, restaurant-book day. The files
have the state after a turn, in 2.0 and 2.1 beside the answer of the system; the informs of a turn are its new values.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from regard.data.json_layout import JsonLayout
from regard.data.tracking.corrections import LabelCorrector
from regard.data.tracking.dialogue import State, SystemAct, TrackedDialogue, TrackedTurn

# values of a slot that has none
_NONE = ("", "none", "not mentioned")
# names of slots in the acts of 2.1 that differ from those of its states
_ACT_SLOTS = {
    "price": "pricerange",
    "dest": "destination",
    "depart": "departure",
    "leave": "leaveat",
    "arrive": "arriveby",
    "addr": "address",
    "post": "postcode",
    "ref": "reference",
}


def read_multiwoz(content: Any, file: JsonLayout, labels: LabelCorrector) -> Iterator[TrackedDialogue]:
    """The dialogues of a parsed file of either layout."""
    if isinstance(content, Mapping):
        for name, entry in content.items():
            log = file.get(file.checked(entry, dict, f"dialogue {name}"), "log", list, f"dialogue {name}")
            yield TrackedDialogue(name, tuple(_turns_of_log(log, name, file, labels)))
        return
    for number, entry in enumerate(content):
        item = file.checked(entry, dict, f"dialogue {number}")
        name = file.text(item, "dialogue_id", f"dialogue {number}")
        turns = file.get(item, "turns", list, f"dialogue {name}")
        yield TrackedDialogue(name, tuple(_turns_of_frames(turns, name, file, labels)))


def slot_name(slot: str) -> str:
    """One name for the spellings of a slot in states and ontologies: hotel-pricerange for hotel-semi-price range."""
    domain, _, name = slot.replace("-semi-", "-").replace("-book-", "-book ").partition("-")
    is_booked = name.startswith("book ")
    return f"{domain}-{'book ' if is_booked else ''}{name.removeprefix('book ').replace(' ', '')}"


def _turns_of_log(log: list[Any], name: str, file: JsonLayout, labels: LabelCorrector) -> Iterator[TrackedTurn]:
    system, before = "", dict[str, str]()
    acts: tuple[SystemAct, ...] = ()
    for n in range(0, len(log), 2):
        place = f"turn {n // 2 + 1} of dialogue {name}"
        said = file.checked(log[n], dict, place)
        # a dialogue that ends with the user has no state behind its last words
        answer = file.checked(log[n + 1], dict, place) if n + 1 < len(log) else {"text": ""}
        metadata = file.get(answer, "metadata", dict, place) if n + 1 < len(log) else None
        if file.get(said, "metadata", dict, place) or metadata == {}:
            raise ValueError(
                f"{file.path}: {place} must be the words of the user, without metadata, and those of the system, with "
                "it; put the turns of a dialogue in order, the user first"
            )
        state = before if metadata is None else _state(metadata, file, place, labels)
        requests = [slot for slot, value in _acts(said, file, place, labels) if value == "?"]
        yield TrackedTurn(
            system, acts, file.text(said, "text", place).strip(), _new(state, before), _unique(requests), state
        )
        system, before = file.text(answer, "text", place).strip(), state
        acts = tuple(
            SystemAct(slot, "" if value == "?" else value) for slot, value in _acts(answer, file, place, labels)
        )


def _state(metadata: Mapping[str, Any], file: JsonLayout, place: str, labels: LabelCorrector) -> dict[str, str]:
    state = {}
    for domain, parts in metadata.items():
        parts = file.checked(parts, dict, f"{domain!r} of {place}")
        for part, prefix in (("semi", ""), ("book", "book ")):
            for slot, given in file.get(parts, part, dict, f"{domain!r} of {place}").items():
                # 2.1 has lists of values in some dialogues; "booked" lists what the system has reserved
                value = given[0] if isinstance(given, list) and given and slot != "booked" else given
                if isinstance(value, str) and value.strip().lower() not in _NONE:
                    state[slot_name(labels.correct(f"{domain}-{prefix}{slot}"))] = labels.correct(value)
    return state


def _acts(turn: Mapping[str, Any], file: JsonLayout, place: str, labels: LabelCorrector) -> Iterator[tuple[str, str]]:
    """The slots and values of "dialog_act", which 2.0 keeps in a file of its own."""
    for act, pairs in file.checked(turn.get("dialog_act", {}), dict, f"'dialog_act' of {place}").items():
        for pair in file.checked(pairs, list, f"{act!r} of {place}"):
            if len(file.checked(pair, list, f"{act!r} of {place}")) < 2:
                raise ValueError(
                    f"{file.path}: {act!r} of {place} must hold slots with values, got {pair!r}; {file.layouts}; "
                    "convert it"
                )
            slot, value = map(str, pair[:2])
            if slot.lower() != "none":
                named = labels.correct(slot)
                yield f"{act.partition('-')[0].lower()}-{_ACT_SLOTS.get(named, named)}", labels.correct(value)


def _turns_of_frames(turns: list[Any], name: str, file: JsonLayout, labels: LabelCorrector) -> Iterator[TrackedTurn]:
    system, before = "", dict[str, str]()
    for n, entry in enumerate(turns):
        place = f"turn {n // 2 + 1} of dialogue {name}"
        item = file.checked(entry, dict, place)
        speaker = file.text(item, "speaker", place)
        if speaker != ("USER", "SYSTEM")[n % 2] or str(item.get("turn_id", n)) != str(n):
            raise ValueError(
                f"{file.path}: {place} has {speaker!r} with the turn_id {item.get('turn_id')!r}, and "
                f"{('USER', 'SYSTEM')[n % 2]!r} with {n} must stand there; put the turns of a dialogue in order, the "
                "user first"
            )
        if n % 2:
            system = file.text(item, "utterance", place).strip()
            continue
        state: dict[str, str] = {}
        requests: list[str] = []
        for frame in file.get(item, "frames", list, place):
            recorded_state = file.checked(frame, dict, f"'frames' of {place}").get("state", {})
            recorded_state = file.checked(recorded_state, dict, f"'state' of {place}")
            asked = file.texts(recorded_state.get("requested_slots", []), f"'requested_slots' of {place}")
            requests += map(labels.correct, asked)
            for slot, values in file.checked(
                recorded_state.get("slot_values", {}), dict, f"'slot_values' of {place}"
            ).items():
                # several values are spellings of one
                value = next(iter(file.texts(values, f"{slot!r} of {place}")), "")
                if value.strip().lower() not in _NONE:
                    state[slot_name(labels.correct(slot))] = labels.correct(value)
        yield TrackedTurn(
            system, (), file.text(item, "utterance", place).strip(), _new(state, before), _unique(requests), state
        )
        before = state


def _new(state: State, before: State) -> State:
    return {slot: value for slot, value in state.items() if before.get(slot) != value}


def _unique(requests: list[str]) -> tuple[str, ...]:
    return tuple(sorted(set(requests)))
