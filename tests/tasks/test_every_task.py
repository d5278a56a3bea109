"""Every task that is listed: train, stop, resume, evaluate, predict, record, view, compare, serve, help, wrong options.

All in this process; a new task is tested by one line in `tests/tasks/cases.py`.
"""

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from tests.product import first
from tests.serve.conftest import visit
from tests.tasks.cases import CASES, request_body, task_of, with_paths, write_files
from tests.tasks.laws import check_loss, check_picture, check_predictions

import regard
from regard.attacks.text.victim import TextVictim
from regard.cli.main import main
from regard.common import checksums
from regard.experiments.attention_properties import attention_properties
from regard.inference.edited_text import EditedText
from regard.inference.embedding_gradient import embedding_gradient
from regard.inference.limits import Limits
from regard.inference.predictor import labelled_recording, predict_recorded
from regard.tasks.base import NoOptions, TaskConfig
from regard.tasks.language_model.options import GenerateText, LanguageModelConfig
from regard.tasks.loading import load_run
from regard.tasks.registry import TASKS, read_config
from regard.training.checkpoint import read
from regard.training.config import TrainingConfig
from regard.training.events import Started
from regard.training.fit import fit
from regard.training.run_folder import RunRecord

every_case = pytest.mark.parametrize("name", CASES)
# laws of a task that do not depend on its model: the other models are for --whole
every_task = pytest.mark.parametrize(
    "name", [name if name in TASKS else pytest.param(name, marks=pytest.mark.whole) for name in CASES]
)
ATTACKED = [
    name for name in CASES if TASKS[task_of(name)].input_kind == "text" and TASKS[task_of(name)].Attack is not NoOptions
]
STEPS = ["--threads", "1", "--device", "cpu", "--validate-every", "2", "--log-every", "1", "--warmup", "1"]


def config_of(name: str) -> type[TaskConfig]:
    return TASKS[task_of(name)]


