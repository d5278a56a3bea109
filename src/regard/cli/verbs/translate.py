"""regard translate: text in, one line of text out for each."""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from regard.cli.parsing.options import Flag, finite, left_open, parse, positive, seeded
from regard.cli.parsing.output_paths import not_an_input
from regard.cli.progress import counted
from regard.cli.recording_output import can_write, note

if TYPE_CHECKING:
    from regard.decoding.search import Search
    from regard.tasks.translate.options import Translate
    from regard.tasks.translate.predictor import TranslationHypothesis, Translator
    from regard.viz.alignment.alignment import Alignment

# lines of a file that are translated together, the short with the short
_CHUNK = 1024
_DRAWN = (".html", ".png", ".svg", ".pdf", ".txt")


@dataclass(frozen=True)
class Options:
    """Translate text with a trained model: one line on stdout for each line that is given, and nothing else.

    Text comes from the words behind RUN (quote a sentence; "-" is stdin), from --file, from a pipe, or is asked for.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """The folder of a training."""
    text: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Lines to translate; "-" reads stdin."""
    file: Path | None = None
    """Translate the lines of this file; .gz is unpacked."""

    beam: int | None = left_open(5)
    """Hypotheses that are kept at every step; 1 takes the likeliest token each time."""
    nbest: int | None = None
    """Print this many translations of each line: number, score, text, with tabs between."""
    length_penalty: float | None = left_open(1)
    """α of log p / ((5 + length) / 6)^α: the larger, the longer translations become."""
    coverage: float | None = left_open(0)
    """How much is taken off for words of the source that were not looked at."""
    sample: Flag = False
    """Draw translations by chance instead of searching for the best."""
    temperature: float | None = left_open(1)
    """With --sample: below 1 the likely are drawn more often, above 1 less."""
    top_k: int | None = None
    """With --sample: draw from so many of the likeliest tokens."""
    top_p: float | None = None
    """With --sample: draw from the likeliest tokens that have this share of probability together."""
    seed: int | None = left_open(0)
    """With --sample: the same seed draws the same again."""

    alignment: Path | None = None
    """Draw what was looked at for every translation: .html, .png, .svg, .pdf or .txt."""
    json: Flag = False
    """Print a JSON object for each line: source and translations with text, score, log_prob, finished."""
    weights: Literal["best", "last", "average"] = "best"
    """Which weights of the run: of the best validation, of the last step, or their average if one was made."""
    threads: int | None = None
    """Threads of the processor; left open, as many as the training found best."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""

    def __post_init__(self) -> None:
        if self.text and self.file is not None:
            raise ValueError(f"--file {self.file} and the text {self.text[0]!r} exclude each other; give one of them")
        if "-" in self.text and len(self.text) > 1:
            raise ValueError("- reads all text from stdin, so it must stand alone; leave the other words out")
        clash = ("beam", "length_penalty", "coverage") if self.sample else ("temperature", "top_k", "top_p", "seed")
        for name in clash:
            if getattr(self, name) is not None:
                option = f"--{name.replace('_', '-')} {getattr(self, name)}"
                way = "leave one of them out" if self.sample else "add --sample or leave it out"
                raise ValueError(f"{option} means nothing {'with' if self.sample else 'without'} --sample; {way}")
        positive(self, "beam", "nbest", "threads", "top_k")
        finite(self, "length_penalty", "coverage", "temperature")
        seeded(self)
        if self.temperature is not None and self.temperature <= 0:
            raise ValueError(f"--temperature must be more than 0, got {self.temperature:g}; try --temperature 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"--top-p must be above 0 and at most 1, got {self.top_p:g}; try --top-p 0.9")
        if not self.sample and (self.nbest or 1) > (self.beam or 5):
            raise ValueError(f"--nbest {self.nbest} wants more than --beam {self.beam or 5} finds; raise --beam")


def verb(args: Sequence[str]) -> int:
    typed = parse(Options, "regard translate", args)
    can_write("--alignment", typed.alignment, _DRAWN)
    lines = {} if typed.file is None else {"the file of --file": [typed.file]}
    not_an_input("--alignment", typed.alignment, typed.run, lines)
    from regard.cli.loading import load

    loaded = load(typed.run, typed.weights, typed.device, typed.threads)
    _attends(typed, loaded.task)
    _Translator(typed, loaded.by, loaded.task.max_length).all()
    return 0


class _Translator:
    """Prints translations as lines come in; remembers what is told at the end."""

    def __init__(self, typed: Options, interpreter: "Translator", most: int) -> None:
        self.typed, self.interpreter, self.most = typed, interpreter, most
        self.search = _search(typed)
        self.looked = (
            None if typed.alignment is None else _Looked(interpreter, typed.alignment, typed.nbest is not None)
        )
        self.lines = self.unknown = self.unfinished = 0
        self.long: dict[int, int] = {}  # line -> its tokens, of lines longer than any that was learned from

    def all(self) -> None:
        if hasattr(sys.stdout, "reconfigure"):
            # text is UTF-8 with line feeds, as the files it is made from, whatever the system takes for text
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        for lines in _lines(self.typed):
            self._print(lines)
        if self.unknown:
            was, them = ("was", "it") if self.unknown == 1 else ("were", "them")
            note(f"{counted(self.unknown, 'token')} {was} not in the vocabulary, so the model could not read {them}")
        if self.long:
            number, tokens = max(self.long.items(), key=lambda one: one[1])
            others = f" ({counted(len(self.long) - 1, 'other line')} also too many)" if len(self.long) > 1 else ""
            note(f"line {number:,} has {tokens:,} tokens{others}; training saw no line of more than {self.most:,}")
        if self.unfinished:
            was = "was" if self.unfinished == 1 else "were"
            note(f"{counted(self.unfinished, 'translation')} came to no end and {was} cut off")
        if self.looked is not None:
            self.looked.draw()

    def _print(self, lines: list[str]) -> None:
        from regard.data.text.special_tokens import UNK

        encoded = self.interpreter.vocabularies.source.encode(lines)
        self.unknown += sum(ids.count(UNK) for ids in encoded)
        self.long |= {self.lines + n: len(ids) for n, ids in enumerate(encoded, 1) if len(ids) > self.most}
        said = self.interpreter.translate(lines, self.search, first=self.lines)
        for line, found in zip(lines, said, strict=True):
            self.unfinished += sum(not one.finished for one in found)
            sys.stdout.write(_written(line, found, self.typed))
        sys.stdout.flush()
        if self.looked is not None:
            self.looked.add(lines, [len(ids) for ids in encoded], said, self.lines)
        self.lines += len(lines)


class _Looked:
    """What was looked at, of the first translations: as many as their file has room for."""

    def __init__(self, interpreter: "Translator", path: Path, numbered: bool) -> None:
        self.interpreter, self.path, self.numbered = interpreter, path, numbered
        self.kept: list[Alignment] = []
        self.asked, self.taken = 0, 0.0

    def add(
        self, lines: Sequence[str], tokens: Sequence[int], said: "Sequence[list[TranslationHypothesis]]", first: int
    ) -> None:
        """Those of lines that were read: of white space the model saw nothing. `first` lines were before."""
        from regard.tasks.translate.predictor import with_eos
        from regard.viz.alignment.alignment import Alignment, file_share

        taken: list[tuple[str, TranslationHypothesis, str]] = []
        for n, (line, found) in enumerate(zip(lines, said, strict=True)):
            for place, one in enumerate(found if line.strip() else [], 1):
                self.asked += 1
                self.taken += file_share(self.path, len(with_eos(one)), tokens[n] + 1)
                # of one that alone is too large, who draws tells
                if self.taken <= 1 or self.asked == 1:
                    which = f", {_ordinal(place)}" if self.numbered else ""
                    taken.append((line, one, f"line {first + n + 1}{which}, score {one.score:.4f}"))
        if not taken:
            return
        aligned = self.interpreter.align([line for line, _, _ in taken], [one for _, one, _ in taken])
        for (line, one, told), seen in zip(taken, aligned, strict=True):
            texts = (line, one.text or "(nothing)")
            weighed = (seen.source, seen.target, seen.weights)
            self.kept.append(Alignment(*weighed, note=told, text=texts, hard=self.interpreter.hard))

    def draw(self) -> None:
        from regard.viz.alignment.alignment import draw_first, missing_fonts

        if not self.kept:
            note(f"nothing was translated, so there is nothing to draw into {self.path}")
            return
        drawn = draw_first(self.kept, self.path)
        note(f"what was looked at is drawn in {self.path}")
        if drawn < self.asked:
            note(f"it has room for the first {drawn:,} of {self.asked:,} translations; .txt has room for all")
        if told := missing_fonts(self.kept[:drawn], self.path):
            note(told)


def _ordinal(n: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st."""
    return f"{n}{'th' if n % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def _search(typed: Options) -> "Search":
    from regard.decoding.search import Beam, Greedy, Sampling

    if typed.sample:
        temperature = 1.0 if typed.temperature is None else typed.temperature
        return Sampling(typed.nbest or 1, temperature, typed.top_k, typed.top_p, typed.seed or 0)
    penalty = 1.0 if typed.length_penalty is None else typed.length_penalty
    if typed.beam == 1 and not typed.coverage:
        return Greedy(penalty)
    return Beam(typed.beam or 5, typed.nbest or 1, penalty, typed.coverage or 0.0)


