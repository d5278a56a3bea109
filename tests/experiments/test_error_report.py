"""Errors of small runs of each kind: what is counted, what is drawn, and that hostile texts stay texts."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.conftest import Refused, Regard
from tests.serve.conftest import LINES, trained

from regard.data.spreadsheets.safe_cell import safe_cell
from regard.experiments.error_report import ErrorReport, error_report
from regard.experiments.run_comparison import compare_runs
from regard.tasks.loading import LoadedRun, load_run

HOSTILE = ['=1+1<script>alert("x")</script>', "</script><b>", "a \u202e b\x1b[31m", "ß " * 300, "\U0001f600"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    folder = tmp_path_factory.mktemp("errors")
    lines = [f"{('good', 'bad', 'odd')[n % 3]}\t{line}\n" for n, line in enumerate(LINES)]
    (folder / "train.tsv").write_text("".join(lines))
    (folder / "test.tsv").write_text(
        "".join(f"bad\tz {n} {text}\n" for n, text in enumerate(HOSTILE)), encoding="utf-8"
    )
    (folder / "more.tsv").write_text("good\ta b\nodd\tc d e\n")
    words = "--width 5 --hidden 6 --hops 2 --feed 7 --batch 64 --steps 2"
    return load_run(trained(folder / "run", "classify-text", words, "--train", folder / "train.tsv"))


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    folder = tmp_path_factory.mktemp("tags")
    sentences = ("\n".join(f"{w} {'B-PLACE' if w in 'bd' else 'O'}" for w in line.split()) for line in LINES)
    (folder / "train.conll").write_text("\n\n".join(sentences) + "\n")
    words = "--embedding 5 --characters 4 --hidden 6 --batch 64 --steps 2"
    return load_run(trained(folder / "run", "tag", words, "--train", folder / "train.conll"))


def report_of(loaded: LoadedRun, *test: str) -> ErrorReport:
    files = tuple(loaded.folder.parent / name for name in test)
    return error_report(loaded, loaded.config.Evaluate(test=files or None))


def page_data(report: ErrorReport) -> dict[str, object]:
    text = report.html()
    assert "<script>alert" not in text
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    return json.loads(block)


def test_classes(classifier: LoadedRun) -> None:
    report = report_of(classifier, "test.tsv", "more.tsv")
    assert [table.title for table in report.tables] == [
        "Classes", "Confusion matrix", "Most frequent confusions", "By length", "By file",
    ]  # fmt: skip
    assert len(report.examples) == 7
    matrix = report.tables[1]
    assert sum(int(cell or 0) for row in matrix.rows for cell in row[1:]) == 7
    by_file = report.tables[-1]
    assert [row[1] for row in by_file.rows] == ["5", "2"]
    mistakes = [each for each in report.examples if each.score < 100]
    assert [each.probability for each in report.worst] == sorted((m.probability for m in mistakes), reverse=True)
    data = page_data(report)
    drawn = [card["attention"] for card in data["cards"]]  # type: ignore[index,union-attr]
    assert all(each is None or len(each["keys"]) == len(each["weights"][0]) for each in drawn)
    assert any(drawn)
    rows = list(csv.DictReader(report.tsv().splitlines(), dialect="excel-tab"))
    assert len(rows) == 7
    assert {row["source"].rpartition("/")[2] for row in rows} == {"test.tsv", "more.tsv"}
    assert "1 with" not in report.text()


def test_spans(tagger: LoadedRun) -> None:
    report = report_of(tagger)
    assert report.kind == "spans"
    spans = [span for each in report.examples for span in (*each.missed, *each.wrong)]
    assert spans
    assert all(re.fullmatch(r"PLACE: .+ \(\d+–\d+\)", span) for span in spans)
    for each in report.examples:
        assert (each.score == 100) == (not each.missed and not each.wrong)
    (table, *_) = report.tables
    assert sum(int(cell) for row in table.rows for cell in row[1:]) == len(spans)
    page_data(report)


def test_translations(tmp_path: Path, regard: Regard, trained_pairs: Path) -> None:
    ran = regard("evaluate", trained_pairs, "--errors", tmp_path / "errors.html", "--beam", 1)
    assert ran.code == 0
    assert f"regard: the errors are in {tmp_path / 'errors.html'}\n" in ran.err
    text = (tmp_path / "errors.html").read_text(encoding="utf-8")
    data = json.loads(re.findall(r'id="data">(.*?)</script>', text)[0])
    card = data["cards"][0]
    assert card["score"] < 100
    assert len(card["attention"]["weights"]) == len(card["attention"]["queries"])


@pytest.fixture(scope="module")
def trained_pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "pairs.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in LINES))
    words = "--tokens words --width 6 --hidden 8 --batch 96 --schedule constant --steps 2"
    return trained(folder / "run", "translate", words, "--train", folder / "pairs.tsv")


def test_runs_are_compared(classifier: LoadedRun, tagger: LoadedRun, trained_pairs: Path, regard: Regard) -> None:
    options = classifier.config.Evaluate(test=(classifier.folder.parent / "test.tsv",))
    same = compare_runs(classifier, classifier, options)
    assert (same.changed, same.better, same.worse) == ([], 0, 0)
    assert same.significance.p == 1
    always = replace(same.pairs[0][0], output="bad", score=100.0)
    never = replace(always, output="good", score=0.0)
    better = replace(same, pairs=[(never, always)] * 12 + [(always, always)])
    assert better.significance.p == pytest.approx(2 / 2**12)
    assert better.significance.sentence == (
        "McNemar's exact test: 12 wrong outputs became right, 0 right ones wrong, p = 0.000488; "
        "the difference is significant"
    )
    warned = replace(same, second=replace(same.second, notes=("a remark", "Warning: it was trained on them")))
    assert warned.explain().endswith("\nsecond run: Warning: it was trained on them")
    with pytest.raises(ValueError, match="of classify-text, and .* of tag; compare runs of one task"):
        compare_runs(classifier, tagger, options)
    ran = regard("compare-runs", trained_pairs, trained_pairs, "--json", "--beam", 1)
    assert json.loads(ran.out)["test"] == "paired bootstrap of the mean chrF of a line"


def test_what_cannot_be_compared(
    classifier: LoadedRun, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = classifier.folder
    assert refused("compare-runs", run) == "regard compare-runs takes two runs, got 1; name two folders"
    assert refused("evaluate", run, "--errors", tmp_path / "a.pdf").startswith(
        "unknown suffix of --errors '.pdf'; known"
    )
    evaluate = LoadedRun.evaluate
    parts = iter(range(2))

    def cut(self: LoadedRun, *args: object) -> object:
        made = evaluate(self, *args)  # type: ignore[arg-type]
        examples = made.examples()[next(parts) :]
        return replace(made, examples=lambda: examples)

    with monkeypatch.context() as patch:
        patch.setattr(LoadedRun, "evaluate", cut)
        with pytest.raises(ValueError, match="hold out other examples, 6 and 5; give both the same by --test"):
            compare_runs(classifier, classifier, classifier.config.Evaluate())
    without = replace(classifier.evaluate(classifier.config.Evaluate(), lambda done, total: None), kind=None)
    monkeypatch.setattr(LoadedRun, "evaluate", lambda self, *args: without)
    with pytest.raises(
        ValueError, match="is a run of classify-text, whose errors are not listed; those of texts, pairs"
    ):
        error_report(classifier, classifier.config.Evaluate())
    with pytest.raises(
        ValueError, match="runs of classify-text are not compared by example; those that classify texts"
    ):
        compare_runs(classifier, classifier, classifier.config.Evaluate())


def test_formulas_are_texts() -> None:
    assert [safe_cell(text) for text in ("=1+1", "-a", "@x", "a=1", "")] == ["'=1+1", "'-a", "'@x", "a=1", ""]
    assert safe_cell("a\r=1") == "a =1"
