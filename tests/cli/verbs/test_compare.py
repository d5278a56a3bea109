"""regard compare: trainings, here in this process; a table, a plot, and resuming."""

import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from tests.cli.conftest import TINY, Refused, Regard
from tests.comparisons import train_in_process
from tests.for_each import for_each

from regard.attn.catalogue import MECHANISMS
from regard.attn.stepwise import part_without_steps
from regard.cli.main import main
from regard.cli.verbs.compare import split_values, split_variants
from regard.cli.verbs.train import TrainOptions, parse_task
from regard.experiments import comparison
from regard.experiments.comparison import check, with_seeds
from regard.tasks.base import TaskConfig
from regard.tasks.registry import TASKS
from regard.tasks.translate.options import Translate
from regard.training.config import TrainingConfig
from regard.training.run_folder import write_config

COMPARE = ["compare", "translate"]


def test_a_table_a_plot_and_the_same_command_again(
    regard: Regard, refused: Refused, pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "_process", train_in_process)
    out = tmp_path / "out"
    args = [*COMPARE, "--train", pairs, *TINY, "--steps", 2, "--log-every", 1, "--validate-every", 1, "--out", out]
    ran = regard(*args, "--attention", "dot,none")
    assert ran.code == 0, ran.err
    assert "regard: none\n" in ran.err
    assert ran.err.count("Step 2 of 2 is done.") == 2
    table = (out / "table.md").read_text(encoding="utf-8")
    assert ran.out.startswith(table)
    assert "seq2seq on pairs.tsv, 2 steps each; the best validation, by bleu" in table
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert (
        " | ".join(rows[0])
        == "attention | bleu | chrf | nll | target tokens/s | parameters | peak memory | time | steps"
    )
    assert {row[0] for row in rows[2:]} == {"dot", "none"}
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    for name in ("dot", "none"):
        assert results[name]["peak_bytes"] > 1e8
        assert results[name]["steps"] == 2
        assert (out / name / "best.safetensors").exists()
    assert results["dot"]["parameters"] != results["none"]["parameters"]
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")

    # the same command again: no training, the same output
    before = (out / "dot" / "last.safetensors").stat().st_mtime_ns
    again = regard(*args, "--attention", "none,dot")
    assert again.code == 0
    assert "dot is trained already" in again.err
    assert again.out == ran.out
    assert json.loads(regard(*args, "--attention", "none,dot", "--json").out) == results
    assert (out / "dot" / "last.safetensors").stat().st_mtime_ns == before

    # a damaged log of metrics
    (out / "dot" / "metrics.jsonl").write_text("{", encoding="utf-8")
    assert f"remove {out / 'dot'}, and it is trained again" in refused(*args, "--attention", "none,dot")

    # other options belong into another folder
    sentence = f"{out} holds a comparison with lr 0.001, not 0.5; give the same options, or another folder"
    assert refused(*args, "--attention", "dot", "--lr", 0.5) == sentence


def test_every_trainable_mechanism_can_be_compared() -> None:
    base = Translate.of(data="reverse", width=6, hidden=8)
    names = [
        name for name, make in MECHANISMS.items() if part_without_steps(make(6, 6)) is None and name != "hard-argmax"
    ]
    check(base.variants(split_values("attention", ",".join([*names, "none"]))))


