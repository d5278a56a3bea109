"""The benchmarks of translation, each at a size of seconds: they measure what they say and say what they measured."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import measured
from benchmarks.measured import About
from benchmarks.spent import Meter, Spent
from benchmarks.table import Bound
from benchmarks.timing import Spread
from benchmarks.training import Unfinished, train
from benchmarks.translation import __main__ as command_line, addition, decoding, growth, report, resume
from benchmarks.translation.cases import CASES, COMPARED, Case, command, select_cases
from benchmarks.translation.trained import Result, course, result
from tests.for_each import for_each

from regard.attn.call import NOTHING
from regard.cli.verbs import train as train_verb
from regard.common.json_files import with_checksum
from regard.tasks.translate.options import Translate
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.run_folder import BEST, LAST, METRICS, RunRecord, TrainingChange

ABOUT = About("2020-02-02", {"processor": "abacus", "load before": "0.1"}, {"torch": "2"})
TINY = TrainingConfig(steps=4, warmup=1, validate_every=2, save_every=2, log_every=2, threads=1, device="cpu")


def silent(text: str) -> None:
    pass


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs that holds one, "tiny", trained and judged by the command."""
    folder = tmp_path_factory.mktemp("translation")
    assert (
        command_line.main(["tiny", "--data", str(folder / "data"), "--runs", str(folder / "runs")], cases(folder)) == 0
    )
    return folder / "runs"


def cases(folder: Path) -> dict[str, Case]:
    task = resume.small(folder / "data", pairs=40)
    here = replace(task, train=(Path("train.tsv"),), valid=(Path("valid.tsv"),), metric="bleu")
    return {"tiny": Case("letters reversed", here, TINY, goals={"bleu": Bound("least", 200), "cpu": Bound("most", 5)})}


def tiny(runs: Path) -> Case:
    return cases(runs.parent)["tiny"].placed(runs.parent / "data")


# Cases


@for_each("name", CASES)
def test_every_case_can_be_trained(name: str) -> None:
    """Its model is built, at a small size, and every weight learns."""
    case = CASES[name]
    torch.manual_seed(0)
    sizes = {"width": 24} if case.task.model_name == "transformer" else {"width": 24, "hidden": 24}
    task = case.task.with_options(**sizes)
    model = task.model.build(13, 13, shared=True, max_length=task.max_length).train()
    lengths = torch.tensor([7, 5])
    output = model.teacher_force(torch.randint(4, 13, (2, 7)), lengths, torch.randint(4, 13, (2, 3)), NOTHING)
    loss = model.logits(output.states).square().mean()
    loss = loss if output.log_prob is None else loss + output.log_prob.mean()
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    assert case.needs_files == (case.task.dataset == "files")


def test_mechanisms_differ_in_nothing_but_the_attention() -> None:
    compared = [CASES[f"compare-{name}"] for name in COMPARED]
    assert len(compared) >= 9
    assert len({case.training for case in compared}) == 1
    assert len({case.task.with_options(attention="dot", decoder="luong") for case in compared}) == 1
    assert [case.task.model.attention for case in compared] == [None, *COMPARED[1:]]
    assert [case.task.model.decoder for case in compared] == ["fixed", *["luong"] * (len(COMPARED) - 1)]
    assert CASES["reverse"].training == CASES["reverse-none"].training


def test_cases_are_chosen_by_name_or_beginning() -> None:
    assert list(select_cases(["reverse"], CASES)) == ["reverse"]
    assert list(select_cases(["compare"], CASES)) == [f"compare-{name}" for name in COMPARED]


