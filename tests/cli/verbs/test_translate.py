"""regard translate: text from arguments, files, pipes and prompts; lines and alignments as output."""

import gzip
import io
import json
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from tests.cli.conftest import LINES, TINY, Pipe, Ran, Refused, Regard
from tests.for_each import for_each

from regard.common.json_files import with_checksum
from regard.data.text.tokenizer import Tokenizer
from regard.decoding.search import Beam, Greedy, Search
from regard.tasks.loading import load
from regard.tasks.registry import TASKS
from regard.tasks.shared.text_generation import GeneratedText, TokenAlignment
from regard.tasks.translate.notes_and_alignments import _ordinal
from regard.tasks.translate.options import Translate
from regard.tasks.translate.predictor import Translator
from regard.viz import alignment
from regard.viz.plots import alignment_figure
from regard.viz.text import fonts


@pytest.fixture
def right(trained: Path) -> list[str]:
    """The translations of all lines, without the command line."""
    return [best.text for best, *_ in translator(trained).translate(LINES, Beam(5))]


def translator(run: Path) -> Translator:
    predictor = load(run, device="cpu")
    return predictor


def lines(ran: Ran) -> list[str]:
    assert ran.code == 0, ran.err
    assert ran.out.endswith("\n")
    return ran.out[:-1].split("\n")


def test_words(regard: Regard, trained: Path, right: list[str]) -> None:
    assert lines(regard("translate", trained, *LINES[:3])) == right[:3]
    assert lines(regard("translate", trained, "\n".join(LINES[:3]))) == right[:3]


def test_a_file_and_an_empty_line(regard: Regard, trained: Path, right: list[str], tmp_path: Path) -> None:
    path = tmp_path / "lines.txt.gz"
    path.write_bytes(gzip.compress("\n".join([*LINES, "", LINES[0]]).encode()))
    assert lines(regard("translate", trained, "--file", path)) == [*right, "", right[0]]


@for_each("dash", [["-"], ["--file", "-"], []], ids=" ".join)
def test_a_pipe(dash: list[str], regard: Regard, trained: Path, right: list[str], pipe: Pipe) -> None:
    pipe("\r\n".join(LINES).encode())
    assert lines(regard("translate", trained, *dash)) == right


def test_a_byte_order_mark_is_not_text(regard: Regard, trained: Path, tmp_path: Path, pipe: Pipe) -> None:
    path = tmp_path / "marked.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "\n".join(LINES[:2]).encode())
    pipe(path.read_bytes())
    for given in (["-"], ["--file", path]):
        values = [json.loads(line) for line in lines(regard("translate", trained, "--json", *given))]
        assert [value["source"] for value in values] == LINES[:2]


