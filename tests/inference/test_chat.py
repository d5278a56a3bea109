"""Chat: turns alternate, a refused turn leaves no trace, and what was said can be taken back."""

import pytest
from tests.inference.conversations import Parrot, SlotFinder

from regard.data.text.tokenizer import Tokenizer
from regard.inference.chat import Chat, ChatAnswer, WordWeight, joined_words


def test_a_speaker_hears_all_turns_and_its_own_replies() -> None:
    parrot = Parrot()
    conversation = Chat(parrot, None, "options")
    assert conversation.say("a b").text == "b a"
    assert conversation.say("c").text == "c"
    assert parrot.heard == [(("a b",), "options", 0), (("a b", "b a", "c"), "options", 1)]
    assert conversation.turns == ["a b", "b a", "c", "c"]
    assert conversation.record(1) == {"turn": 2, "user": "c", **conversation.answers[1].json()}


def test_a_refused_turn_leaves_the_conversation_as_it_was() -> None:
    conversation = Chat(Parrot(), SlotFinder())
    conversation.say("food=thai")
    before = list(conversation.turns), list(conversation.answers), list(conversation.said)
    with pytest.raises(ValueError, match="a turn may have 5 words, got 6; say less"):
        conversation.say("a b c d e f")
    assert (conversation.turns, conversation.answers, conversation.said) == before


def test_two_models_give_one_answer() -> None:
    answer = Chat(Parrot(), SlotFinder()).say("food=thai phone?")
    assert answer.text == "phone? food=thai"
    assert answer.state == {"food": "thai"}
    assert answer.requested == ("phone",)
    assert [word for turn in answer.attended for word, _ in turn] == ["food=thai", "phone?"]


def test_a_tracker_hears_the_system_where_it_speaks() -> None:
    conversation = Chat(None, SlotFinder())
    conversation.hear("Welcome.")
    conversation.hear("Shall it be food=thai?")
    assert conversation.say("yes").state == {"food": "thai"}
    assert conversation.turns == ["", "Welcome. Shall it be food=thai?", "yes"]
    assert conversation.record(0) == {
        "turn": 1,
        "system": "Welcome. Shall it be food=thai?",
        "user": "yes",
        "state": {"food": "thai"},
        "requested": [],
        "behind": {"food": [{"word": "thai", "weight": 0.75}, {"word": "the", "weight": 0.25}]},
        "notes": [],
    }
    # the user goes on without a word of the system
    assert conversation.say("area=north").state == {"food": "thai", "area": "north"}
    assert conversation.turns[3:] == ["", "area=north"]
    assert conversation.previous_state == {"food": "thai"}
    assert conversation.record(1)["user"] == "area=north"
    assert "system" not in conversation.record(1)


def test_undo_is_as_if_it_had_not_been_said() -> None:
    conversation, other = (Chat(None, SlotFinder()) for _ in range(2))
    for each in (conversation, other):
        each.say("food=thai")
        each.hear("Where?")
    conversation.say("area=north")
    conversation.hear("Anything else?")
    assert conversation.undo() == "area=north"
    assert (conversation.turns, conversation.said) == (other.turns, other.said)
    assert conversation.answers == other.answers
    assert conversation.undo() == "food=thai"
    assert conversation.turns == []
    with pytest.raises(ValueError, match=r"^nothing was said yet, so there is nothing to take back; type a turn$"):
        conversation.undo()


def test_an_answer_as_json_has_the_parts_that_the_model_gives() -> None:
    assert ChatAnswer("a", attended=((WordWeight("b", 0.5),), ())).json() == {
        "reply": "a",
        "attended": [[{"word": "b", "weight": 0.5}], []],
        "notes": [],
    }
    assert ChatAnswer(state={}, notes=("c",)).json() == {
        "state": {},
        "requested": [],
        "behind": {},
        "notes": ["c"],
    }


def test_tokens_are_joined_to_words() -> None:
    def weights(*pieces: str) -> list[WordWeight]:
        return [WordWeight(piece, 0.25) for piece in pieces]

    assert joined_words([weights("▁th", "ai", "▁food", "?"), []]) == [
        (WordWeight("thai", 0.5), WordWeight("food?", 0.5)),
        (),
    ]
    assert joined_words([weights("th", "ai", "Ġfood")]) == [(WordWeight("thai", 0.5), WordWeight("food", 0.25))]
    assert joined_words([weights(*"hi␣ho"), weights("a")]) == [
        (WordWeight("hi", 0.5), WordWeight("ho", 0.5)),
        (WordWeight("a", 0.25),),
    ]
    assert joined_words([weights("a", "b")]) == [(WordWeight("a", 0.25), WordWeight("b", 0.25))]


def test_words_whose_first_letter_is_a_token_of_its_own_are_not_joined() -> None:
    tokenizer = Tokenizer.train("bpe", ["good film", "bad film"], 280)
    (ids,) = tokenizer.encode(["film hello zebra quick film"])
    pieces = tokenizer.pieces(ids)
    assert "␣" in pieces
    (words,) = joined_words([[WordWeight(piece, 1 / len(pieces)) for piece in pieces]])
    assert [word for word, _ in words] == ["film", "hello", "zebra", "quick", "film"]


def test_words_on_both_sides_of_two_spaces_are_not_joined() -> None:
    tokenizer = Tokenizer.train("words", ["good film"], 9)
    (ids,) = tokenizer.encode(["good  film zebra quick"])
    (words,) = joined_words([[WordWeight(piece, 0.2) for piece in tokenizer.pieces(ids)]])
    assert [word for word, _ in words] == ["good", "film", "⁇", "⁇"]
