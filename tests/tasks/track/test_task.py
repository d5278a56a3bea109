"""track: what a run reads, learns, evaluates and refuses."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.for_each import for_each
from tests.tasks.cases import write_turns

import regard
from regard.cli.main import main
from regard.data.tracking.dialogue import Ontology
from regard.inference.limits import Limits
from regard.inference.predictor import labelled_recording
from regard.tasks.track.candidates import SlotCandidates
from regard.tasks.track.data import TrackingFacts, parse_conversation, read, write_conversation
from regard.tasks.track.options import Track
from regard.tasks.track.predictor import TrackPredictor
from regard.tasks.track.turn_encoder import TurnEncoder

FIXTURES = Path(__file__).parents[2] / "fixtures" / "tracking"
HEADER = "dialogue\tturn\tsystem\tuser\tinform\n"
SMALL = ["--embedding", "8", "--hidden", "8", "--batch", "16", "--warmup", "1", "--threads", "1", "--device", "cpu"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learned the turns of the cases."""
    folder = tmp_path_factory.mktemp("track")
    write_turns(folder / "turns.tsv")
    options = ["--train", str(folder / "turns.tsv"), *SMALL, "--steps", "80", "--lr", "0.02", "--validate-every", "80"]
    assert main(["train", "track", *options, "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def predictor(run: Path) -> TrackPredictor:
    found = regard.load(run, device="cpu")
    return found


def test_states_follow_from_both_speakers(predictor: TrackPredictor) -> None:
    (output,) = predictor.predict(["a table\nfood? a\nno, b\narea?\nc"])
    assert {slot: (each.value, each.turn) for slot, each in output.state.items()} == {
        "food": ("b", 1),
        "area": ("c", 2),
    }
    assert output.requests == {}
    assert list(output.turns[1].requests) == ["phone"]
    assert predictor.text(output).startswith("food=b ")
    written = predictor.json(output)
    assert written["state"]["area"]["value"] == "c"
    assert written["turns"][1] == {"informs": {"food": "b"}, "requests": ["phone"]}
    # tabs are line breaks, and the last turn is of the user
    assert predictor.predict(["a table\tfood? a\tno, b\tarea?\tc"]) == [output]
    assert predictor.predict(["\ta table\tfood? a\tno, b\tarea?\tc"])[0].turns == output.turns


def test_every_answer_alone_in_a_batch_and_in_any_order(predictor: TrackPredictor) -> None:
    texts = ["a table", "food? a\nno, b", "a table\nfood? b\nno, c\narea?\nd", "area?\ne"]
    together = predictor.predict(texts)
    alone = [predictor.predict([text])[0] for text in texts]
    reverse = predictor.predict(texts[::-1])[::-1]
    small = TrackPredictor(predictor.model, predictor.encoder, batch=2).predict(texts)
    for others in (alone, reverse, small):
        for one, other in zip(together, others, strict=True):
            for a, b in zip(one.turns, other.turns, strict=True):
                assert {slot: value for slot, (value, _) in a.informs.items()} == {
                    s: v for s, (v, _) in b.informs.items()
                }
                shares = {slot: pytest.approx(share, abs=1e-5) for slot, (_, share) in a.informs.items()}
                assert shares == {slot: share for slot, (_, share) in b.informs.items()}
                assert a.requests == pytest.approx(b.requests, abs=1e-5)


def test_chat(predictor: TrackPredictor) -> None:
    answer = predictor.chat(["a table", "food? a", "no, b", "area?", "c"])
    assert (answer.text, answer.state, answer.requested) == (None, {"food": "b", "area": "c"}, ())
    assert set(answer.behind) == {"food", "area"}
    for words in answer.behind.values():
        assert 1 <= len(words) <= 3
        assert [each.weight for each in words] == sorted((each.weight for each in words), reverse=True)
    # the words of the turn that has set the slot, and of the acts of the system
    assert {each.word for each in answer.behind["area"]} <= {"c", "area", "a"}
    assert predictor.chat(["", "food? a", "no, b"]).requested == ("phone",)
    # the turns before one without words are of the same speakers
    assert predictor.chat(["a table", "food? a", "no, b", "area?", ""]).state["food"] == "b"
    short = TrackPredictor(predictor.model, replaced_history(predictor.encoder, 1))
    assert short.chat(["a table", "food? a", "no, b", "area?", "c"]).notes == (
        "of the first 1 turn of the system only the state is kept, not its words",
    )


def test_it_is_served_as_a_conversation(predictor: TrackPredictor) -> None:
    endpoint = predictor.endpoint(Limits(), run="tiny", step=80)
    assert (endpoint.page.form, endpoint.page.data["speaks"]) == ("chat_form", False)
    body = endpoint.schema.request(text="food? a\tno, b\tarea?\tc", attention=True)
    (answer,) = endpoint.answer([endpoint.read(body)])[0]["answers"]  # type: ignore[misc]
    assert answer["chat"]["state"] == {slot: each["value"] for slot, each in answer["state"].items()}
    assert [list(answer["chat"]["behind"]), len(answer["attention"])] == [["food", "area"], 3]


def replaced_history(encoder: TurnEncoder, history: int) -> TurnEncoder:
    return TurnEncoder(encoder.candidates, encoder.words, acts="words", history=history, max_length=20)


def test_recordings_have_a_row_per_slot_that_a_turn_sets(predictor: TrackPredictor) -> None:
    text = "a table\nfood? a\nno, b\narea?\nc"
    recorded = labelled_recording(predictor, text)[1]
    assert recorded.queries == ("2: food = b", "2: phone?", "3: area = c")
    assert recorded.keys == ("a", "table", "food", "?", "a", "no", ",", "b", "area", "?", "c")
    words, matches, acts = recorded
    assert recorded.names == ("words", "matches", "acts")
    # the words that name b and c; phone was not said
    assert matches.weights.dense()[0].nonzero().tolist() == [[0, 7], [2, 10]]
    sums = words.weights.dense().sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    # the words of a turn are those of its user, the acts those of the system so far
    assert not words.weights.dense()[0, 0, :5].any()
    assert not acts.weights.dense()[0, :, 5:8].any()
    silent = labelled_recording(predictor, "hello")[1]
    slots = predictor.candidates.ontology.slots
    assert silent.queries == tuple(f"1: {slot} (not set)" for slot in slots)


def test_evaluate_defines_its_numbers(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run)]) == 0
    printed = capsys.readouterr().out
    assert (
        "joint goal: the share of turns after which all slots have the right value; a missing slot is none" in printed
    )
    assert "string matching on the words of the user, the baseline: joint goal " in printed
    assert main(["evaluate", str(run), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["scores"]["joint goal"] > scores["baseline"]["scores"]["joint goal"]


def test_woz_with_its_ontology(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    woz, ontology = str(FIXTURES / "woz.json"), str(FIXTURES / "ontology-woz.json")
    files = ["--train", woz, "--valid", woz, "--ontology", ontology]
    assert main(["train", "track", *files, *SMALL, "--steps", "1", "--out", str(tmp_path / "run")]) == 0
    printed = "".join(capsys.readouterr())
    assert "3 dialogues to train on with 6 turns, 3 to validate, 3 slots with 10 values, 2 requests" in printed
    assert (
        "labels were corrected: ' expensive' → 'expensive' (2), 'center' → 'centre' (2), 'corsican' → 'corsica' (1)"
        in printed
    )
    facts = TrackingFacts.read(tmp_path / "run")
    # words of values have vectors although the training has not shown them
    assert {"thai", "north"} <= {*facts.words}
    more = json.loads((FIXTURES / "ontology-woz.json").read_text())
    more["informable"]["food"].append("welsh")
    (tmp_path / "more.json").write_text(json.dumps(more))
    arguments = ["evaluate", str(tmp_path / "run"), "--ontology", str(tmp_path / "more.json"), "--test", woz]
    assert main(arguments) == 0
    assert "labels were corrected" in capsys.readouterr().out
    more["informable"]["weather"] = ["rain"]
    (tmp_path / "more.json").write_text(json.dumps(more))
    assert main(arguments) == 2
    assert "unknown slot of the ontology 'weather'; known are: " in capsys.readouterr().err
    del more["informable"]["weather"], more["informable"]["food"]
    (tmp_path / "more.json").write_text(json.dumps(more))
    assert main(arguments) == 2
    assert "the ontology has no slot 'food', which this run tracks; give it values" in capsys.readouterr().err


@pytest.mark.parametrize(("context", "batch", "longest"), [("acts", 4, 4), ("attention", 4, 4), ("recurrent", 2, 3)])
def test_batches_have_whole_dialogues_where_turns_read_those_before(
    tmp_path: Path, context: str, batch: int, longest: int
) -> None:
    """The dialogues have one, two and three turns."""
    woz = FIXTURES / "woz.json"
    problem = Track.of(train=woz, valid=woz, context=context, batch=batch, embedding=4, hidden=3).prepare(tmp_path)
    batches = [problem.load_batch(planned, 0, 1) for planned in problem.plan_epoch(0)]
    numbers = [each.inputs.numbers.tolist() for each in batches if each is not None]
    assert sorted(n for each in numbers for n in each) == sorted(turn.number for turn in problem.encoded)
    assert max(map(len, numbers)) <= longest
    if context != "acts":
        assert all(first == 0 for first, *_ in numbers)
        # one of two processes has the first dialogue of a batch, the other one the second
        parts = [problem.load_batch(problem.plan_epoch(0)[0], rank, 2) for rank in range(2)]
        assert [n for part in parts if part is not None for n in part.inputs.numbers.tolist()] == numbers[0]


def test_acts_of_labels(tmp_path: Path) -> None:
    woz = FIXTURES / "woz.json"
    config = Track.of(train=woz, valid=woz, acts="labels", embedding=4, hidden=3)
    problem = config.prepare(tmp_path)
    assert [each.act for each in problem.encoded[1].acts] == [("food", ""), ("food", "corsica")]
    by_words = Track.of(train=woz, valid=woz, embedding=4, hidden=3).prepare(tmp_path)
    assert [each.act for each in by_words.encoded[1].acts] == [("food", ""), ("food", "corsica")]
    assert by_words.encoded[1].acts[1].mention is not None


def test_conversations() -> None:
    dialogue = read(Track(data="bookings")).valid[0]
    parsed = parse_conversation(write_conversation(dialogue))
    assert [(turn.system, turn.user) for turn in parsed] == [(turn.system, turn.user) for turn in dialogue.turns]
    assert [(turn.system, turn.user) for turn in parse_conversation("a\tb")] == [("a", "b")]
    with pytest.raises(ValueError, match="the conversation is empty; give the turns of user and system on lines of"):
        parse_conversation(" \n\t ")


def test_decisions_and_losses_by_hand() -> None:
    """−log softmax over none and the values of a slot, −log σ of requests."""
    candidates = SlotCandidates(Ontology({"a": ("x",), "b": ("y", "z")}, ("p",)))
    assert candidates.values == [("a", "x"), ("a", "dontcare"), ("b", "y"), ("b", "z"), ("b", "dontcare")]
    scores = torch.tensor([[2.0, 1.0, -1.0, -2.0, -3.0, 0.5]], dtype=torch.float64)
    (decision,) = candidates.decide(scores)
    share = torch.tensor([0.0, 2.0, 1.0]).softmax(0)[1].item()
    assert decision.informs == {"a": ("x", pytest.approx(share))}
    assert decision.requests == {"p": pytest.approx(torch.tensor(0.5).sigmoid().item())}
    found = candidates.nll(scores, torch.tensor([[1, 3]]), torch.tensor([[0.0]], dtype=torch.float64))
    of_b = torch.tensor([0.0, -1.0, -2.0, -3.0]).log_softmax(0)[3].item()
    expected = -torch.tensor(share).log().item() - of_b - torch.tensor(-0.5).sigmoid().log().item()
    assert float(found) == pytest.approx(expected, abs=1e-6)


@for_each(
    ("name", "content", "message"),
    [
        (
            "turns.tsv",
            HEADER + "a\t1\t\tb\tx=y\nb\t1\t\t" + "c " * 501 + "\tx=z\n",
            "turns.tsv: turn 1 of dialogue b has 501 words, more than --max-length 500 of",
        ),
        (
            "dialogues.json",
            '{"version": 1}',
            "is JSON of another layout: it must hold dialogues in the layout of WoZ 2.0 or MultiWOZ; convert",
        ),
        (
            "dialogues.json",
            '[{"dialogue_idx": 7, "dialogue": []}]',
            "dialogue 7 is empty; give it a turn, or leave it out",
        ),
    ],
)
def test_bad_files_leave_no_run(name: str, content: str, message: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / name).write_text(content)
    given = ["--train", str(tmp_path / name), *SMALL, "--steps", "1", "--out", str(tmp_path / "run")]
    assert main(["train", "track", *given]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run" / "best.safetensors").exists()


def test_labels_outside_of_the_ontology_name_dialogue_and_turn(tmp_path: Path, capsys: Any) -> None:
    woz = json.loads((FIXTURES / "woz.json").read_text())
    woz[1]["dialogue"][1]["turn_label"] = [["area", "moon"]]
    path = tmp_path / "woz.json"
    path.write_text(json.dumps(woz))
    arguments = ["--valid", str(path), "--ontology", str(FIXTURES / "ontology-woz.json"), *SMALL]
    assert main(["train", "track", "--train", str(path), *arguments, "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "turn 2 of dialogue 1: unknown value of area 'moon'; known are: centre, east" in error


def test_a_conversation_that_is_too_long_prints_nothing(run: Path, tmp_path: Path, capsys: Any) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("a table\n" + "a " * 501 + "\n")
    assert main(["predict", str(run), "--file", str(lines)]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert "turn 1 of the conversation has 501 words, more than max_length=500 of this run; shorten it, or" in error
    assert main(["predict", str(run), " \t "]) == 2
    assert "the conversation is empty" in capsys.readouterr().err


def test_targets_outside_of_the_ontology(predictor: TrackPredictor) -> None:
    with pytest.raises(ValueError, match="unknown value of food 'z'"):
        predictor.loss(["a table"], ["food=z"])


def test_acts_by_labels_need_labels(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "turns.tsv"
    path.write_text(HEADER + "a\t1\t\tb\tfood=b\nb\t1\t\tc\tfood=c\n")
    arguments = ["train", "track", "--train", str(path), "--acts", "labels", "--steps", "1", *SMALL]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 2
    assert (
        f"--acts labels needs labels of what the system does, but no turn of --train {path} has one; add them, in a "
        "column acts, or find acts in the words of the system by --acts words" in capsys.readouterr().err
    )
    assert not (tmp_path / "run").exists()


def test_init_from_refuses_other_values(run: Path, tmp_path: Path, capsys: Any) -> None:
    text = (run.parent / "turns.tsv").read_text()
    path = tmp_path / "more.tsv"
    path.write_text(re.sub("area=a", "area=moon", text))
    arguments = ["train", "track", "--train", str(path), "--init-from", str(run), "--steps", "1"]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 2
    assert "unknown value of area 'moon'" in capsys.readouterr().err
