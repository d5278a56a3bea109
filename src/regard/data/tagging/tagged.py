"""Tagged sentences: files with one tag per word.  No torch here.

columns                      one word per line, columns separated by tabs or spaces, an empty line after a sentence
CoNLL-U (.conllu)            ten columns; ranges (3-4) give the surface of words, empty nodes (8.1) are left out
a folder of seq.in, seq.out  one sentence per line, words and tags separated by spaces; `label` has one intent per line

All are UTF-8, plain or `.gz`. Words keep their place in the text: `offsets` are characters of `text`.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from regard.common.suggestions import known
from regard.common.tag_schemes import NO_SCHEME, OUTSIDE, TagScheme, split_tag
from regard.common.wording import plural, shortened
from regard.data.splitting import Parts
from regard.data.text.pairs import read_lines, read_records

_HOLDS = "one word and its tag per line, with an empty line after every sentence"
_CONLLU_COLUMNS, _UPOS = 10, 4
# the label of spans whose tags have none
ONE_LABEL = "SPAN"
# a line of CoNLL-2003 that separates documents
_DOCUMENT = "-DOCSTART-"


@dataclass(frozen=True)
class TaggedSentence:
    """Words with their tags; `lines` are the lines of their file, for errors."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    text: str
    offsets: tuple[tuple[int, int], ...]  # start and end of every word in the text
    intent: str | None = None
    lines: tuple[int, ...] = ()

    @staticmethod
    def of(
        words: Sequence[str], tags: Sequence[str], intent: str | None = None, lines: Sequence[int] = ()
    ) -> "TaggedSentence":
        """A sentence whose text is its words, separated by spaces."""
        offsets, end = [], 0
        for word in words:
            offsets.append((end, end + len(word)))
            end += len(word) + 1
        return TaggedSentence(tuple(words), tuple(tags), " ".join(words), tuple(offsets), intent, tuple(lines))

    def __len__(self) -> int:
        return len(self.words)


TaggedSplits = Parts[Sequence[TaggedSentence]]


def read_tagged(path: Path, column: int | None = None, word_column: int = 1) -> list[TaggedSentence]:
    """The sentences of a file or folder; the columns of tags and words are counted from 1, from the end if negative.

    Without `column` the tags are the last column, in CoNLL-U the parts of speech (column 4).
    """
    if path.is_dir():
        return list(_read_folder(path))
    if path.name.removesuffix(".gz").endswith(".conllu"):
        return list(_read_conllu(path, _UPOS if column is None else column))
    return list(_read_columns(path, -1 if column is None else column, word_column))


def tags_of(sentences: Sequence[TaggedSentence]) -> list[str]:
    """The tags that occur, O first, the others in alphabetical order."""
    tags = Counter(tag for sentence in sentences for tag in sentence.tags)
    return sorted(tags, key=lambda tag: (tag != OUTSIDE, tag))


def label_bare_tags(sentences: Sequence[TaggedSentence]) -> list[TaggedSentence]:
    """The sentences with B-SPAN for B, I-SPAN for I and so on, if none of their tags has a label.

    The tags of one kind of span are often written so.
    """
    tags = set(tags_of(sentences)) - {OUTSIDE}
    if not tags & {"B", "I"} or not tags <= set("BIESLU"):
        return list(sentences)
    return [
        replace(each, tags=tuple(tag if tag == OUTSIDE else f"{tag}-{ONE_LABEL}" for tag in each.tags))
        for each in sentences
    ]


def find_scheme(sentences: Sequence[TaggedSentence]) -> str:
    """The scheme of tags: by their prefixes, and of several with these the one that the fewest tags break."""
    tags = tags_of(sentences)
    prefixes = {split_tag(tag)[0] for tag in tags if tag != OUTSIDE}
    if not prefixes or not all(split_tag(tag)[1] for tag in tags if tag != OUTSIDE):
        return NO_SCHEME
    examples = [f"{prefix}-X" for prefix in prefixes]
    candidates = [name for name in ("IOB2", "IOB1", "BIOES", "BILOU") if len(_fitting(name, examples)) == len(examples)]
    return min(candidates, key=lambda name: _count_stray(TagScheme(name, tags), sentences), default=NO_SCHEME)