def test_a_line_of_any_length_in_a_pipe(
    regard: Regard, trained: Path, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.data.text.pairs.MAX_LINE", 70_000)
    pipe(b"a b\n" + b"x" * 1_000_000)
    ran = regard("translate", trained, "-")
    sentence = "stdin:2: the line is longer than 70,000 bytes; break the text into lines, as in: fold -s"
    assert (ran.code, ran.err) == (2, f"regard: {sentence}\n")


def test_bad_bytes_in_a_pipe(refused: Refused, trained: Path, pipe: Pipe) -> None:
    pipe(b"a b\nx\xff\n")
    sentence = "stdin:2: byte 0xff at place 2 is not UTF-8; convert it, as in: iconv -f latin1 -t utf8"
    assert refused("translate", trained, "-") == sentence


def test_a_prompt(regard: Regard, trained: Path, right: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal(f"{LINES[0]}\n{LINES[1]}\n"))
    ran = regard("translate", trained)
    assert lines(ran) == right[:2]
    assert ran.err.startswith("regard: type a line, Ctrl-D to end\n> > > \n")


def test_beam_one_is_greedy(regard: Regard, trained: Path) -> None:
    translations = [best.text for best, *_ in translator(trained).translate(LINES, Greedy())]
    assert lines(regard("translate", trained, "--beam", 1, *LINES)) == translations


def test_the_score_of_beam_one_is_that_of_any_beam(
    regard: Regard, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches: list[Search] = []
    translate = Translator.translate

    def recorded(self: Translator, texts: Sequence[str], search: Search, *, first: int) -> list[list[GeneratedText]]:
        searches.append(search)
        return translate(self, texts, search, first=first)

    monkeypatch.setattr(Translator, "translate", recorded)
    args = ["translate", trained, *LINES[:3], "--beam", 1, "--json"]
    for penalty in ([], ["--length-penalty", 0.5]):
        # only a beam search has a coverage penalty; one this small changes nothing
        coverages = ([], ["--coverage", 1e-9])
        greedy, beam = (
            [json.loads(line)["translations"] for line in lines(regard(*args, *penalty, *coverage))]
            for coverage in coverages
        )
        for (from_greedy,), (from_beam,) in zip(greedy, beam, strict=True):
            assert from_greedy["text"] == from_beam["text"]
            assert from_greedy["score"] == pytest.approx(from_beam["score"], rel=1e-5)
    assert searches == [Greedy(), Beam(1, coverage=1e-9), Greedy(0.5), Beam(1, length_penalty=0.5, coverage=1e-9)]


def test_nbest_is_a_numbered_list(regard: Regard, trained: Path, right: list[str]) -> None:
    rows = [line.split("\t") for line in lines(regard("translate", trained, *LINES[:2], "--nbest", 3))]
    assert [row[0] for row in rows] == ["1", "2", "3"] * 2
    assert [rows[0][2], rows[3][2]] == right[:2]
    scores = [float(row[1]) for row in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True)


def test_json(regard: Regard, trained: Path, right: list[str]) -> None:
    values = [json.loads(line) for line in lines(regard("translate", trained, *LINES[:2], "--nbest", 2, "--json"))]
    assert [value["source"] for value in values] == LINES[:2]
    assert [value["translations"][0]["text"] for value in values] == right[:2]
    assert set(values[0]["translations"][1]) == {"text", "score", "log_prob", "finished"}


def test_samples_repeat_with_their_seed(regard: Regard, trained: Path) -> None:
    args = ["translate", trained, *LINES[:2], "--sample", "--nbest", 4, "--temperature", 2, "--top-k", 5]
    first, same, other = (regard(*args, "--seed", seed).out for seed in (3, 3, 4))
    assert first == same != other


def test_unknown_tokens_are_noted(regard: Regard, trained: Path) -> None:
    ran = regard("translate", trained, "a zzz yyy")
    assert "regard: 2 tokens were not in the vocabulary, so the model could not read them\n" in ran.err
    assert ran.out.count("\n") == 1


def test_a_line_feed_in_a_translation_makes_no_line(
    regard: Regard, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tokenizer, "decode", lambda self, ids: "a\nb")
    assert regard("translate", trained, LINES[0]).out == "a b\n"


@for_each("suffix", [".html", ".png", ".txt"])
def test_alignments(suffix: str, regard: Regard, trained: Path, tmp_path: Path) -> None:
    path = tmp_path / f"seen{suffix}"
    ran = regard("translate", trained, *LINES[:2], "", "--picture", path)
    assert len(lines(ran)) == 3
    assert f"regard: the attention is drawn in {path}\n" in ran.err
    assert path.stat().st_size > 300


def test_alignments_of_several_translations_are_counted(regard: Regard, trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "seen.txt"
    ran = regard("translate", trained, *LINES[:2], "--nbest", 3, "--picture", path)
    notes = [f"line {line}, {place}, score " for line in (1, 2) for place in ("1st", "2nd", "3rd")]
    scores = [printed.split("\t")[1] for printed in ran.out.splitlines()]
    captions = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("line ")]
    assert captions == [note + score for note, score in zip(notes, scores, strict=True)]


def test_lines_are_aligned_together(
    regard: Regard, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    align = Translator.align

    def recorded(self: Translator, texts: Sequence[str], outputs: Sequence[GeneratedText]) -> list[TokenAlignment]:
        counts.append(len(texts))
        return align(self, texts, outputs)

    monkeypatch.setattr(Translator, "align", recorded)
    path, seen = tmp_path / "lines.txt", tmp_path / "seen.txt"
    # a line of white space has no tokens
    path.write_text("\n".join([LINES[0], "  ", *LINES[1:7], ""]), encoding="utf-8")
    assert len(lines(regard("translate", trained, "--file", path, "--nbest", 2, "--picture", seen))) == 1 + 7 * 2
    assert counts == [7 * 2]
    captions = [line.partition(",")[0] for line in seen.read_text(encoding="utf-8").splitlines() if line[:5] == "line "]
    assert captions == [f"line {n}" for n in (1, *range(3, 9)) for _ in range(2)]


@for_each("suffix", [".html", ".png", ".txt"])
def test_a_file_that_is_full_has_the_first(
    suffix: str, regard: Regard, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment, "_MAX_PAGE_WEIGHTS", 99)
    monkeypatch.setattr(alignment_figure, "_MAX_HEIGHT", 5.0)
    path = tmp_path / f"seen{suffix}"
    ran = regard("translate", trained, *LINES, "--picture", path)
    assert len(lines(ran)) == len(LINES)
    assert f"regard: the attention is drawn in {path}\n" in ran.err
    match = re.search(rf"regard: it has room for the first (\d+) of {len(LINES)} translations; .txt has room", ran.err)
    if suffix == ".txt":
        assert match is None
        assert path.read_text(encoding="utf-8").count("\nsource ") == len(LINES)
        return
    shown = int(match[1])
    assert 1 < shown < len(LINES)
    if suffix == ".html":
        page = path.read_text(encoding="utf-8")
        assert f"line {shown}, score" in page
        assert f"line {shown + 1}, score" not in page


@for_each(("n", "text"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (22, "22nd")])
def test_ordinals(n: int, text: str) -> None:
    assert _ordinal(n) == text


def test_hard_attention_is_noted(regard: Regard, pairs: Path, trained: Path, tmp_path: Path) -> None:
    run, path = tmp_path / "run", tmp_path / "seen.txt"
    regard("train", "translate", "--train", pairs, *TINY, "--steps", 1, "--attention", "hard", "--out", run)
    for folder, count in ((run, 1), (trained, 0)):
        assert regard("translate", folder, LINES[0], "--picture", path).code == 0
        assert path.read_text(encoding="utf-8").count(alignment_figure.HARD_NOTE) == count


def test_lines_longer_than_any_in_training_are_noted(regard: Regard, trained: Path) -> None:
    ran = regard("translate", trained, "a b", "a " * 200 + "a", "b " * 1202 + "b")
    note = "regard: line 3 has 1,203 tokens (1 other line also too many); training saw no line of more than 200\n"
    assert note in ran.err
    assert "regard: line 2 has 201 tokens; training saw" in regard("translate", trained, "", "a " * 200 + "a").err
    assert "training saw" not in regard("translate", trained, "a " * 199 + "a").err


def test_letters_without_a_font_are_noted(
    regard: Regard, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fonts, "_installed", dict)
    for suffix, noted in ((".png", True), (".html", False)):
        ran = regard("translate", trained, "a 月", "--picture", tmp_path / f"seen{suffix}")
        assert ("install Noto Sans CJK (for U+6708), or write .html, which has every letter" in ran.err) == noted


def test_an_alignment_is_that_of_the_translation(
    regard: Regard, trained: Path, right: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "seen.txt"
    regard("translate", trained, LINES[3], "--picture", path)
    text = path.read_text(encoding="utf-8")
    assert f"source       {LINES[3]}\n" in text
    assert f"translation  {right[3] or '(nothing)'}\n" in text
    assert text.startswith("line 1, score ")


def test_nothing_to_draw(regard: Regard, trained: Path, tmp_path: Path) -> None:
    ran = regard("translate", trained, "", "--picture", tmp_path / "seen.txt")
    assert ran.code == 0
    assert "nothing was translated, so there is nothing to draw" in ran.err


def test_options_that_need_attention(regard: Regard, refused: Refused, unattended: Path) -> None:
    for option, value in (("--picture", "a.html"), ("--coverage", "0.5")):
        assert refused("translate", unattended, "a b", option, value) == (
            f"{option} needs attention, and this model has none (a decoder without attention); leave it out, or name "
            "another run"
        )
    assert regard("translate", unattended, "a b", "--coverage", "0").code == 0


def test_inputs_are_not_overwritten(refused: Refused, trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("a b\n", encoding="utf-8")
    sentence = f"--picture {path} is the file of --file and would be written over; name another file"
    assert refused("translate", trained, "--file", path, "--picture", path) == sentence
    assert path.read_text(encoding="utf-8") == "a b\n"


def test_a_note_about_one_is_in_the_singular(regard: Regard, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = regard("translate", trained, "a zzz")
    assert "regard: 1 token was not in the vocabulary, so the model could not read it\n" in ran.err
    endless = [[GeneratedText("a", (5,), -1.0, -1.0, finished=False)]]
    monkeypatch.setattr(Translator, "translate", lambda self, lines, search, first=0: endless * len(lines))
    assert regard("translate", trained, "a").err == "regard: 1 translation came to no end and was cut off\n"
    assert regard("translate", trained, "a", "b").err == "regard: 2 translations came to no end and were cut off\n"


@for_each(
    ("words", "sentence"),
    {
        "a --file x": "--file x and the text 'a' exclude each other; give one of them",
        "- a": "- reads all text from stdin, so it must stand alone; leave the other words out",
        "a --sample --beam 3": "--beam 3 means nothing with --sample; leave one of them out",
        "a --top-k 3": "--top-k 3 means nothing without --sample; add --sample or leave it out",
        "a --length-penalty inf": "--length-penalty must be from -10 to 10, got inf; try --length-penalty 1",
        "a --nbest 6": "--nbest 6 exceeds --beam 5; raise --beam",
        "a --picture x.doc": "unknown suffix of --picture '.doc'; known are: .html, .png, .svg",
        "a --weights average": "has no average.safetensors yet; try --weights best",
        "--file nix": "there is no file nix",
    }.items(),
)
def test_wrong_input_is_one_sentence(words: str, sentence: str, refused: Refused, trained: Path) -> None:
    assert sentence in refused("translate", trained, *words.split())


def test_a_damaged_run(regard: Regard, refused: Refused, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    (tmp_path / "best.safetensors").write_bytes(b"damaged")
    sentence = refused("translate", tmp_path, "a")
    assert "best.safetensors is damaged or no safetensors file" in sentence
    assert sentence.endswith("; or take other weights of the run: --weights last")
    assert regard("translate", tmp_path, "a", "--weights", "last").code == 0
    (tmp_path / "last.safetensors").unlink()
    assert "--weights" not in refused("translate", tmp_path, "a")
    (tmp_path / "tokens.source.json").write_text("{", encoding="utf-8")
    assert "tokens.source.json has changed since the training wrote it" in refused("translate", tmp_path, "a")


def test_a_run_without_weights(refused: Refused, trained: Path, tmp_path: Path) -> None:
    shutil.copy(trained / "run.json", tmp_path)
    sentence = f"has no best.safetensors yet; train it: regard train --resume {tmp_path}"
    assert sentence in refused("translate", tmp_path, "a")


def test_a_run_of_another_task(
    refused: Refused, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Paint(Translate):
        name: ClassVar[str] = "paint"

    record = json.loads((trained / "run.json").read_text(encoding="utf-8"))
    (tmp_path / "run.json").write_bytes(with_checksum({**record, "task": "paint"}))
    monkeypatch.setitem(TASKS, "paint", Paint)
    assert refused("translate", tmp_path, "a") == (
        f"{tmp_path} is a run of paint, and regard translate is for runs of translate; use "
        f"{Paint().next_command(str(tmp_path))}"
    )


def test_predict_does_the_same(regard: Regard, trained: Path, tmp_path: Path) -> None:
    for args in ([*LINES[:2], "--nbest", 2], [LINES[0], "--json"], ["a zzz"]):
        assert regard("predict", trained, *args) == regard("translate", trained, *args)
    assert regard("predict", trained, LINES[0], "--picture", tmp_path / "a.txt").code == 0
    assert (tmp_path / "a.txt").read_text(encoding="utf-8").startswith("line 1, score ")
