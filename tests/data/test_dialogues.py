"""Files of dialogues, contexts and groups of candidates, and sentences for errors."""

import gzip
from pathlib import Path

import pytest

from regard.data.dialogues import DialogueFile, build_groups, contexts_of, read_dialogues
from regard.data.text.sentence_pairs import count_words


def read(path: Path, most: int = 9) -> list[tuple[str, ...]]:
    return read_dialogues(path, most, count_words).dialogues


def test_daily_dialog_and_tabs(tmp_path: Path) -> None:
    daily = tmp_path / "daily.txt.gz"
    daily.write_bytes(gzip.compress(b"a b __eou__ c __eou__\t1\t2 1\nalone __eou__\nd __eou__ e"))
    found = read_dialogues(daily, 9, count_words)
    assert found.dialogues == [("a b", "c"), ("d", "e")]
    assert found.num_short == 1
    tabs = tmp_path / "tabs.tsv"
    tabs.write_text("a\t\tb\t\n")
    assert read(tabs) == [("a", "", "b")]
    # words in one turn alone
    tabs.write_text("\tb\na\tb\n")
    assert read_dialogues(tabs, 9, count_words) == DialogueFile([("a", "b")], 1)


def test_contexts_have_the_last_turns() -> None:
    assert contexts_of(("a", "b", "", "c"), 2) == [(("a",), "b"), (("b", ""), "c")]


def test_groups_are_pure_and_have_different_candidates() -> None:
    dialogues = [(f"a {n}", f"b {n}", f"c {n}") for n in range(12)]
    groups = build_groups(dialogues, 2, 5, 0)
    assert len(groups) == 12
    for dialogue, group in zip(dialogues, groups, strict=True):
        assert group.candidates[0] in dialogue
        assert not {*group.candidates[1:]} & {*dialogue}
        assert len({*group.candidates}) == 5
    assert build_groups(dialogues, 2, 5, 0) == groups != build_groups(dialogues, 2, 5, 1)
    with pytest.raises(ValueError, match="candidates=9 needs as many different responses in other dialogues"):
        build_groups(dialogues[:3], 2, 9, 0)
    # refused before anything is drawn: draws for this many candidates would not fit into memory
    with pytest.raises(ValueError, match="candidates=1000000000000 needs .* and there are 24 in 12; give more"):
        build_groups(dialogues, 2, 10**12, 0)
    with pytest.raises(ValueError, match="none of 2 dialogues has words in the turns=1 before a response; give more"):
        build_groups([("a", "", "b"), ("c", "", "d")], 1, 2, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "dialogue\tturn\tsystem\tuser\tinform\na\t1\t\tb\t\n",
            r"x.txt:1: these are the columns of turns with labels, which track reads, got 'dialogue\\tturn\\tsystem"
            r"\\tuser\\tinform'; give one dialogue per line, its turns separated by tabs or by __eou__",
        ),
        ("no turns\n", r"x.txt:1: a line must have one dialogue per line.*got 'no turns'; put tabs between turns"),
        ("a\t\n", r"x.txt has no dialogue of two turns or more; it must hold one dialogue per line"),
        ("a\t" + "b " * 10, r"x.txt:1: the turn 'b b .*' has 10 words, more than max_length=9; shorten it, or raise"),
    ],
)
def test_a_sentence_for_every_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.txt").write_text(text)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "x.txt")
