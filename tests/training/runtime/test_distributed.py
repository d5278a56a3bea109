"""Two processes under torchrun: the losses of one, and checkpoints that do not care how many wrote them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tests.training import toy
from tests.training.toy import Net, Toy, caption, metrics, run, same, sampling_translate
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from regard.gates.non_local import NonLocal
from regard.training.checkpoint import read
from regard.training.runtime import distributed

# 61 samples by 5: the last batch of an epoch has one row, and the second process none
TASK: dict[str, Any] = {"dropout": 0.0, "rows": 5}
TRAINING: dict[str, Any] = {
    "steps": 14,
    "accumulate": 2,
    "log_every": 3,
    "validate_every": 5,
    "save_every": 4,
    "average": 2,
    "warmup": 3,
    "weight_decay": 0.1,
}
WAYS = ("replicate", "shard")
CAPTION: dict[str, Any] = {"attention": "hard", "annotation": 6, "channels": 4, "width": 6, "hidden": 8, "batch": 30}
CAPTIONS: dict[str, Any] = {"steps": 6, "validate_every": 50, "warmup": 2, "accumulate": 2, "lr": 1e-2}
TRANSLATE: dict[str, Any] = {
    "tokens": "words",
    "model": "transformer",
    "width": 6,
    "heads": 2,
    "layers": 2,
    "feed": 5,
    "dropout": 0.0,
    "batch": 20,
    "metric": "nll",
}


def captioned(folder: Path) -> dict[str, Any]:
    """Seven pictures of which every one says something else; the second process has shares unlike the first."""
    for n in range(7):
        Image.new("L", (8, 8), 30 * n).save(folder / f"{n}.png")
    (folder / "all.tsv").write_text("".join(f"{n}.png\t{'very ' * n}grey\n" for n in range(7)))
    return {**CAPTION, "train": str(folder / "all.tsv"), "valid": str(folder / "all.tsv"), "tokens": "words"}


Jobs = list[tuple[str, dict[str, Any]]]


def toy_jobs(folder: Path) -> Jobs:
    """Whole runs, runs in two halves, the second half of what one process began, first halves for one process to end,
    a problem with a state of its own, and a model with an idle part."""
    half = {**TRAINING, "steps": 6}
    run(folder / "alone", Toy(**TASK), **TRAINING)
    jobs: Jobs = []
    for way in WAYS:
        run(folder / f"{way}-begun-by-one", Toy(**TASK), **half)
        for name, resume, training in [
            ("whole", False, TRAINING),
            ("halves", False, half),
            ("halves", True, TRAINING),
            ("begun-by-one", True, TRAINING),
            ("ended-by-one", False, half),
        ]:
            job = {"toy": TASK, "training": {**training, "parallel": way}, "resume": resume}
            jobs.append((str(folder / f"{way}-{name}"), job))
    for name, resume, training in [("whole", False, TRAINING), ("halves", False, half), ("halves", True, TRAINING)]:
        jobs.append((str(folder / f"stateful-{name}"), {"stateful": TASK, "training": training, "resume": resume}))
    return [*jobs, (str(folder / "idle"), {"toy": {**TASK, "idle": True}, "training": TRAINING})]


def caption_jobs(folder: Path) -> Jobs:
    """Hard attention to pictures, whose baseline every process must know: whole runs, and runs in two halves."""
    jobs = []
    hard = captioned(folder)
    # of no draws: what is drawn differs between one process and two
    mixed = {**hard, "expected": 1.0}
    run(folder / "alone", caption(**mixed), **CAPTIONS)
    for way in WAYS:
        for name, resume, task, steps in [
            ("whole", False, hard, 6),
            ("halves", False, hard, 3),
            ("halves", True, hard, 6),
            ("mixed", False, mixed, 6),
        ]:
            job = {"caption": task, "training": {**CAPTIONS, "steps": steps, "parallel": way}, "resume": resume}
            jobs.append((str(folder / f"{way}-{name}"), job))
    return jobs


def translate_jobs(folder: Path) -> Jobs:
    """A Transformer, whose layers are shared one by one; of some batches the second process has no row."""
    words = ["a", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog"]
    sides = [words[n % 7 :][: 1 + n % 3] * (5 if n % 6 == 5 else 1) for n in range(17)]
    lines = [f"{' '.join(side)}\t{' '.join(side[::-1])}\n" for side in sides]
    (folder / "all.tsv").write_text("".join(lines))
    (folder / "some.tsv").write_text("".join(lines[:3]))
    task = {**TRANSLATE, "train": [str(folder / "all.tsv")], "valid": [str(folder / "some.tsv")]}
    training = {**TRAINING, "steps": 6, "validate_every": 2}
    run(folder / "alone", sampling_translate(**task), **training)
    rows = [len(planned) for planned in sampling_translate(**task).prepare(folder / "alone", new=False).plan_epoch(0)]
    assert 1 in rows
    assert max(rows) > 2
    return [(str(folder / way), {"translate": task, "training": {**training, "parallel": way}}) for way in WAYS]


def command_jobs(folder: Path) -> Jobs:
    """`regard train` without --out: both processes must name the folder after the same time."""
    (folder / "pairs.tsv").write_text("".join(f"a {word}\t{word} a\n" for word in "bcdefghij"))
    sizes = ["--tokens", "words", "--width", "6", "--hidden", "8", "--threads", "1", "--warmup", "1"]
    steps = ["--steps", "3", "--log-every", "1", "--validate-every", "2"]
    command = ["train", "translate", "--train", str(folder / "pairs.tsv"), "--batch", "96", *sizes, *steps]
    return [(str(folder), {"command": command})]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one process, and all jobs of two processes under one torchrun, which takes long to start."""
    folder = tmp_path_factory.mktemp("trained")
    jobs: Jobs = []
    for name, prepare in {
        "toys": toy_jobs,
        "captions": caption_jobs,
        "translations": translate_jobs,
        "commands": command_jobs,
    }.items():
        (folder / name).mkdir()
        jobs += prepare(folder / name)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", toy.__file__]
    with (
        (folder / "stdout").open("w") as stdout,
        subprocess.Popen(
            [*command, json.dumps(jobs)], stdout=stdout, stderr=subprocess.PIPE, text=True, cwd=folder / "commands"
        ) as torchrun,
    ):
        try:
            _, message = torchrun.communicate(timeout=600)
        except subprocess.TimeoutExpired:
            # asked, not killed: it ends the two processes before itself
            torchrun.terminate()
            _, message = torchrun.communicate()
            pytest.fail(f"two processes did not end within 600 s: {message}")
    assert torchrun.returncode == 0, message
    for way in WAYS:
        run(folder / "toys" / f"{way}-ended-by-one", Toy(**TASK), resume=True, **TRAINING)
    return folder