@for_each(
    ("words", "sentence"),
    {
        "": "nothing to compare; name the values of --attention, or of another option of the task",
        "--decoder": "--decoder needs a value behind it",
        "--decoder fixed luong": "regard compare translate takes no words beside its options, got 1; give",
        "--attention dot,co-attention": "co-attention cannot be compared:",
        "--attention dot,bidaf": "bidaf cannot be compared:",
        "--attention dot,hard-argmax": "--attention hard-argmax cannot be learned, since no gradient goes through its "
        "choice; try --attention hard, which learns by its rewards, 'gumbel' or 'straight-through'",
        "--attention dot,sparsmax": "sparsmax cannot be compared: unknown --attention 'sparsmax'; did you mean",
        "--attention dot,dot": "--attention names 'dot' twice; name each once",
        "--attention dot,": "a value of --attention is empty, got 'dot,'; name values with one comma between",
        "--attention dot --decoder fixed": "--decoder fixed does not attend, so there is nothing",
        "--attention dot --decoder luong,fixed": "--decoder fixed does not attend, so there is nothing",
        "--attention none --model transformer": "a transformer cannot do without attention; leave none out, or take "
        "--model seq2seq",
        "--attention dot+entmax --model transformer --heads 3 --width 6": "dot+entmax cannot",
        "--attention dot,entmax --positions t5,shaw --model transformer": "--attention and --positions both name "
        "several values; vary one, and give the other one value",
        "--positions t5,shaw": "--positions t5 belongs to --model transformer or conv, not to seq2seq; leave it out or",
        "--lr 0.1,0.2": "--lr 0.1,0.2 names several values, and all trainings of a comparison have the same; give it "
        "one, and vary --attention, or another option of the task or its model",
        "--dropout 0.1,0.3,0.10": "--dropout names 0.1 and 0.10, which are the same; name each once",
        "--attention dot --seeds 99999999999999999999": "--seeds must be from 1 to 1000, got 99999999999999999999",
        "--heads 1,2 --width 8,16": "--heads and --width both name several values; vary one",
        "--data dates,reverse --attention dot,entmax": "--data is given twice",
        "--model transformer --positions t5,shav": "unknown --positions 'shav'; did you mean 'shaw'",
    }.items(),
)
def test_bad_variants_raise_before_any_training(words: str, sentence: str, refused: Refused, tmp_path: Path) -> None:
    assert sentence in refused(*COMPARE, "--data", "reverse", *words.split(), "--out", tmp_path / "out", "--steps", 1)
    assert not (tmp_path / "out").exists()