def _written(line: str, found: "list[TranslationHypothesis]", typed: Options) -> str:
    """A line's translations as they are printed. A line feed in one would make two lines of it."""
    if typed.json:
        several = [
            {"text": one.text, "score": one.score, "log_prob": one.log_prob, "finished": one.finished} for one in found
        ]
        return json.dumps({"source": line, "translations": several}, ensure_ascii=False) + "\n"
    texts = [one.text.replace("\n", " ") for one in found]
    if typed.nbest is None:
        return texts[0] + "\n"
    return "".join(f"{n}\t{one.score:.4f}\t{text}\n" for n, (one, text) in enumerate(zip(found, texts, strict=True), 1))


def _lines(typed: Options) -> Iterator[list[str]]:
    """The lines, in chunks that are translated together."""
    if typed.file is not None:
        from regard.data.text.pairs import read_lines

        lines = read_lines(typed.file)
        while chunk := list(islice(lines, _CHUNK)):
            yield chunk
    elif typed.text and typed.text != ("-",):
        yield [line for text in typed.text for line in text.split("\n")]
    elif typed.text or not sys.stdin.isatty():
        yield from _streamed()
    else:
        yield from _asked()


def _streamed() -> Iterator[list[str]]:
    """Lines of stdin as they arrive: many at once from a file, one by one from who types."""
    from regard.data.text.pairs import decoded

    number, rest = 0, b""
    while more := sys.stdin.buffer.read1(1 << 16):  # type: ignore[union-attr]
        *whole, rest = (rest + more).split(b"\n")
        if whole:
            yield [decoded(line, "stdin", number + n) for n, line in enumerate(whole, 1)]
        number += len(whole)
    if rest:
        yield [decoded(rest, "stdin", number + 1)]


def _asked() -> Iterator[list[str]]:
    """Lines typed at a prompt, until Ctrl-D."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  input() can be edited once it is there
    note("type a line to translate, Ctrl-D to end")
    while True:
        try:
            yield [input("> ") if sys.stdout.isatty() else _answer("> ")]
        except EOFError:
            print(file=sys.stderr)
            return


def _answer(prompt: str) -> str:
    """As input, but stdout is left alone."""
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")


def _attends(typed: Options, task: "Translate") -> None:
    """Refuses what needs attention of a model that has none, before anything is translated."""
    for option, asked in (("--alignment", typed.alignment), ("--coverage", typed.coverage)):
        if asked and task.decoder == "fixed":
            raise ValueError(f"{option} needs attention, and this model has none (decoder fixed); leave {option} out")