@pytest.fixture(scope="module")
def runs(trained: Path) -> Path:
    return trained / "toys"


@pytest.fixture(scope="module")
def captions(trained: Path) -> Path:
    return trained / "captions"


@pytest.fixture(scope="module")
def translations(trained: Path) -> Path:
    return trained / "translations"


def test_only_the_first_of_two_processes_prints(trained: Path) -> None:
    (run_folder,) = (trained / "commands" / "runs").iterdir()
    assert [line["step"] for line in metrics(run_folder) if line["kind"] == "step"] == [1, 2, 3]
    printed = (trained / "stdout").read_text()
    assert printed.count("\nstep 1 of 3 ") == 1
    assert "in each of 2 processes" in printed
    assert printed.count("Step 3 of 3 is done.") == 1


@pytest.mark.parametrize("way", WAYS)
def test_layers_that_are_shared_one_by_one_train_as_one_process(translations: Path, way: str) -> None:
    for name in ("last", "best", "average"):
        one, two = (read(translations / which / f"{name}.safetensors").tensors for which in ("alone", way))
        assert one.keys() == two.keys()
        # what all keys have in common changes no weight: gradients of these biases are rounding alone
        for key in (key for key in one if "key.bias" not in key):
            torch.testing.assert_close(two[key], one[key], rtol=1e-3, atol=1e-5, msg=f"{name} {key}")


@pytest.mark.parametrize("way", WAYS)
def test_layers_that_are_shared_one_by_one_are_validated_and_drawn(translations: Path, way: str) -> None:
    one, two = metrics(translations / "alone"), metrics(translations / way)
    assert [line["step"] for line in one if line["kind"] == "validation"] == [2, 4, 6]
    for a, b in zip(one, two, strict=True):
        assert a.pop("kind") == b.pop("kind")
        assert b == pytest.approx(a, rel=1e-4)
    drawn = [{p.name: p.read_text() for p in (translations / which / "samples").iterdir()} for which in ("alone", way)]
    assert drawn[0] == drawn[1]
    assert sorted(drawn[0]) == ["2.png", "4.png", "6.png"]


@pytest.mark.parametrize("name", ["whole", "halves", "begun-by-one", "ended-by-one"])
@pytest.mark.parametrize("way", WAYS)
def test_two_processes_train_as_one(runs: Path, way: str, name: str) -> None:
    one, two = (read(runs / which / "last.safetensors") for which in ("alone", f"{way}-{name}"))
    assert one.tensors.keys() == two.tensors.keys()
    assert one.tied == two.tied == {"model.out.weight": "model.embed.weight"}
    for key in one.tensors:
        torch.testing.assert_close(two.tensors[key], one.tensors[key], rtol=1e-4, atol=1e-6, msg=key)


@pytest.mark.parametrize("way", WAYS)
def test_two_processes_tell_the_losses_of_one(runs: Path, way: str) -> None:
    one, two = metrics(runs / "alone"), metrics(runs / f"{way}-whole")
    for a, b in zip(one, two, strict=True):
        assert a.pop("kind") == b.pop("kind")
        assert b == pytest.approx(a, rel=1e-5)


