"""Stories with questions in the format of bAbI  (Weston et al. 2015).  No torch here.

1 Mary moved to the bathroom.
2 John went to the hallway.
3 Where is Mary?<tab>bathroom<tab>1

Lines are numbered from 1 in every story. A line with tabs is a question, its answer, and the numbers of the lines that
support the answer, which may be missing. An answer with commas is one answer.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.common.word_splitting import split_words
from regard.common.wording import plural, shortened
from regard.data.splitting import Parts
from regard.data.text.pairs import read_lines

_HOLDS = "stories in the format of bAbI, such as: 1 Mary moved to the bathroom."
_NUMBERED = re.compile(r"\s*(\d+)\s+(\S.*)")
_PARTS = ("_train", "_valid", "_test")
_SUFFIX = re.compile(r"(\.txt|\.babi)?(\.gz)?$")


@dataclass(frozen=True)
class Question:
    """A question about the sentences before it; `support` counts these sentences from 0, the oldest first."""

    sentences: tuple[str, ...]
    question: str
    answer: str
    support: tuple[int, ...] = ()
    story: int = 0  # the number of its story in the file
    line: int = 0  # its line in the file

    @property
    def text(self) -> str:
        """The sentences and the question, one per line."""
        return "\n".join((*self.sentences, self.question))


# no story of one part is in another
QuestionSplits = Parts[Sequence[Question]]


def words_of(text: str) -> list[str]:
    """The words of a sentence in lower case, without punctuation."""
    return [*split_words(text.lower(), "hyphenated")[0]]


def read_babi(path: Path, max_length: int | None = None) -> list[Question]:
    """The questions of a file, plain or `.gz`; a story of more than `max_length` words is an error."""
    return parse_babi(read_lines(path, _HOLDS), str(path), max_length)


def parse_babi(lines: Iterable[str], name: str, max_length: int | None = None) -> list[Question]:
    """The questions of numbered lines; `name` is that of their file, for errors."""
    questions: list[Question] = []
    sentences: list[str] = []
    places: dict[int, int] = {}
    story, before, words = -1, 0, 0
    for line, text in enumerate(lines, 1):
        if not text.strip():
            continue
        place = f"{name}:{line}:"
        number, content = _numbered(text, place)
        if number == 1:
            story, before, words = story + 1, 0, 0
            sentences, places = [], {}
        if number <= before or story < 0:
            raise ValueError(
                f"{place} the number {number} does not follow {before or 'a line 1'}; number the lines of every story "
                "from 1"
            )
        before = number
        words += content.count(" ") + 1
        if max_length is not None and words > max_length:
            raise ValueError(
                f"{place} the story has more than max_length={max_length:,} words; split it into several, or give a "
                "larger --max-length"
            )
        if "\t" not in content and not content.rstrip().endswith("?"):
            places[number] = len(sentences)
            sentences.append(content.strip())
            continue
        question, answer, support = _question(content, places, place)
        if not sentences:
            raise ValueError(f"{place} the story has no sentences before its question {question!r}; add some before it")
        questions.append(Question(tuple(sentences), question, answer, support, story, line))
    if not questions:
        raise ValueError(f"{name} has no questions; a question is a line such as: 3 Where is Mary?<tab>bathroom<tab>1")
    return questions


def _numbered(text: str, place: str) -> tuple[int, str]:
    match = _NUMBERED.fullmatch(text.rstrip("\r\n"))
    if match is None:
        problem = "is JSON" if text.lstrip()[:1] in ("{", "[") else "has no number and sentence"
        raise ValueError(
            f"{place} the line {problem}, got {shortened(text)}; a line of bAbI is such as: 1 Mary moved to the "
            "bathroom."
        )
    return int(match[1]), match[2]


def _question(content: str, places: dict[int, int], place: str) -> tuple[str, str, tuple[int, ...]]:
    """The question, its answer, and the sentences that support it."""
    question, *rest = (cell.strip() for cell in content.split("\t"))
    if not rest or not rest[0]:
        raise ValueError(f"{place} the question {question!r} has no answer; write it after a tab")
    if len(rest) > 2:
        raise ValueError(
            f"{place} a question has at most three columns, itself, its answer and the lines that support it, got "
            f"{len(rest) + 1}; remove tabs inside of them"
        )
    support = []
    for number in rest[1].split() if len(rest) > 1 else ():
        if not number.isdecimal() or int(number) not in places:
            lines = f"from {min(places)} to {max(places)}" if places else "none"
            raise ValueError(
                f"{place} the answer {rest[0]!r} is supported by line {number}, which is no earlier sentence of its "
                f"story (its sentences are {lines}); correct the number, or leave it out"
            )
        support.append(places[int(number)])
    return question, rest[0], tuple(support)


def parse_story(text: str, max_length: int | None = None) -> Question:
    """The sentences of a text and the question at its end, one per line, numbered or not, or all in one line.

    Questions before the last one are left out. The answer and the lines that support it may follow the question after
    tabs.
    """
    if (count := len(text.split())) > (max_length or count):
        raise ValueError(
            f"the text {shortened(text)} has {count:,} words, more than max_length={max_length:,} of this run; "
            "leave out the sentences that matter least"
        )
    if text.lstrip()[:1] in ("{", "["):
        raise ValueError(
            f"the text {shortened(text)} is JSON; give sentences and a question, such as: "
            "'Mary moved to the bathroom. Where is Mary?'"
        )
    sentences: list[str] = []
    places: dict[int, int] = {}
    last: tuple[str, str, tuple[int, ...]] | None = None
    for line in filter(str.strip, text.splitlines()):
        match = _NUMBERED.fullmatch(line)
        number, content = (int(match[1]), match[2]) if match is not None else (len(sentences) + 1, line)
        if match is not None and number == 1:  # as in a file, the number 1 begins another story
            sentences, places = [], {}
        for part in [content] if "\t" in content else re.split(r"(?<=[.!?])\s+(?=\S)", content):
            last = None
            if "\t" in part:
                last = _question(part, places, f"the question {shortened(part.strip())}:")
            elif part.rstrip().endswith("?"):
                last = part.strip(), "", ()
            else:
                places[number if number not in places else max(places) + 1] = len(sentences)
                sentences.append(part.strip())
    if last is None or not words_of(last[0]):
        raise ValueError(f"the text {shortened(text)} has no question at its end; end it, such as: Where is Mary?")
    if not sentences:
        raise ValueError(f"the story before the question {last[0]!r} is empty; write its sentences before the question")
    return Question(tuple(sentences), *last)


def task_name(path: Path) -> str:
    """The name of the task of a file: qa1_train.txt.gz is of qa1."""
    name = _SUFFIX.sub("", path.name)
    return next((name.removesuffix(part) for part in _PARTS if name.endswith(part)), name) or path.name


def task_files(paths: Sequence[Path], part: str) -> dict[str, Path]:
    """The files of tasks by name, in their order: files as they are given; of folders, those of this part.

    Names with numbers are sorted by these, qa2 before qa10. A folder without a file NAME_train.txt or the like is taken
    whole.
    """
    path_by_task: dict[str, Path] = {}
    for path in paths:
        files = [path]
        if path.is_dir():
            known_files = [file for file in path.iterdir() if _SUFFIX.search(file.name).group()]  # type: ignore[union-attr]
            files = [file for file in known_files if _SUFFIX.sub("", file.name).endswith(f"_{part}")]
            if not files:
                files = [file for file in known_files if not _SUFFIX.sub("", file.name).endswith(_PARTS)]
            if not files:
                raise ValueError(
                    f"{path} has no file of bAbI, such as qa1_{part}.txt or qa1_{part}.txt.gz; name another folder, or "
                    "files"
                )
        for file in sorted(files, key=_order):
            if (name := task_name(file)) in path_by_task:
                raise ValueError(f"{path_by_task[name]} and {file} are both of the task {name!r}; name one of them")
            path_by_task[name] = file
    return path_by_task


def _order(path: Path) -> list[tuple[int, int | str]]:
    parts = re.split(r"(\d+)", path.name)
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts if part]


def match_files(names: Sequence[str], paths: Sequence[Path], part: str) -> dict[str, Path]:
    """The file of every one of these tasks; one file for one task may have any name."""
    files = task_files(paths, part)
    if len(names) == 1 and len(files) == 1:
        return dict(zip(names, files.values(), strict=True))
    missing = [name for name in names if name not in files]
    if missing:
        raise ValueError(
            f"{', '.join(map(str, paths))} lacks the file of {plural(len(missing), 'task')}, {', '.join(missing)}; "
            f"add a file such as {missing[0]}_{part}.txt"
        )
    return {name: files[name] for name in names}