def test_no_task_is_left_out() -> None:
    assert {task_of(name) for name in CASES} == set(TASKS)
    assert [config.name for config in TASKS.values()] == list(TASKS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tasks")
    write_files(path)
    return path


@pytest.fixture(scope="module")
def trained(folder: Path) -> Callable[[str], Path]:
    """The run of a task after two steps; tests read it and leave it as it is."""

    def run(name: str) -> Path:
        path = folder / name
        if not path.exists():
            train(name, folder, path, 2)
        return path

    return run


def train(name: str, folder: Path, path: Path, steps: int) -> None:
    options = with_paths(CASES[name].options, folder)
    assert main(["train", task_of(name), *options, *STEPS, "--steps", str(steps), "--out", str(path)]) == 0


def inputs(name: str, folder: Path) -> list[str]:
    return [with_paths(given, folder)[0] if given in ("IMAGE", "SOUND") else given for given in CASES[name].inputs]


def targets(name: str, folder: Path) -> list[Any]:
    return [str(folder / "random.png") if target == "IMAGE" else target for target in CASES[name].targets]


def weights(path: Path) -> dict[str, torch.Tensor]:
    return read(path / "last.safetensors").tensors


@every_case
def test_a_resumed_run_is_an_uninterrupted_one(
    name: str, trained: Callable[[str], Path], folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    train(name, folder, run, 1)
    assert main(["train", "--resume", str(run), "--steps", "2"]) == 0
    once, twice = weights(trained(name)), weights(run)
    assert once.keys() == twice.keys()
    assert all(torch.equal(once[key], twice[key]) for key in once)
    for path in (trained(name) / "samples").glob("*"):
        assert path.read_bytes() == (run / "samples" / path.name).read_bytes()


@every_task
def test_python_leaves_the_files_of_the_command_line(name: str, trained: Callable[[str], Path], tmp_path: Path) -> None:
    run = trained(name)
    record = RunRecord.read(run)
    *_, last = fit(read_config(run), tmp_path / "run", record.training)
    assert last.reason == "done"
    files = [{str(path.relative_to(each)) for path in each.rglob("*")} for each in (run, tmp_path / "run")]
    # the test image lies in the folder of runs, not in a run
    assert files[0] == files[1]
    assert {"run.json", "config.toml", "memory.json", "metrics.jsonl", "last.safetensors"} <= files[1]
    assert set(config_of(name).run_files) & files[1]
    assert (run / "config.toml").read_text() == (tmp_path / "run" / "config.toml").read_text()
    again = RunRecord.read(tmp_path / "run")
    assert (again.task, again.options, again.training) == (record.task, record.options, record.training)


@every_task
def test_the_record_and_the_config_hold_every_option(name: str, trained: Callable[[str], Path], tmp_path: Path) -> None:
    run = trained(name)
    record, config = RunRecord.read(run), read_config(run)
    assert record.task == task_of(name)
    own = {item.name for item in fields(config)}  # type: ignore[arg-type]
    assert record.options.keys() == own
    assert record.options["model"].keys() == {"name", *(item.name for item in fields(config.model))}
    assert type(config).from_json(record.options) == config
    out = tmp_path / "again"
    args = ["train", task_of(name), "--config", str(run / "config.toml"), "--out", str(out)]
    assert main(args) == 0
    assert RunRecord.read(out).options == record.options
    expected = weights(run)
    assert all(torch.equal(t, expected[key]) for key, t in weights(out).items())


@every_task
def test_a_new_run_overwrites_nothing(
    name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in config_of(name).run_files:
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        given = with_paths(CASES[name].options, folder)
        assert main(["train", task_of(name), *given, "--steps", "1", "--out", str(tmp_path)]) == 2
        assert f"has a file {file}, which a training would write over" in capsys.readouterr().err
        assert path.read_text() == "mine"
        assert [entry for entry in tmp_path.rglob("*") if entry.is_file()] == [path]
        path.unlink()


@every_task
def test_init_from_starts_with_the_weights_of_an_earlier_run(
    name: str, trained: Callable[[str], Path], folder: Path, tmp_path: Path
) -> None:
    """The source is deleted after the start: neither resuming nor loading needs it."""
    source, once, twice = tmp_path / "source", tmp_path / "once", tmp_path / "twice"
    shutil.copytree(trained(name), source)
    given = with_paths(CASES[name].options, folder)
    # data, and the length of a training that precedes the first step
    kept = [word for n in range(0, len(given), 2) if given[n] in ("--train", "--judge") for word in given[n : n + 2]]
    options = ["--batch", "32", *kept, "--init-from", str(source), *STEPS]
    for out, steps in ((once, 2), (twice, 1)):
        assert main(["train", task_of(name), *options, "--steps", str(steps), "--out", str(out)]) == 0
    record = RunRecord.read(once)
    assert (record.initial.run, record.initial.weights) == (str(source), "best.safetensors")
    assert record.initial.checksum == checksums.of_file(source / "best.safetensors")
    # the first checkpoint holds the weights of the source, a fresh optimizer, and step 0
    config = read_config(source)
    events = fit(config, tmp_path / "start", RunRecord.read(source).training, init_from=source)
    next(event for event in events if isinstance(event, Started))
    events.close()  # type: ignore[attr-defined]
    start = read(tmp_path / "start" / "last.safetensors")
    assert start.facts["step"] == 0
    assert not start.under("optimizer.")
    before = read(source / "best.safetensors").under("model.")
    assert before.keys() == start.under("model.").keys()
    assert all(torch.equal(before[key], t) for key, t in start.under("model.").items())
    # the same weights and vocabularies give the same loss
    given = [regard.load(source, device="cpu").read(argument) for argument in inputs(name, folder)]
    losses = []
    for path, weights_name in ((source, "best"), (tmp_path / "start", "last")):
        torch.manual_seed(0)
        losses.append(regard.load(path, weights=weights_name, device="cpu").loss(given, targets(name, folder)))  # type: ignore[arg-type]
    assert torch.equal(*losses)
    shutil.rmtree(source)
    assert main(["train", "--resume", str(twice), "--steps", "2"]) == 0
    expected = weights(once)
    assert all(torch.equal(t, expected[key]) for key, t in weights(twice).items())
    assert main(["evaluate", str(twice)]) == 0


@every_task
def test_init_from_is_refused_in_one_sentence(
    name: str, trained: Callable[[str], Path], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, other = str(trained(name)), next(task for task in TASKS if task != task_of(name))
    model = read_config(trained(name)).model
    number = next((n for n, value in vars(model).items() if type(value) is int and value > 0), None)
    # an encoder has its sizes from its folder
    changed, value = ("attention", "entmax") if number is None else (number, 2 * getattr(model, number))
    option = f"--{changed.replace('_', '-')}"
    conflict = f"{option} {value} conflicts with {option} {getattr(model, changed)}"
    sentences = {
        ("--init-from", source, option, f"{value}"): conflict,
        ("--init-from", str(tmp_path / "missing")): "there is no run",
        ("--resume", source, "--init-from", source): "--init-from was fixed when the run began",
    }
    capsys.readouterr()
    for words, text in sentences.items():
        assert main(["train", task_of(name), *words, "--steps", "1", "--out", str(tmp_path / "out")]) == 2
        printed = capsys.readouterr()
        assert text in printed.err
        assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert main(["train", other, "--init-from", source, "--out", str(tmp_path / "out")]) == 2
    assert (
        f"is a run of {task_of(name)}, not of {other}; a task starts from a run of its own" in capsys.readouterr().err
    )
    assert not (tmp_path / "out").exists()


@every_case
def test_evaluate(
    name: str, trained: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = trained(name), tmp_path / "outputs.txt"
    capsys.readouterr()
    assert main(["evaluate", str(run), "--json", "--out", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    config = read_config(run)
    assert set(found["scores"]) <= {*config.metrics, "real spread", "pointing_drawn", "evidence"}
    assert config.metric in {*found["scores"], "nll"}
    assert found["step"] == 2
    assert out.read_text().count("\n") > 0
    assert main(["evaluate", str(run)]) == 0
    printed = capsys.readouterr().out
    assert all(score in printed for score in found["scores"])
    assert "best weights, of step 2" in printed


# tasks whose baselines `regard evaluate` prints; masked-lm has them among the scores of every validation
COMPARED = ["classify-text", "match", "select-response", "read", "embed", "track", "respond", "answer", "classify-clip"]


def test_a_training_ends_with_the_baselines_of_its_evaluation(
    trained: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    offenders = []
    for name in COMPARED:
        path = trained(name) / "baselines.json"
        capsys.readouterr()
        assert main(["evaluate", str(trained(name)), "--split", "valid"]) == 0
        printed = capsys.readouterr().out
        scores = json.loads(path.read_text())["scores"] if path.exists() else {}
        if not scores or any(f"{value:.2f}" not in printed for value in scores.values()):
            offenders.append((name, scores, printed))
    assert offenders == []


@every_case
def test_predict(name: str, trained: Callable[[str], Path], folder: Path, tmp_path: Path, capsys: Any) -> None:
    more = CASES[name].predict.replace("OUT", str(tmp_path / "out.png")).split()
    is_generated = task_of(name) == "language-model"
    options = GenerateText(tokens=8) if is_generated else config_of(name).Predict()
    check_predictions(trained(name), inputs(name, folder), more, options, capsys)


@every_task
def test_predict_draws(name: str, trained: Callable[[str], Path], folder: Path, tmp_path: Path) -> None:
    check_picture(trained(name), inputs(name, folder)[0], tmp_path / "picture.png")


@every_case
def test_loss_is_differentiable(name: str, trained: Callable[[str], Path], folder: Path) -> None:
    check_loss(trained(name), inputs(name, folder), targets(name, folder))


@pytest.mark.parametrize("name", ATTACKED)
def test_attack_reads_the_tokens_of_the_model(name: str, trained: Callable[[str], Path], folder: Path) -> None:
    predictor: Any = regard.load(trained(name), device="cpu")
    texts = inputs(name, folder)
    word = [regard.attacks.ForbiddenWord("a")] * len(texts) if task_of(name) == "translate" else None
    target = predictor.attack_targets(texts, word)[0]
    vocabulary, weight = predictor.token_texts(), predictor.embedding.weight
    assert len(vocabulary.texts) <= len(weight)
    read = embedding_gradient(
        predictor.embedding, lambda: predictor.attack_scores([EditedText(texts[0])], [target]).loss
    )
    places = predictor.token_places(texts[0])
    assert {*(place.token for place in places)} <= {*read.tokens.tolist()}
    torch.testing.assert_close(read.vectors, weight.detach()[read.tokens])
    victim = TextVictim(predictor, 64)
    gradient = victim.gradient(EditedText(texts[0]), target)
    assert gradient.gradient.shape == (len(places), weight.shape[1])
    # every word of the text that has a token of its own is found under its number, and at its place
    for place in places:
        text = vocabulary.texts[place.token]
        assert text is None or texts[0][place.start : place.end].lower() == text.lower()
    for attack in (regard.attacks.HotFlip(1, 3), regard.attacks.Triggers(1, 2, 1), regard.attacks.CharacterEdits(1, 3)):
        result = regard.attack(predictor, texts, word, attack)
        assert [each.original for each in result.inputs] == texts


@pytest.mark.parametrize("name", ATTACKED)
def test_attack(name: str, trained: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    word = ["--forbidden-word", "a"] if task_of(name) == "translate" else []
    capsys.readouterr()
    assert main(["attack", str(trained(name)), "--count", "3", "--k", "4", "--json", *word]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["attack"] == "hotflip"
    assert values["texts"] == len(values["examples"]) <= 3
    assert values["accuracy"] <= values["clean_accuracy"]
    for example in values["examples"]:
        assert (example["text"] != example["attacked"]) == (example["broken"] and not example["was_broken"])


@every_case
def test_record_and_view(
    name: str, trained: Callable[[str], Path], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, given, out = trained(name), inputs(name, folder)[0], tmp_path / "recording.safetensors"
    capsys.readouterr()
    if config_of(name).input_kind == "class":
        assert main(["record", str(run), given]) == 2
        assert "reads neither a text nor an image" in capsys.readouterr().err
        return
    assert main(["record", str(run), given, "--out", str(out)]) == 0
    assert main(["view", str(out)]) == 0
    assert main(["view", str(run), given, "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    predictor = regard.load(run, device="cpu")
    explained = {
        "classify-text": "class",
        "match": "class",
        "classify-image": "class",
        "tag": "part",
        "translate": "part",
    }
    assert predictor.explains == explained.get(task_of(name))
    output, recording = labelled_recording(predictor, predictor.read(given), run="run")
    if config_of(name).input_kind == "image":
        assert predictor.summary(output) == recording.about["said"]
    assert all(item.verified for item in recording)
    assert [item.name for item in regard.recording.Recording.load(out)] == [item.name for item in recording]
    capsys.readouterr()
    code = main(["record", str(run), str(folder / "random.png")])
    assert ("reads text, and" in capsys.readouterr().err) == config_of(name).input_kind.is_text
    assert code == (0 if config_of(name).input_kind == "image" else 2)
    if config_of(name).input_kind.is_text:
        assert main(["view", str(run)]) == 0, "an example of its own"
        assert capsys.readouterr().out


@every_task
def test_properties_of_attention_and_gates_of_cells(name: str, trained: Callable[[str], Path], folder: Path) -> None:
    run = trained(name)
    assert all(map(math.isfinite, attention_properties(run).values()))
    if config_of(name).input_kind == "class":
        return
    predictor = regard.load(run, device="cpu")
    given = predictor.read(inputs(name, folder)[0])
    (plain,) = predictor.predict([given])
    (output,), recording = predict_recorded(predictor, [given], gates=True)
    assert predictor.text(output) == predictor.text(plain)
    assert all(item.verified for item in recording if item.kind == "cell")


# tasks with variants of their own, one with those of all others, and those that compare nothing
VARYING = [
    *(name for name, config in TASKS.items() if config.variants is not LanguageModelConfig.variants),
    *("language-model", *(name for name in TASKS if not CASES[name].varied)),
]


@pytest.mark.parametrize("name", first(dict.fromkeys([*VARYING, *TASKS]), len(VARYING)))
def test_compare(name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = CASES[name].varied
    if not values:
        assert main(["compare", task_of(name), *with_paths(CASES[name].options, folder), "--attention", "dot"]) == 2
        assert "has no attention to compare" in capsys.readouterr().err
        return
    given = with_paths(CASES[name].options, folder)
    option = f"--{config_of(name).varies}"
    if option in given:
        del given[given.index(option) : given.index(option) + 2]
    args = ["compare", task_of(name), *given, option, ",".join(values), *STEPS, "--steps", "1", "--out", str(tmp_path)]
    assert main(args) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(values) <= set(results)
    table = (tmp_path / "table.md").read_text()
    for value in values:
        assert re.search(rf"^\| {value} +\|", table, re.MULTILINE)
        config = read_config(tmp_path / value)
        assert config == read_config(tmp_path / values[0]).variants([value])[value]
    # again: nothing is trained twice
    capsys.readouterr()
    assert main(args) == 0
    assert capsys.readouterr().err.count("is trained already") == len(results)


@every_task
def test_serve(name: str, trained: Callable[[str], Path], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, loaded = config_of(name), load_run(trained(name), device="cpu")
    if not config.is_served:
        run = trained(name)
        assert main(["serve", str(run)]) == 2
        assert f"which is not served; use {read_config(run).next_command(str(run))}\n" in capsys.readouterr().err
        return
    endpoint = loaded.predictor.endpoint(Limits(), run="run", step=loaded.step)

    async def act(client: httpx.AsyncClient) -> list[httpx.Response]:
        body = request_body(config.input_kind, inputs(name, folder)[0])
        return [
            await client.post(f"/v1/{endpoint.name}", json=body),
            await client.post(f"/v1/{endpoint.name}", json={"colour": 1}),
            await client.get("/v1/model"),
            await client.get("/openapi.json"),
            await client.get("/"),
        ]

    answer, wrong, about, schema, page = visit(endpoint, act)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["answers"]) == 1
    assert wrong.status_code == 422
    assert "colour" in wrong.json()["error"]
    assert about.json()["step"] == 2
    assert f"/v1/{endpoint.name}" in schema.json()["paths"]
    assert page.status_code == 200


@every_task
def test_a_wrong_option_is_one_sentence(
    name: str, trained: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(trained(name))
    commands = [
        ["train", task_of(name), "--colour", "red"],
        ["train", task_of(name), "--batch", "many"],
        ["train", task_of(name), "--seed", "-1"],
        ["train", task_of(name), "--data", "nothing"],
        ["train", task_of(name), "--model", "nothing"],
        ["train", "--resume", run, "--seed", "3"],
        ["train", task_of(name), "--train", str(tmp_path / "missing")],
        ["compare", task_of(name)],
        *([verb, run, "--colour", "red"] for verb in ("evaluate", "predict", "serve")),
        *([verb, run, "--weights", "worst"] for verb in ("evaluate", "predict", "serve")),
        ["evaluate", run, "--weights", "average"],
        ["predict", run, "x", "--picture", str(tmp_path / "missing" / "x.png")],
    ]
    capsys.readouterr()
    for command in commands:
        assert main(command) == 2, command
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith("regard: "), command
        assert printed.err.count("\n") == 1, printed.err


@every_task
def test_help_names_every_option(name: str, trained: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    config = config_of(name)
    for command, options in (
        (["train", task_of(name)], [config, *config.models.values(), TrainingConfig]),
        (["compare", task_of(name)], [config, TrainingConfig]),
        (["evaluate", str(trained(name))], [config.Evaluate]),
        (["predict", str(trained(name))], [config.Predict]),
        (["serve", str(trained(name))], [config.Serve]),
    ):
        capsys.readouterr()
        assert main([*command, "--help"]) == 0
        printed = capsys.readouterr().out
        for item in [item for each in options for item in fields(each)]:
            assert f"--{item.name.replace('_', '-')} " in f"{printed} ", item.name


def test_help_needs_no_torch() -> None:
    """In a process of its own: this one has imported torch."""
    code = (
        "import sys\nfrom regard.cli.main import main\nfrom regard.tasks.registry import TASKS\n"
        "for name in TASKS:\n    for verb in ('train', 'compare'):\n        assert main([verb, name, '--help']) == 0\n"
        "    TASKS[name]()\n"
        "for verb in ('evaluate', 'predict', 'serve', 'record', 'view'):\n    assert main([verb, '--help']) == 0\n"
        "print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "False"