def check_scheme_is_whole(sentences: Sequence[TaggedSentence], path: Path) -> None:
    """Raises at the first tag that breaks the scheme of the others: a prefix without its label, or one of a minority.

    For tags in which `find_scheme` finds none: a mistake in one of them must not turn the others into plain tags.
    """
    counts = Counter(tag for sentence in sentences for tag in sentence.tags if tag != OUTSIDE)
    fitting = {name: _fitting(name, counts) for name in ("IOB2", "BIOES", "BILOU")}
    scheme = max(fitting, key=lambda name: sum(counts[tag] for tag in fitting[name]))
    fits = fitting[scheme]
    is_usual = 2 * sum(counts[tag] for tag in fits) > counts.total()
    for sentence in sentences:
        for tag, line in zip(sentence.tags, sentence.lines, strict=True):
            is_bare = bool(fits) and re.fullmatch("[BIESLU]-", tag) is not None
            if tag != OUTSIDE and tag not in fits and (is_usual or is_bare):
                raise ValueError(
                    f"{path}:{line}: the tag {tag!r} is none of {scheme}, as {max(fits, key=counts.__getitem__)!r} is; "
                    f"correct it, or pass --scheme {NO_SCHEME} if the tags have no prefixes"
                )


def _fitting(name: str, tags: Iterable[str]) -> list[str]:
    scheme = TagScheme(name, ())
    return [tag for tag in tags if scheme.problem(tag) is None]


def _count_stray(scheme: TagScheme, sentences: Iterable[TaggedSentence]) -> int:
    return sum(len(scheme.stray(sentence.tags)) for sentence in sentences)


def check_tags(sentences: Sequence[TaggedSentence], path: Path, tags: Sequence[str]) -> None:
    """Raises at the first tag that is none of these."""
    for sentence in sentences:
        for tag, line in zip(sentence.tags, sentence.lines, strict=True):
            try:
                known("tag", tag, tags)
            except ValueError as error:
                raise ValueError(f"{path}:{line}: {error}") from error


def with_well_formed_tags(sentences: Sequence[TaggedSentence], scheme: TagScheme) -> list[TaggedSentence]:
    """The sentences with the spans that conlleval reads in their tags, written by the rules of the scheme."""
    return [
        replace(sentence, tags=tuple(scheme.write(scheme.spans(sentence.tags), len(sentence))))
        if scheme.stray(sentence.tags)
        else sentence
        for sentence in sentences
    ]


def stray_tags_warning(sentences: Sequence[TaggedSentence], path: Path, scheme: TagScheme) -> str | None:
    """The number of tags that the scheme forbids where they stand, and the first of them; None without one."""
    if not (count := _count_stray(scheme, sentences)):
        return None
    sentence = next(each for each in sentences if scheme.stray(each.tags))
    index = scheme.stray(sentence.tags)[0]
    at = min(index, len(sentence) - 1)
    place = f"after {sentence.tags[at - 1]!r}"
    if index in (0, len(sentence)):
        place = f"at the {'end' if index else 'start'} of a sentence"
    return (
        f"{path} has {plural(count, 'tag')} that {scheme.name} forbids, the first in line {sentence.lines[at]}: "
        f"{sentence.tags[at]!r} {place}; their spans are read as conlleval reads them: correct the file, or name "
        "another --scheme, if they mean others"
    )


def check_lengths(sentences: Sequence[TaggedSentence], path: Path, most: int) -> None:
    """Raises at the first sentence of more than `most` words: none is dropped or cut off."""
    for sentence in sentences:
        if len(sentence) > most:
            line = sentence.lines[0] if sentence.lines else 0
            raise ValueError(
                f"{path}:{line}: the sentence has {len(sentence):,} words, more than max_length={most:,}; put an empty "
                "line between sentences, or give a larger --max-length"
            )


