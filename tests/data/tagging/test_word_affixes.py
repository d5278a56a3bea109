"""Running text is split into words as a file of words splits it."""

from itertools import pairwise

from regard.data.tagging.word_affixes import WordAffixes

FILE = [
    "Anna was in Paris .",
    "Mr. Bob 's U.S. trip , on 03.05.2026 .",
    "( RE-2026-0815 ) , at 5% !",
    "L' argent d' Anna , il a dit .",
    "They do n't pay 3,50 , he said ...",
]
WORDS = [line.split() for line in FILE]


def test_marks_and_clitics_are_split_off_as_in_the_file() -> None:
    text = "(Carl) Carl's U.S. RE-2026-0816, vom 04.05.2026. Mr. Dr. L'homme didn't pay 7%!! Wait..."
    words, spans = WordAffixes.of(WORDS).split(text)
    right = "( Carl ) Carl 's U.S. RE-2026-0816 , vom 04.05.2026 . Mr. Dr . L' homme did n't pay 7% ! ! Wait ..."
    assert " ".join(words) == right
    assert tuple(text[start:end] for start, end in spans) == words
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_the_words_of_the_file_stay_as_they_are() -> None:
    affixes = WordAffixes.of(WORDS)
    for words in WORDS:
        assert affixes.split(" ".join(words))[0] == tuple(words)


def test_a_file_without_marks_of_their_own_is_split_at_spaces() -> None:
    affixes = WordAffixes.of([["Anna", "was", "in", "Paris."], ["(Bob)", "said,"]])
    assert affixes.split("Carl, (Dora) left.")[0] == ("Carl,", "(Dora)", "left.")
    assert str(affixes) == "at spaces"


def test_a_mark_that_no_word_of_a_large_file_has_inside_parts_words() -> None:
    """As in NCBI's disease corpus, whose words are glucose, -, 6, -, phosphate."""
    large = [["glucose", "-", "6", "-", "phosphate", "3.5"]] * 100
    affixes = WordAffixes.of(large)
    assert affixes.split("fructose-6-phosphate")[0] == ("fructose", "-", "6", "-", "phosphate")
    assert WordAffixes.of([*large, ["a-b"] * 3]).split("fructose-6-phosphate")[0] == ("fructose-6-phosphate",)


def test_a_letter_that_grows_in_lower_case_keeps_its_place() -> None:
    text = "İzmir. (Anna)"
    words, spans = WordAffixes.of(WORDS).split(text)
    assert tuple(text[start:end] for start, end in spans) == words


def test_the_rules_in_words() -> None:
    affixes = WordAffixes.of([["U.S.", "."], ["Anna", ","], ["Bob", "."]])
    assert str(affixes) == "at spaces, and , . are split off words, 1 word such as u.s. excepted"
    many = WordAffixes.of([[*"!#$%&()*+,-/:;"]] * 100)
    assert str(many).startswith("at spaces, and ! # $ % & ( ) * + , - / and 2 more are split off words, ! # $")
