"""The world of stories: answers follow from the supporting sentences, no story occurs twice, places are balanced."""

import re

import pytest

from regard.data.embedded.stories import NUMBERS, PEOPLE, PLACES, TASKS, splits
from regard.data.questions.babi import Question, words_of

PARTS = splits(0, train=60, valid=20, test=40)
EVERY = {name: [*each.train, *each.valid, *each.test] for name, each in PARTS.items()}


def test_no_story_occurs_twice() -> None:
    stories = [question.sentences for every in EVERY.values() for question in every]
    assert len(stories) == len(set(stories)) == 120 * len(TASKS)


def last_place(question: Question) -> str | None:
    named = [word for sentence in question.sentences for word in words_of(sentence) if word in PLACES]
    return named[-1] if named else None


@pytest.mark.parametrize("name", ["person", "thing"])
def test_the_last_place_named_is_right_half_the_time(name: str) -> None:
    right = [last_place(question) == question.answer for question in EVERY[name]]
    assert sum(right) == len(right) // 2


def test_a_person_is_where_the_last_sentence_about_a_move_says() -> None:
    for question in EVERY["person"]:
        person = words_of(question.question)[-1]
        moves = [n for n, s in enumerate(question.sentences) if words_of(s)[0] == person and words_of(s)[-1] in PLACES]
        assert question.support == (moves[-1],)
        assert words_of(question.sentences[moves[-1]])[-1] == question.answer


def test_a_thing_is_where_its_holder_is() -> None:
    """The world played again from the sentences alone."""
    for question in EVERY["thing"]:
        places: dict[str, str] = {}
        holders: dict[str, str] = {}
        things: dict[str, str] = {}
        for sentence in question.sentences:
            words = words_of(sentence)
            person, rest = words[0], " ".join(words[1:])
            if match := re.fullmatch(r"(?:went|moved|walked|hurried) to the (\w+)", rest):
                places[person] = match[1]
            elif match := re.fullmatch(r"(?:took|picked up) the (\w+)", rest):
                holders[match[1]] = person
            elif match := re.fullmatch(r"(?:dropped|put down) the (\w+)", rest):
                del holders[match[1]]
                things.update({match[1]: places[person]} if person in places else {})
            elif match := re.fullmatch(r"gave the (\w+) to (\w+)", rest):
                holders[match[1]] = match[2]
            things.update({thing: places[holder] for thing, holder in holders.items() if holder in places})
        assert things[words_of(question.question)[-1]] == question.answer
        assert len(question.support) == 2


def test_counts_givers_and_three_facts() -> None:
    for question in EVERY["number"]:
        person, held = words_of(question.question)[4], 0
        for sentence in question.sentences:
            words = words_of(sentence)
            held += words[0] == person and words[1] in ("took", "picked")
            held -= words[0] == person and words[1] in ("dropped", "put", "gave")
            held += words[1] == "gave" and words[-1] == person
        assert NUMBERS[held] == question.answer
    for question in EVERY["giver"]:
        (n,) = question.support
        _, _, _, thing, _, other = words_of(question.question)
        assert question.sentences[n] == f"{question.answer} gave the {thing} to {other.capitalize()}."
        assert question.answer in PEOPLE
    assert {len(question.support) for question in EVERY["before"]} <= {3, 4}
    assert {question.answer for question in EVERY["whether"]} == {"yes", "no"}