def _read_columns(path: Path, column: int, word_column: int) -> Iterator[TaggedSentence]:
    separator: str | None = None
    count = 0
    rows: list[tuple[str, str, int]] = []
    number_of_sentences = 0
    for number, line in enumerate(read_lines(path, _HOLDS), 1):
        if not line.strip() or line.startswith(_DOCUMENT):
            if rows:
                yield _sentence(rows)
            rows, number_of_sentences = [], number_of_sentences + bool(rows)
            continue
        if not count:
            separator = "\t" if "\t" in line else None
        cells = line.split(separator)
        if not count:
            count = len(cells)
            if _is_json(line):
                raise ValueError(
                    f"{path}:{number}: the file holds JSON, {shortened(line)}; it must hold {_HOLDS}: write each word "
                    "and its tag with a tab between them"
                )
            if count == 1:
                raise ValueError(
                    f"{path}:{number}: there is only one column in {shortened(line)}; the file must hold {_HOLDS}: "
                    "put a tab between word and tag"
                )
            tag_at = _index("column", column, count, path)
            word_at = _index("word_column", word_column, count, path)
        if len(cells) != count:
            raise ValueError(
                f"{path}:{number}: a line must have {count} columns, as the first line has, got {len(cells)} in "
                f"{shortened(line)}; separate columns by one tab, and sentences by an empty line"
            )
        word, tag = cells[word_at].strip(), cells[tag_at].strip()
        if not word or not tag:
            raise ValueError(
                f"{path}:{number}: the {'tag' if word else 'word'} is empty in {shortened(line)}; fill it in"
            )
        rows.append((word, tag, number))
    if rows:
        yield _sentence(rows)
    elif not number_of_sentences:
        raise ValueError(f"{path} has no words; it must hold {_HOLDS}")


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict | list)
    except (ValueError, RecursionError):  # the latter of thousands of brackets
        return False


def _index(name: str, column: int, count: int, path: Path) -> int:
    """The index of a column that is counted from 1, or from the end."""
    if column == 0 or abs(column) > count:
        raise ValueError(
            f"{name}={column} is no column of {path}, which has {count}; count them from 1, or from the end with -1"
        )
    return column - 1 if column > 0 else count + column


def _sentence(rows: Sequence[tuple[str, str, int]]) -> TaggedSentence:
    words, tags, lines = zip(*rows, strict=True)
    return TaggedSentence.of(words, tags, lines=lines)


def _read_conllu(path: Path, column: int) -> Iterator[TaggedSentence]:
    tag_at = _index("column", column, _CONLLU_COLUMNS, path)
    rows: list[tuple[list[str], int]] = []
    text: str | None = None
    is_empty = True
    for number, line in enumerate([*read_lines(path, "CoNLL-U"), ""], 1):
        if line.startswith("#"):
            text = line.split("=", 1)[1].strip() if line.startswith("# text =") else text
        elif line.strip():
            cells = line.split("\t")
            if len(cells) != _CONLLU_COLUMNS:
                raise ValueError(
                    f"{path}:{number}: a line of CoNLL-U has {_CONLLU_COLUMNS} columns, got {len(cells)} in "
                    f"{shortened(line)}; separate them by tabs, or name the file without .conllu"
                )
            rows.append((cells, number))
        else:
            if rows and (sentence := _conllu_sentence(rows, text, tag_at, path)).words:
                yield sentence
                is_empty = False
            rows, text = [], None
    if is_empty:
        raise ValueError(f"{path} has no words; it must hold CoNLL-U")


