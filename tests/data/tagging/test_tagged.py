"""Readers of tagged sentences: three formats, character offsets, and errors that name file and line."""

import gzip
from pathlib import Path

import pytest
from tests.for_each import for_each

from regard.common.tag_schemes import TagScheme
from regard.data.tagging.tagged import (
    TaggedSentence,
    check_lengths,
    check_scheme_is_whole,
    check_tags,
    find_scheme,
    read_tagged,
    stray_tags_warning,
    tags_of,
    with_well_formed_tags,
)

CONLLU = """\
# sent_id = 1
# text = Vámonos al  mar.
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\tV\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tP\t_\t1\tobj\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\tE\t_\t5\tcase\t_\t_
4\tel\tel\tDET\tD\t_\t5\tdet\t_\t_
4.1\tgran\tgrande\tADJ\tA\t_\t_\t_\t5:amod\t_
5\tmar\tmar\tNOUN\tN\t_\t1\tobl\t_\tSpaceAfter=No
6\t.\t.\tPUNCT\tF\t_\t1\tpunct\t_\t_

1\tSí\tsí\tINTJ\tI\t_\t0\troot\t_\tSpaceAfter=No
2\t!\t!\tPUNCT\tF\t_\t1\tpunct\t_\t_
"""


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_columns_by_number(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\nPeter NNP B-NP B-PER\n"
    path = write(tmp_path / "a.txt", text)
    first, second = read_tagged(path)
    assert first == TaggedSentence(("EU", "rejects"), ("B-ORG", "O"), "EU rejects", ((0, 2), (3, 10)), None, (3, 4))
    assert second.lines == (7,)
    assert read_tagged(path, 2)[0].tags == ("NNP", "VBZ")
    assert read_tagged(path, -2)[0].tags == ("B-NP", "B-VP")
    assert read_tagged(path, 1, 4)[0].words == ("B-ORG", "O")
    packed = tmp_path / "a.tsv.gz"
    packed.write_bytes(gzip.compress(b"New York\tB-LOC\n"))
    assert read_tagged(packed)[0].words == ("New York",)


def test_conllu_has_ranges_and_empty_nodes(tmp_path: Path) -> None:
    first, second = read_tagged(write(tmp_path / "a.conllu", CONLLU))
    assert first.words == ("Vamos", "nos", "a", "el", "mar", ".")
    assert first.tags == ("VERB", "PRON", "ADP", "DET", "NOUN", "PUNCT")
    # words of a range share the place of its surface, in the text as it was written
    assert first.text == "Vámonos al  mar."
    assert [first.text[a:b] for a, b in first.offsets] == ["Vámonos", "Vámonos", "al", "al", "mar", "."]
    assert second.text == "Sí!"
    assert second.offsets == ((0, 2), (2, 3))
    assert read_tagged(tmp_path / "a.conllu", 8)[1].tags == ("root", "punct")


def test_a_folder_of_lines_with_intents(tmp_path: Path) -> None:
    write(tmp_path / "seq.in", "play  westbam \n")
    write(tmp_path / "seq.out", "O B-artist\n")
    write(tmp_path / "label", "PlayMusic\n")
    assert read_tagged(tmp_path) == [TaggedSentence.of(["play", "westbam"], ["O", "B-artist"], "PlayMusic", [1, 1])]
    (tmp_path / "label").unlink()
    assert read_tagged(tmp_path)[0].intent is None


@for_each(
    ("tags", "scheme"),
    [
        (["O", "B-X", "I-X", "B-X"], "IOB2"),
        (["O", "I-X", "B-X"], "IOB1"),
        (["B-X", "E-X", "S-Y"], "BIOES"),
        (["B-X", "L-X", "U-Y"], "BILOU"),
        (["NOUN", "VERB"], "none"),
        (["X-NOUN", "Y-VERB"], "none"),
        (["O", "O"], "none"),
        (["I-X", "O", "B-X"], "IOB2"),  # one tag breaks either
    ],
)
def test_the_scheme_is_found(tags: list[str], scheme: str) -> None:
    assert find_scheme([TaggedSentence.of(["w"] * len(tags), tags)]) == scheme


@pytest.mark.parametrize(
    ("tags", "error"),
    [
        ("O I-CITY B-", "a.tsv:3: the tag 'B-' is none of IOB2, as 'I-CITY' is; correct it, or pass --scheme none"),
        ("B- B- I-CITY", "a.tsv:1: the tag 'B-' is none of IOB2"),
        ("O B-X CITY I-X", "a.tsv:3: the tag 'CITY' is none of IOB2, as 'B-X' is"),
        ("B-X I-X E-X U-X", "a.tsv:4: the tag 'U-X' is none of BIOES"),
    ],
)
def test_one_tag_that_breaks_a_scheme_is_named(tmp_path: Path, tags: str, error: str) -> None:
    path = write(tmp_path / "a.tsv", "".join(f"w\t{tag}\n" for tag in tags.split()))
    sentences = read_tagged(path)
    assert find_scheme(sentences) == "none"
    with pytest.raises(ValueError, match=error):
        check_scheme_is_whole(sentences, path)


@pytest.mark.parametrize("tags", ["NOUN VERB O", "O O", "O O O CELL B-cell", "X-NOUN Y-VERB", "NOUN B-"])
def test_tags_without_a_scheme_stay_without(tmp_path: Path, tags: str) -> None:
    path = write(tmp_path / "a.tsv", "".join(f"w\t{tag}\n" for tag in tags.split()))
    check_scheme_is_whole(read_tagged(path), path)


def test_tags_start_with_outside() -> None:
    assert tags_of([TaggedSentence.of(["a", "b", "c"], ["B-Y", "O", "B-X"])]) == ["O", "B-X", "B-Y"]


@for_each(
    ("text", "column", "error"),
    [
        ("a\tO\nb\tO\tX\n", None, r"a.tsv:2: a line must have 2 columns, as the first line has, got 3 in 'b\\tO\\tX'"),
        ("a\tO\n\nb\n", None, "a.tsv:3: .* got 1 in 'b'; separate columns by one tab, and sentences by an empty line"),
        ("a\tO\n", 3, "column=3 is no column of .*a.tsv, which has 2; count them from 1, or from the end with -1"),
        ("a\tO\n", -3, "column=-3 is no column of .*a.tsv, which has 2; count them from 1, or from the end with -1"),
        ("a\tO\n", 0, "column=0 is no column"),
        ("\nfly7\nto\n", None, "a.tsv:2: there is only one column in 'fly7'; the file must hold one word and its tag"),
        ('{"text": "fly to", "tags": ["O", "O"]}\n', None, "a.tsv:1: the file holds JSON, .*; it must hold one"),
        ("a\t \n", None, "a.tsv:1: the tag is empty"),
        ("\n\n", None, "a.tsv has no words; it must hold one word and its tag per line"),
        ("", None, "a.tsv is empty"),
        (b"a\tO\n\xff\xfe\tO\n", None, "a.tsv:2: .*UTF-8"),
    ],
)
def test_bad_columns(tmp_path: Path, text: str | bytes, column: int | None, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        read_tagged(write(tmp_path / "a.tsv", text), column)


def test_bad_column_of_words(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a\tO\n")
    with pytest.raises(ValueError, match="word_column=3 is no column of .*a.tsv, which has 2; count them from 1"):
        read_tagged(path, word_column=3)


BAD_CONLLU = {
    "x a _ X": "b.conllu:1: the first column must be 1, a range 1-N or an empty node, got 'x'; number the words of",
    "1 a _ X\n3 b _ X": "b.conllu:2: the first column must be 2, a range 2-N or an empty node, got '3'",
    "1 a _ X\n3-2 b _ X": "b.conllu:2: the first column must be 2",
    "2-1 ab _ X\n1 b _ X": "b.conllu:1: the first column must be 1",
    "1-3 ab _ X\n1 a _ X\n2 b _ X": "b.conllu:3: the sentence ends after 2 words, within a range up to 3; complete it",
    "1-2 ab _ X\n1 a _ X\n2-3 bc _ X": "b.conllu:3: the range 2-3 overlaps the one before, up to 2; correct it",
    "1  _ X": "b.conllu:1: the word is empty; fill it in",
    "1 a _ ": "b.conllu:1: the tag is empty; fill it in",
    "0.1 a _ X": "b.conllu has no words",
}


def test_bad_conllu_and_folders(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="column=11 is no column of .*b.conllu, which has 10; count them from 1"):
        read_tagged(write(tmp_path / "b.conllu", CONLLU), 11)
    with pytest.raises(ValueError, match="b.conllu:1: a line of CoNLL-U has 10 columns, got 2"):
        read_tagged(write(tmp_path / "b.conllu", "a\tO\n"))
    with pytest.raises(ValueError, match="b.conllu has no words"):
        read_tagged(write(tmp_path / "b.conllu", "# text = a\n"))
    for text, sentence in BAD_CONLLU.items():
        lines = [line.replace(" ", "\t") + "\t_" * 6 for line in text.split("\n")]
        with pytest.raises(ValueError, match=sentence):
            read_tagged(write(tmp_path / "b.conllu", "\n".join(lines) + "\n\n"))
    with pytest.raises(ValueError, match="has no file seq.in or seq.in.gz; name a file of columns"):
        read_tagged(tmp_path)
    write(tmp_path / "seq.in", "a b\n")
    write(tmp_path / "seq.out", "O\n")
    with pytest.raises(ValueError, match="seq.out:1: a line must have one tag per word, got 1 tags for 2 words"):
        read_tagged(tmp_path)
    write(tmp_path / "seq.out", "O O\nO\n")
    with pytest.raises(ValueError, match="seq.out has 2 lines and .*seq.in 1; line n of one must belong to line n"):
        read_tagged(tmp_path)


@pytest.mark.parametrize(
    ("name", "tags", "spans", "place"),
    [
        ("IOB2", "O I-X", "O B-X", "line 2: 'I-X' after 'O'"),
        ("IOB2", "I-X I-X B-X", "B-X I-X B-X", "line 1: 'I-X' at the start of a sentence"),
        ("IOB1", "O B-X I-X", "O I-X I-X", "line 2: 'B-X' after 'O'"),
        ("BIOES", "O B-X", "O S-X", "line 2: 'B-X' at the end of a sentence"),
    ],
)
def test_stray_tags_are_counted_and_read_as_conlleval_reads_them(
    tmp_path: Path, name: str, tags: str, spans: str, place: str
) -> None:
    path = write(tmp_path / "a.tsv", "".join(f"w\t{tag}\n" for tag in tags.split()))
    sentences, scheme = read_tagged(path), TagScheme(name, ["O", "B-X", "I-X"])
    warning = stray_tags_warning(sentences, path, scheme)
    assert warning is not None
    assert f"a.tsv has 1 tag that {name} forbids, the first in {place}" in warning
    (repaired,) = with_well_formed_tags(sentences, scheme)
    assert " ".join(repaired.tags) == spans
    assert stray_tags_warning([repaired], path, TagScheme(name, ())) is None


def test_the_scheme_that_the_fewest_tags_break_is_chosen() -> None:
    """CoNLL-2003 as published is IOB1 with two B- behind O."""
    rows = [["I-PER", "O"]] * 5 + [["I-X", "B-X", "O", "B-X"], ["O", "B-PER"]]
    assert find_scheme([TaggedSentence.of(["w"] * len(tags), tags) for tags in rows]) == "IOB1"


def test_unknown_tags_and_long_sentences(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "a\tO\nb\tI-X\n\nc\tB-X\n")
    check_tags(read_tagged(path), path, ["O", "B-X", "I-X"])
    path = write(tmp_path / "d.tsv", "b\tB-XX\n")
    with pytest.raises(ValueError, match="d.tsv:1: unknown tag 'B-XX'; did you mean 'B-X'"):
        check_tags(read_tagged(path), path, ["O", "B-X", "I-X"])
    with pytest.raises(ValueError, match="a.tsv:1: the sentence has 2 words, more than max_length=1; put an empty"):
        check_lengths(read_tagged(tmp_path / "a.tsv"), tmp_path / "a.tsv", 1)