@for_each("name", ["dates", "reverse-none", "pronounce", "transformer", "compare-none", "compare-dot"])
def test_commands_are_the_cases(name: str) -> None:
    """Typed, they come to the same task and training."""
    case = CASES[name].placed(Path.cwd()) if CASES[name].needs_files else CASES[name]
    words = command(name, CASES[name]).split()
    assert words[:3] == ["regard", "train", "translate"]
    options = train_verb.parse_task(train_verb.TrainOptions, "regard train translate", Translate, words[3:])
    assert options.out == Path("runs") / name
    task = Translate(**options.task).with_absolute_paths()
    assert task == case.task
    assert train_verb.training_config(options.training, task) == (case.training, "")


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(["--list"]) == 0
    said = capsys.readouterr().out
    assert [line.split()[0] for line in said.splitlines()] == list(CASES)
    assert re.search(r"^additive .* ≥ 32 BLEU, ≤ 120 CPU minutes$", said, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["aditive"], "no training is called 'aditive'; did you mean additive?"),
        (["zzzzz"], "no training is called 'zzzzz'; --list prints the names"),
        ([], "name a training, or --report; --list prints the names"),
        (["additive"], "additive needs --data, the folder of Multi30k"),
    ],
)
def test_wrong_words(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command_line.main(arguments)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err


# Time


def test_time_is_summed_over_processes(tmp_path: Path) -> None:
    assert Spent.of(tmp_path) is None
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/0.jsonl").write_text('{"step": 2, "cpu": 3.0}\n{"step": 4, "cpu": 5.0}\n{"step": 6, "cp')
    # killed after step 4, gone on from step 2
    (tmp_path / "cpu/1.jsonl").write_text('{"step": 4, "cpu": 2.0}\n{"step": 6, "cpu": 4.5}\n')
    assert Spent.of(tmp_path) == Spent(9.5, {2: 3.0, 4: 7.0, 6: 9.5})
    (tmp_path / "cpu.json").write_text('{"seconds": 10.0}')
    assert Spent.of(tmp_path) == Spent(19.5, {2: 13.0, 4: 17.0, 6: 19.5})
    (tmp_path / "cpu.json").write_text('{"seconds": 10.0, "steps": [[1, 8.0]]}')
    assert Spent.of(tmp_path) == Spent(19.5, {1: 8.0, 2: 13.0, 4: 17.0, 6: 19.5})


def test_a_meter_writes_as_it_goes(tmp_path: Path) -> None:
    for number in range(2):
        meter = Meter(tmp_path)
        first = meter.note(1)
        assert json.loads((tmp_path / f"cpu/{number}.jsonl").read_text())["cpu"] == round(first, 3)
        assert meter.note(2) >= first
        meter.close()
    spent = Spent.of(tmp_path)
    assert list(spent.steps) == [1, 2]


# Training and judging


def test_a_case_from_nothing_to_its_result(runs: Path) -> None:
    found = Result.read(runs / "tiny")
    assert (found.case, found.steps, found.threads, found.lines) == ("tiny", 4, 1, 20)
    assert found.best_step in (2, 4)
    assert found.scores.keys() == {"greedy", "beam 5"}
    assert found.scores["beam 5"].keys() == {"bleu", "chrf"}
    assert found.cpu_seconds is not None
    assert 0 < found.cpu_seconds < 120
    assert found.verdict(tiny(runs)) == "falls short"
    assert len(found.samples) == 5
    assert len([*(runs / "tiny/cpu").iterdir()]) == 1


def test_what_is_done_is_not_done_again(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, case = runs / "tiny", tiny(runs)
    before = (run / "result.json").read_text()
    weights = (run / LAST).read_bytes()
    heard: list[str] = []
    found = result("tiny", case, run, heard.append)
    assert heard == []
    # judged again, not trained: fit says that nothing is left, and no time is counted for it
    (run / "result.json").unlink()
    again = result("tiny", case, run, heard.append)
    assert any("nothing is left to train: step 4 of 4 is done" in text for text in heard)
    assert heard[-1] == "tiny: evaluating"
    assert replace(again, about=found.about) == found
    assert (run / LAST).read_bytes() == weights
    (run / "result.json").write_text(before)


def test_a_run_trained_by_other_means_is_judged(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "other"
    run.mkdir()
    for path in (runs / "tiny").iterdir():
        if path.is_file() and path.name != "result.json":
            (run / path.name).write_bytes(path.read_bytes())
    case = tiny(runs)
    assert result("other", case, run, silent).verdict(case) == "falls short"
    easy = replace(case, goals={"cpu": Bound("most", 5)})
    assert result("other", easy, run, silent).reached(easy) == "CPU minutes not counted"
    assert result("other", easy, run, silent).verdict(easy) == "not counted"
    assert course(run) == {}
    (run / "cpu.json").write_text('{"seconds": 90}')
    assert result("other", easy, run, silent).reached(easy) == "1.5 CPU minutes"
    assert result("other", easy, run, silent).verdict(easy) == "reached"
    # the time is spread over the steps as the clock was
    found = course(run)
    assert found["learnt"][-1][0] == 1.5
    assert len(found["bleu"]) == 2
    assert not (run / "cpu").exists()


def test_a_run_that_was_stopped_goes_on_and_its_time_adds_up(runs: Path, tmp_path: Path) -> None:
    case, run = tiny(runs), tmp_path / "run"
    train("run", case.task, replace(TINY, steps=2), run, silent)
    first = Spent.of(run)
    found = result("run", case, run, silent)
    assert found.cpu_seconds is not None
    assert found.cpu_seconds > first.seconds
    assert [path.name for path in sorted((run / "cpu").iterdir())] == ["0.jsonl", "1.jsonl"]
    # to stop and to go on made no difference
    ours, theirs = (checkpoint.read(one / LAST).tensors for one in (run, runs / "tiny"))
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    # a case that became longer is not what was judged
    longer = replace(case, training=replace(TINY, steps=6))
    assert result("run", longer, run, silent).steps == 6


def test_another_task_in_the_folder_is_refused(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = tiny(runs)
    assert command_line.run({"tiny": replace(case, task=case.task.with_options(width=8))}, runs) == 1
    assert re.search("tiny: width was 16 when .* began and is 8 now", capsys.readouterr().err)


def test_an_interrupted_training_is_told(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import training

    from regard.training.events import Stopped

    monkeypatch.setattr(training, "fit", lambda *_, **__: [Stopped(1, "interrupted", "interrupted after step 1")])
    with pytest.raises(Unfinished, match="interrupted after step 1"):
        train("run", tiny(runs).task, TINY, tmp_path / "run", silent)


# Kills


@pytest.mark.whole
def test_kills_change_nothing(tmp_path: Path) -> None:
    training = replace(resume.TRAINING, steps=40, validate_every=16)
    found = resume.measure(tmp_path, kills=3, training=training, pairs=40, say=silent)
    assert (found.kills, found.broken, found.different, found.verdict) == (3, [], [], "reached")
    assert found.trainings >= 1
    assert "| 3 |" in resume.table(found)
    assert "the same bits" in resume.table(found)
    measured.write(tmp_path / "resume/result.json", found)
    assert resume.read(tmp_path) == found


def test_damage_and_difference_are_seen(runs: Path, tmp_path: Path) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    for folder in (run, other):
        folder.mkdir()
        for name in (LAST, BEST, METRICS):
            (folder / name).write_bytes((runs / "tiny" / name).read_bytes())
    assert resume.different(run, other) == []
    kills = resume.Kills()
    (run / f".{LAST}.unfinished").write_bytes(b"half")
    assert kills.look(run, 2) == 4
    assert (kills.count, kills.while_writing, kills.read, kills.broken) == (1, 1, 3, [])
    assert kills.look(run, 5) == 4
    assert kills.broken == ["kill 2: last.safetensors went back from step 5 to 4"]
    stored = checkpoint.read(run / LAST)
    name = next(name for name, t in stored.tensors.items() if t.is_floating_point() and t.numel() > 1)
    stored.tensors[name].view(-1)[0] += 1e-3
    checkpoint.write(run / LAST, stored, stored.facts)
    (run / METRICS).write_text('{"kind": "step", "step": 1}\n')
    (run / "left.unfinished").touch()
    said = "\n".join(resume.different(run, other))
    assert re.search(r"files: .*unfinished.*\nlast.safetensors: 1 of \d+ tensors\nmetrics.jsonl", said)
    (run / LAST).write_bytes(b"half")
    kills.look(run, 4)
    assert "kill 3: last.safetensors" in kills.broken[-1]
    (run / LAST).unlink()
    kills.look(run, 4)
    assert (kills.before_first, kills.broken[-1]) == (1, "kill 4: last.safetensors is gone")


def test_a_training_that_fails_is_no_kill(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the training in .* failed with code 1; its error is above"):
        resume.Trainer(Translate.of(train=(tmp_path / "none.tsv",)), TINY).run(tmp_path / "run")


@pytest.mark.parametrize("module", [resume, decoding])
def test_counts_are_positive(module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    option = {resume: ["--kills", "0"], decoding: ["run", "--lines", "0"]}[module]
    with pytest.raises(SystemExit):
        module.main(option)
    assert "must be 1 or more, got 0" in capsys.readouterr().err


# Growth


def test_fewer_pairs_are_the_beginning_of_more() -> None:
    some, more, others = list(growth.lines(5, 1)), list(growth.lines(7, 1)), list(growth.lines(5, 2))
    assert more[:5] == some
    assert some != others
    assert [len(a.split()) for a in some] == [len(b.split()) for b in others]
    assert all(10 <= len(line.split()) <= 30 for line in more)


@pytest.mark.whole
def test_growth_in_memory_and_in_files(tmp_path: Path) -> None:
    train, valid = growth.files(tmp_path, 60), growth.files(tmp_path, 20)
    grown = growth.Grown()
    grown.load([*map(str, train)], [*map(str, valid)], str(tmp_path / "run"), None)
    grown.train(2)
    grown.train(2)
    small = growth.Size(**grown.tell())
    assert len(small.rates) == 1
    assert (small.pairs, small.mapped) == (60, False)
    assert small.arrays == pytest.approx((4 * small.tokens + 2 * 8 * 61) / 1e6)
    assert 0 < small.own < small.reading_peak + 1000
    assert small.beyond == small.own - small.arrays
    found = growth.measure([120], 40, mapped=100, say=silent)
    (size,) = found.sizes
    assert (size.pairs, size.mapped) == (120, True)
    assert size.beyond == size.own
    both = replace(found, sizes=[small, size])
    assert found.bytes_per_pair is None
    assert found.verdict == "reached"
    assert both.bytes_per_pair == pytest.approx(1e6 * (size.beyond - small.beyond) / 60)
    steady = replace(small, rates=[1.0, 10.0, 2.0])
    assert replace(found, sizes=[steady, replace(steady, rates=[0.9, 8.0, 1.9])]).evenness == pytest.approx(0.9)
    assert growth.table(both).count("\n") == 4
    assert "bytes per pair" in growth.summary(both)
    measured.write(tmp_path / "growth/result.json", both)
    assert growth.read(tmp_path) == both


def test_growth_needs_steps_to_look_at() -> None:
    with pytest.raises(ValueError, match="steps must be a multiple of 20, at least 40, got 30; try steps=400"):
        growth.measure([10], 30)


# Decoding


def test_together_and_one_by_one_say_the_same(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert decoding.main([str(runs / "tiny"), "--lines", "7", "--rounds", "2"]) == 0
    found = decoding.read(runs / "tiny")
    assert (found.run, found.lines, found.different) == ("tiny", 7, found.tied)
    assert found.together > 0
    assert "≥ 6 ×" in capsys.readouterr().out
    record = {**json.loads((runs / "tiny/run.json").read_text()), "task": "other"}
    (tmp_path / "run.json").write_bytes(with_checksum(record))
    assert decoding.main([str(tmp_path)]) == 1
    assert "is a run of other, which does not translate; name another" in capsys.readouterr().err
    slow = replace(found, ratio=Spread(5.9, 5, 6), different=0, tied=0)
    assert slow.verdict == "falls short"
    assert replace(slow, ratio=Spread(6.0, 5, 7)).verdict == "reached"
    assert replace(slow, ratio=Spread(6.0, 5, 7), different=2, tied=1).verdict == "falls short"


# The report


def fake(case: str, bleu: float, cpu: float | None = 60.0) -> Result:
    scores = {search: {"bleu": bleu - shift, "chrf": 50.0} for search, shift in (("greedy", 1.0), ("beam 5", 0.0))}
    return Result(case, ABOUT, {"torch": "2"}, 1, 1_000_000, 682, 341, cpu, 99.0, 1014, scores, [])


def test_the_report_of_nothing(tmp_path: Path) -> None:
    dated, page = report.write(
        tmp_path, CASES, results=tmp_path / "results", page=tmp_path / "page.md", images=tmp_path / "images", date="x"
    )
    assert dated.name == "translation-x.md"
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# Translation results\n")
    assert "Not run: dates, reverse," in text
    assert "resume, growth, decoding, joeynmt." in text
    assert "## Trainings" not in text
    peers = tmp_path / "results" / "joeynmt"
    peers.mkdir()
    for day, ratio in (("2026-01-02", "2.0×"), ("2026-01-10", "3.0×")):
        (peers / f"{day}.md").write_text(f"# Beside JoeyNMT\n\n- {ratio}\n", encoding="utf-8")
    again = report.Report(tmp_path, CASES, peers).body()
    assert "## Comparison with JoeyNMT\n\n- 3.0×\n" in again
    assert "2.0×" not in again


def test_the_report_of_fake_results(tmp_path: Path) -> None:
    for name, bleu in (("additive", 33.3), ("transformer", 36.0), ("compare-dot", 9.0), ("compare-none", 4.5)):
        run = tmp_path / name
        fake(name, bleu).write(run)
        (run / "cpu.json").write_text('{"seconds": 600, "steps": [[50, 60], [100, 120]]}')
        lines = [
            {"kind": "step", "step": 50, "loss": 5.5, "nll": 5.0, "elapsed": 61.0},
            {"kind": "validation", "step": 100, "bleu": bleu, "nll": 3.5, "improved": True},
            {"kind": "step", "step": 100, "loss": 4.5, "nll": 4.0, "elapsed": 122.0},
        ]
        (run / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    kills = resume.Result(ABOUT, 100, 8, 12, 3, 400, [], [], 99.0)
    measured.write(tmp_path / "resume/result.json", kills)
    size = growth.Size(30_000, 600_000, 4.8, False, 700, 3.0, 400.0, 300.0, 90.0, [20.0], 800.0)
    larger = replace(size, pairs=300_000, arrays=48.0, own=350.0, rates=[19.0])
    measured.write(tmp_path / "growth/result.json", growth.Result(ABOUT, 400, [size, larger]))
    decoded = decoding.Result(ABOUT, "additive", 1000, 50.0, 5.0, Spread(9.5, 9.0, 10.0), 0, 0)
    measured.write(tmp_path / "additive/decoding.json", decoded)
    written = report.write(
        tmp_path, CASES, results=tmp_path / "results", page=tmp_path / "page.md", images=tmp_path / "images", date="x"
    )
    assert all(path.stat().st_size for path in written)
    assert [path.name for path in written[2:]] == [
        "translation-bleu.png",
        "translation-loss.png",
        "translation-compare.png",
    ]
    text = written[1].read_text(encoding="utf-8")
    assert "- date: 2020-02-02\n- processor: abacus\n- torch 2\n" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    (additive,) = (row for row in rows if row.startswith("| `additive`"))
    assert "≥ 32 BLEU, ≤ 120 CPU minutes | 33.3 BLEU, 10.0 CPU minutes (beam 5) | reached" in additive
    (transformer,) = (row for row in rows if row.startswith("| `transformer`"))
    assert "| falls short |" in transformer
    assert "| dot | 9.0 | 8.0 | 50.0 | 10.0 |\n| none | 4.5" in text
    assert "| 100 | 8 | 12 | 3 | 400 | 0 | the same bits in all of them |" in text
    assert "| 30,000 | 0.60 million | 4.8 MB, in memory | 20.0 | 300 MB | 295 MB | 400 MB | 3 s |" in text
    assert "95 % of the steps per CPU second" in text
    assert "| additive | 1,000 | 50.0 | 5.0 | 9.5 × [9.0, 10.0] | the same | ≥ 6 ×, the same | reached |" in text
    assert "Not run: dates, reverse, reverse-none, pronounce, conv, compare-additive" in text
    assert "\nregard train translate --train train.en.gz train.de.gz --valid val.en val.de --vocabulary 6000" in text
    assert "![BLEU of validations against CPU minutes](images/translation-bleu.png)" in text
    # the dated file stands where there are no pictures
    assert "![" not in written[0].read_text(encoding="utf-8")


def test_a_training_is_added_to_the_page(tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", tmp_path / "results"
    page.write_text("# Translation results\n\nfirst\n\n## Mechanisms at equal budget\n\nlast\n", encoding="utf-8")
    with pytest.raises(ValueError, match="conv has no result in .*; train it first: leave --add out"):
        addition.add(tmp_path, ["conv"], CASES, results=results, page=page)
    run = tmp_path / "conv"
    for bleu in (30.0, 35.0):
        fake("conv", bleu).write(run)
        config = CASES["conv"].task
        before = RunRecord.of(config, replace(CASES["conv"].training, epochs=3))
        replace(before, history=(*before.history, TrainingChange(500, CASES["conv"].training))).write(run)
        written = addition.add(tmp_path, ["conv"], CASES, results=results, page=page, date="x")
    assert [path.name for path in written] == ["translation-conv-x.md", "page.md"]
    text = page.read_text(encoding="utf-8")
    assert text.count("## Trainings that were added: conv") == text.count("| `conv` |") == 1
    assert "≥ 34 BLEU, ≤ 120 CPU minutes | 35.0 BLEU" in text
    assert "`conv` was trained with epochs=3 until step 500 and with epochs=" in text
    assert text.index("first") < text.index("--model conv") < text.index("## Mechanisms at equal budget")
    assert text.endswith("## Mechanisms at equal budget\n\nlast\n")
    assert "35.0 BLEU" in written[0].read_text(encoding="utf-8")


def test_results_of_several_machines_are_told_apart(tmp_path: Path) -> None:
    fake("additive", 33.0).write(tmp_path / "additive")
    elsewhere = replace(ABOUT, date="2020-02-03", machine={"processor": "slide rule"})
    replace(fake("transformer", 38.0), about=elsewhere).write(tmp_path / "transformer")
    said = measured.conditions(report.Report(tmp_path, CASES, tmp_path).abouts())
    assert "- date: 2020-02-02 to 2020-02-03\n" in said
    assert "- additive: processor: abacus" in said
    assert "- transformer: processor: slide rule" in said