def _conllu_sentence(
    rows: Sequence[tuple[list[str], int]], text: str | None, tag_at: int, path: Path
) -> TaggedSentence:
    """Words without ranges and empty nodes; the words of a range share the place of its surface."""
    surfaces: list[tuple[str, int, bool]] = []  # form, number of words, whether a space follows
    words: list[str] = []
    tags, lines = [], []
    covered = 0
    for cells, number in rows:
        name, form, misc = cells[0], cells[1], cells[9]
        if re.fullmatch(r"\d+\.\d+", name):
            continue
        first, last = _numbers(name, len(words) + 1, f"{path}:{number}")
        if not form.strip() or not cells[tag_at].strip():
            raise ValueError(f"{path}:{number}: the {'tag' if form.strip() else 'word'} is empty; fill it in")
        has_space = "SpaceAfter=No" not in misc.split("|")
        if "-" in name:
            if first <= covered:
                raise ValueError(
                    f"{path}:{number}: the range {name} overlaps the one before, up to {covered}; correct it"
                )
            surfaces.append((form, last - first + 1, has_space))
            covered = last
            continue
        words.append(form)
        tags.append(cells[tag_at])
        lines.append(number)
        if first > covered:
            surfaces.append((form, 1, has_space))
    if covered > len(words):
        raise ValueError(
            f"{path}:{rows[-1][1]}: the sentence ends after {len(words)} words, within a range up to {covered}; "
            "complete it"
        )
    whole, places = _place(surfaces)
    if text is not None and (places_in_text := _find(surfaces, text)) is not None:
        whole, places = text, places_in_text
    offsets = [place for place, (_, count, _) in zip(places, surfaces, strict=True) for _ in range(count)]
    return TaggedSentence(tuple(words), tuple(tags), whole, tuple(offsets), None, tuple(lines))


def _numbers(name: str, expected: int, place: str) -> tuple[int, int]:
    """The first and the last number of a word, "3", or of a range, "3-4"; raises unless the first one is expected."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", name)
    first, last = (0, 0) if match is None else (int(match[1]), int(match[2] or match[1]))
    if first != expected or last < first:
        raise ValueError(
            f"{place}: the first column must be {expected}, a range {expected}-N or an empty node, got {name!r}; "
            "number the words of every sentence from 1"
        )
    return first, last


def _place(surfaces: Sequence[tuple[str, int, bool]]) -> tuple[str, list[tuple[int, int]]]:
    """The text of surfaces and their places in it."""
    text, places = "", []
    for form, _, has_space in surfaces:
        places.append((len(text), len(text) + len(form)))
        text += form + " " * has_space
    return text.rstrip(), places


def _find(surfaces: Sequence[tuple[str, int, bool]], text: str) -> list[tuple[int, int]] | None:
    """The places of surfaces in a given text; None if one is missing."""
    places, end = [], 0
    for form, *_ in surfaces:
        start = text.find(form, end)
        if start < 0:
            return None
        end = start + len(form)
        places.append((start, end))
    return places


def _read_folder(folder: Path) -> Iterator[TaggedSentence]:
    words, tags = (_member(folder, name) for name in ("seq.in", "seq.out"))
    labels = _member(folder, "label", required=False)
    assert words is not None
    assert tags is not None
    texts, rows = (list(read_records(path, "one sentence per line")) for path in (words, tags))
    intents = None if labels is None else list(read_records(labels, "one intent per line"))
    for path, lines in ((tags, rows), (labels, intents)):
        if lines is not None and len(lines) != len(texts):
            raise ValueError(
                f"{path} has {len(lines):,} lines and {words} {len(texts):,}; line n of one must belong to line n of "
                "the other"
            )
    for number, (text, row) in enumerate(zip(texts, rows, strict=True), 1):
        sentence, tag_names = text.split(), row.split()
        if len(sentence) != len(tag_names):
            raise ValueError(
                f"{tags}:{number}: a line must have one tag per word, got {len(tag_names)} tags for {len(sentence)} "
                "words; separate both by spaces"
            )
        if sentence:
            intent = None if intents is None else intents[number - 1].strip()
            yield TaggedSentence.of(sentence, tag_names, intent, [number] * len(sentence))


def _member(folder: Path, name: str, required: bool = True) -> Path | None:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            return path
    if not required:
        return None
    raise ValueError(
        f"{folder} has no file {name} or {name}.gz; name a file of columns, or a folder of seq.in, seq.out"
    )