@pytest.mark.parametrize("name", ["alone", *(f"{way}-whole" for way in WAYS)])
def test_buffers_that_a_validation_changes_are_stored_with_the_weights_that_it_scored(runs: Path, name: str) -> None:
    for file in ("best", "average"):
        stored = read(runs / name / f"{file}.safetensors")
        assert float(stored.tensors["model.measured"]) == pytest.approx(stored.facts["score"]["loss"], rel=1e-6), file


@pytest.mark.parametrize("way", WAYS)
def test_two_processes_resume_bit_for_bit(runs: Path, way: str) -> None:
    one, two = (read(runs / f"{way}-{name}" / "last.safetensors").tensors for name in ("whole", "halves"))
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_two_processes_restore_the_state_of_a_problem(runs: Path) -> None:
    one, two = (read(runs / f"stateful-{name}" / "last.safetensors").tensors for name in ("whole", "halves"))
    assert "problem.generator" in one
    assert one.keys() == two.keys()
    assert all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize("way", WAYS)
def test_hard_captions_resume_bit_for_bit(captions: Path, way: str) -> None:
    """What REINFORCE expects is the same in every process, so that the one that is saved is that of all."""
    one, two = (read(captions / f"{way}-{name}" / "last.safetensors").tensors for name in ("whole", "halves"))
    assert one.keys() == two.keys()
    assert [key for key in one if not torch.equal(one[key], two[key])] == []


@pytest.mark.parametrize("way", WAYS)
def test_two_processes_expect_what_one_does(captions: Path, way: str) -> None:
    one, two = (read(captions / name / "last.safetensors").tensors for name in ("alone", f"{way}-mixed"))
    torch.testing.assert_close(two["model.baseline"], one["model.baseline"], rtol=1e-5, atol=0)
    for key in one:
        torch.testing.assert_close(two[key], one[key], rtol=1e-3, atol=1e-5, msg=key)


def test_a_replica_is_not_another_model(runs: Path) -> None:
    """The halves have a validation at their seam, else all is the same."""
    seams = [line for line in metrics(runs / "replicate-halves") if line["step"] != 6 or line["kind"] == "step"]
    assert [line["step"] for line in seams if line["kind"] == "step"] == [3, 6, 9, 12, 14]


def test_parameters_without_a_gradient_are_named(runs: Path) -> None:
    for rank in (0, 1):
        message = (runs / f"idle.{rank}.txt").read_text()
        assert message.startswith(
            "idle.weight, idle.bias got no gradient from the loss, and several processes need one for"
        )
    model = Net(3, 0.0)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    distributed.check_all_have_gradients(model)
    model.hidden.bias.grad = None
    with pytest.raises(ValueError, match="hidden.bias got no gradient .*; remove what the model does not use, or"):
        distributed.check_all_have_gradients(model)


def test_an_idle_part_is_no_matter_to_one_process(tmp_path: Path) -> None:
    run(tmp_path / "a", Toy(idle=True), steps=3)
    run(tmp_path / "b", Toy(idle=True), steps=2)
    run(tmp_path / "b", Toy(idle=True), resume=True, steps=3)
    a, b = (read(tmp_path / name / "last.safetensors").tensors for name in "ab")
    assert all(torch.equal(a[key], b[key]) for key in a)
    assert not torch.equal(a["model.idle.weight"], torch.zeros(3, 2))


def test_one_process_of_torchrun_is_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path / "a", steps=5)
    for name, value in (("WORLD_SIZE", "1"), ("RANK", "0"), ("LOCAL_RANK", "0")):
        monkeypatch.setenv(name, value)
    run(tmp_path / "b", steps=5)
    same(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (NonLocal(8), "parallel='shard' cannot split residual, which is one number; take parallel='replicate'"),
        (nn.Sequential(spectral_norm(nn.Linear(2, 3))), "weight.original, which is normalised as a whole"),
    ],
)
def test_what_cannot_be_cut_into_shares(model: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distributed.check_shardable(model)


def test_an_exchanged_tensor_is_dropped_by_python_last(monkeypatch: pytest.MonkeyPatch) -> None:
    exchanged, other = torch.tensor([2.0, 3.0]), torch.zeros(2, requires_grad=True)
    # a reference that Python does not count, as a thread of gloo holds one
    other.grad = exchanged
    waits = []

    def release(seconds: float) -> None:
        waits.append(seconds)
        other.grad = None

    monkeypatch.setattr("regard.training.runtime.distributed.time.sleep", release)
    assert distributed._values(exchanged) == [2.0, 3.0]
    assert waits == [0]
    # one that stays does not stop the training
    other.grad = exchanged
    monkeypatch.setattr("regard.training.runtime.distributed.time.sleep", waits.append)
    monkeypatch.setattr("regard.training.runtime.distributed.time.monotonic", iter([0.0, 0.5, 2.0]).__next__)
    assert distributed._values(exchanged) == [2.0, 3.0]
    assert waits == [0, 0]