def test_the_folder_of_a_comparison_is_no_file(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    words = ("--data", "reverse", "--attention", "dot", "--out", tmp_path / "out", "--steps", 1)
    sentence = f"--out {tmp_path / 'out'} is a file, and a comparison is a folder; take another name"
    assert refused(*COMPARE, *words) == sentence


def test_heads_of_a_transformer() -> None:
    base = Translate.of(data="reverse", model="transformer", heads=2, width=8)
    tasks = base.variants(split_values("attention", "dot+entmax,additive"))
    assert {name: task.model.attention for name, task in tasks.items()} == {
        "dot+entmax": "dot,entmax",
        "additive": "additive",
    }
    check(tasks)


def recreated(variant: TaskConfig, path: Path) -> TaskConfig:
    """The variant as `regard train` makes it of its file of options."""
    write_config(path, variant, TrainingConfig(steps=1))
    prog = f"regard train {variant.name}"
    return type(variant)(**parse_task(TrainOptions, prog, type(variant), ["--config", str(path)]).task)


def test_a_file_of_options_recreates_a_variant(tmp_path: Path) -> None:
    seq2seq = Translate.of(data="reverse", width=6, hidden=8, decoder="luong", attention="dot")
    transformer = Translate.of(data="reverse", model="transformer", heads=2, width=8)
    compared: list[tuple[TaskConfig, str]] = [(seq2seq, "additive,none"), (transformer, "dot+entmax,additive")]
    compared += [
        (TASKS["agent"].of(env="pairs"), "lstm,dot,none"),
        (TASKS["caption"].of(), "soft,hard"),
        (TASKS["classify-image"].of(), "se,none"),
        (TASKS["classify-text"].of(), "dot,bag-of-words"),
        (TASKS["generate-image"].of(), "half,none"),
        (TASKS["glimpse"].of(), "2,4"),
        (TASKS["tag"].of(), "dot,none"),
    ]
    for base, values in compared:
        for variant in with_seeds(base.variants(split_values(base.varies, values)), 2).values():
            assert recreated(variant, tmp_path / "variant.toml") == variant


class TranslateWithBaseline(Translate):
    """A task whose comparisons have a baseline: a variant that differs in more than the varied option."""

    def variants(self, values: Sequence[str]) -> dict[str, Self]:
        baseline = TranslateWithBaseline.of(data="reverse", model="transformer", heads=2, width=self.model.width)
        return {**super().variants(values), "baseline": baseline}


def test_a_baseline_is_a_row_of_the_table(
    tmp_path: Path, pairs: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    base = TranslateWithBaseline.of(data="reverse", width=6, hidden=8)
    variants = base.variants(["dot"])
    for variant in variants.values():
        assert recreated(variant, tmp_path / "variant.toml") == variant
    monkeypatch.setitem(TASKS, "translate", TranslateWithBaseline)
    monkeypatch.setattr(comparison, "_process", train_in_process)
    sizes = ["--width", "6", "--hidden", "8", "--batch", "96", "--threads", "1", "--tokens", "words"]
    args = [*COMPARE, "--train", str(pairs), *sizes, "--steps", "1", "--attention", "dot"]
    assert main([*args, "--out", str(tmp_path / "out")]) == 0, capfd.readouterr().err
    table = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert {line.split()[1] for line in table.splitlines()[4:]} == {"dot", "baseline"}


def variants_of(task: str, *words: str) -> tuple[TaskConfig, dict[str, TaskConfig]]:
    """The task without the varied option, and its variants."""
    _, _, base, variants = split_variants(TASKS[task], words)
    return base, variants


def test_any_option_of_names_or_numbers_can_be_varied() -> None:
    """One value of the option that the task compares most often holds for all."""
    transformer = ("--data", "reverse", "--model", "transformer", "--width", "8")
    base, variants = variants_of("translate", *transformer, "--positions", "half-wave,rotary, alibi")
    assert base.model.positions == "sinusoidal"
    assert [(name, task.model.positions) for name, task in variants.items()] == [
        (name, name) for name in ("half-wave", "rotary", "alibi")
    ]
    base, variants = variants_of("translate", *transformer, "--attention", "entmax", "--positions=t5,shaw")
    assert base.model.attention == "entmax"
    options = [(task.model.attention, task.model.positions) for task in variants.values()]
    assert options == [("entmax", "t5"), ("entmax", "shaw")]
    base, variants = variants_of("translate", *transformer, "--attention", "dot,entmax", "--positions", "none")
    assert [*variants] == ["dot", "entmax"]
    assert {task.model.positions for task in variants.values()} == {base.model.positions} == {"none"}
    base, variants = variants_of("translate", "--data", "reverse", "--hidden", "8,12", "--decoder", "luong")
    assert [(name, task.model.hidden) for name, task in variants.items()] == [("8", 8), ("12", 12)]
    check(variants)


def test_decoders_and_models_bring_defaults_of_their_own() -> None:
    _, variants = variants_of("translate", "--data", "reverse", "--decoder", "fixed,bahdanau,luong")
    attention = {name: task.model.attention for name, task in variants.items()}
    assert attention == {"fixed": None, "bahdanau": "additive", "luong": "general"}
    base, variants = variants_of("translate", "--data", "reverse", "--model", "transformer,conv")
    assert base == variants["transformer"]
    assert [task.model_name for task in variants.values()] == ["transformer", "conv"]


@pytest.mark.parametrize(
    ("exit_code", "code", "sentence"),
    [
        (130, 130, "interrupted while dot was trained; resume with the same command: regard compare translate --train"),
        (-9, 1, "the training of dot failed with exit code -9; its own error stands above"),
        # the training has printed its sentence below the name of the variant, and no second one follows
        (2, 2, "dot"),
    ],
)
def test_a_training_that_ends_early_is_reported(
    exit_code: int, code: int, sentence: str, regard: Regard, pairs: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("regard.experiments.comparison._process", lambda args: exit_code)
    ran = regard(*COMPARE, "--train", pairs, *TINY, "--steps", 2, "--attention", "dot,none", "--out", tmp_path / "out")
    assert ran.code == code
    assert ran.err.splitlines()[-1].startswith(f"regard: {sentence}")
    assert not (tmp_path / "out").exists()  # no training has begun


def test_a_signal_ends_the_training_too(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[int] = []

    class Training:
        """Its parent gets a SIGTERM while it waits for the end."""

        def __init__(self, *args: Any, **options: Any) -> None: ...

        def wait(self) -> int:
            if not received:
                signal.raise_signal(signal.SIGTERM)
            return 130

        def send_signal(self, number: int) -> None:
            received.append(number)

    monkeypatch.setattr("subprocess.Popen", Training)
    assert comparison._process(["train", "nothing"]) == 130
    assert received == [signal.SIGTERM]


@for_each(("content", "cause"), [("{", ""), ("[]", "it must be results by name"), ("[" * 100_000, "")], ids=len)
def test_damaged_results(refused: Refused, pairs: Path, tmp_path: Path, content: str, cause: str) -> None:
    (tmp_path / "results.json").write_text(content, encoding="utf-8")
    sentence = refused(*COMPARE, "--train", pairs, *TINY, "--steps", 2, "--attention", "dot", "--out", tmp_path)
    assert sentence.startswith(f"{tmp_path / 'results.json'} cannot be read ({cause}")
    assert sentence.endswith("); remove it, and every training is checked again")


def test_trainings_import_no_file_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "msgspec.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "stderr").open("w") as stderr:
        monkeypatch.setattr("sys.stderr", stderr)
        assert comparison._process(["train", "nothing"]) == 2
    assert not (tmp_path / "ran").exists()
