"""What fit does in one process: the sums, the events, the files, the ends."""

import dataclasses
import math
import signal
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import pytest
import torch
from tests.for_each import for_each
from tests.training.toy import Toy, ToyProblem, metrics, of, run, same, weights
from torch import nn

from regard.training import checkpoint, fit, setup
from regard.training.config import TrainingConfig
from regard.training.events import Ahead, Prepared, Saved, Started, StepLogged, Stopped, Validated, Warned
from regard.training.runtime import malloc, peak_memory, threads
from regard.training.state import derive_seed
from regard.training.step import optimizer


def test_it_learns_and_tells(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "run"
    events = run(folder, steps=60, log_every=20, validate_every=30, save_every=25, lr=0.03, warmup=5)
    assert [type(event) for event in events] == [
        *(Started, StepLogged, Saved, Validated, Saved, Saved, StepLogged),
        *(Saved, StepLogged, Validated, Saved, Saved, Stopped),
    ]
    started, stopped = events[0], events[-1]
    assert (started.steps, started.threads, started.device, started.processes) == (60, 1, "cpu", 1)
    assert started.parameters == 11 * 13 + 39 * 13 + 13 + 11, "tied weights count once"
    assert (stopped.step, stopped.reason, stopped.text) == (60, "done", "step 60 of 60 is done")
    losses = [event.loss for event in of(StepLogged, events)]
    assert losses == sorted(losses, reverse=True)
    assert [event.improved for event in of(Validated, events)] == [True, True]
    last = of(StepLogged, events)[-1]
    assert last.lr == pytest.approx(0.03 * math.sqrt(5 / 60))
    assert last.epoch == pytest.approx(60 / 9)
    assert last.remaining == 0
    assert last.tokens_per_second > 0
    assert 0 < last.values["right"] < 1
    assert sorted(path.name for path in folder.iterdir()) == [
        *("best.safetensors", "config.toml", "last.safetensors", "memory.json", "metrics.jsonl", "run.json")
    ]
    assert [(line["kind"], line["step"]) for line in metrics(folder)] == [
        *(("step", 20), ("validation", 30), ("step", 40), ("step", 60), ("validation", 60))
    ]


def test_a_step_is_that_of_plain_torch(tmp_path: Path) -> None:
    task = Toy(dropout=0.0)
    run(tmp_path, task, steps=7, lr=0.01, warmup=0, schedule="linear", clip=0.5, weight_decay=0.1)
    problem = task.prepare(tmp_path)
    torch.manual_seed(task.seed)
    model = problem.build_model()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    plain = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.98), foreach=False)
    scheduler = torch.optim.lr_scheduler.LinearLR(plain, 1.0, 0.0, total_iters=7)
    for planned in problem.plan_epoch(0)[:7]:
        batch = problem.load_batch(planned, 0, 1)
        nn.functional.cross_entropy(model(batch.x), batch.y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        plain.step()
        scheduler.step()
        plain.zero_grad()
    got = weights(tmp_path / "last.safetensors")
    for name, t in model.named_parameters():
        torch.testing.assert_close(got[name], t.detach(), rtol=1e-5, atol=1e-6)


@dataclasses.dataclass(frozen=True)
class Uneven(Toy):
    """Batches of 1, 2, 3, … rows, or several of them as one."""

    joined: int = 1


class UnevenProblem(ToyProblem):
    def plan_epoch(self, epoch: int) -> Sequence[list[int]]:
        small = [list(range(i * (i + 1) // 2, (i + 1) * (i + 2) // 2)) for i in range(9)]
        joined = self.task.joined
        return [[*chain(*small[i : i + joined])] for i in range(0, len(small), joined)]


Uneven.problem = UnevenProblem


def test_accumulated_batches_are_one_large_batch(tmp_path: Path) -> None:
    run(tmp_path / "a", Uneven(dropout=0.0), steps=6, accumulate=3, warmup=0, schedule="constant", log_every=2)
    run(tmp_path / "b", Uneven(dropout=0.0, joined=3), steps=6, warmup=0, schedule="constant", log_every=2)
    a, b = (weights(tmp_path / name / "last.safetensors") for name in "ab")
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-5, atol=1e-6)
    for one, two in zip(metrics(tmp_path / "a"), metrics(tmp_path / "b"), strict=True):
        assert one.pop("kind") == two.pop("kind")
        assert one == pytest.approx(two, rel=1e-5)


def test_the_fused_optimizer_only_decays_matrices() -> None:
    model = nn.Sequential(nn.Embedding(3, 5), nn.LayerNorm(5), nn.Linear(5, 2))
    model[1].weight.requires_grad_(False)
    adamw = optimizer(model, TrainingConfig(steps=1, weight_decay=0.3), torch.device("cpu"))
    assert [(group["weight_decay"], len(group["params"])) for group in adamw.param_groups] == [(0.3, 2), (0.0, 2)]
    assert adamw.defaults["fused"]
    vectors = optimizer(nn.LayerNorm(5), TrainingConfig(steps=1), torch.device("cpu"))
    assert len(vectors.param_groups) == 1


class TwoRatesProblem(ToyProblem):
    """The hidden layer learns at another rate."""

    def build_model(self) -> nn.Module:
        model = super().build_model()
        model.lr_multipliers = {"hidden": 0.25}
        return model


class TwoRates(Toy):
    problem = TwoRatesProblem


def test_a_model_multiplies_the_learning_rate_of_its_parts(tmp_path: Path) -> None:
    """A first step of Adam is as long as the learning rate."""
    task = TwoRates(dropout=0.0)
    run(tmp_path, task, steps=1, lr=0.01, warmup=0, schedule="constant", clip=None)
    torch.manual_seed(task.seed)
    before, after = task.prepare(tmp_path).build_model().state_dict(), weights(tmp_path / "last.safetensors")
    moved = {name: (after[name] - t).abs().max().item() for name, t in before.items() if t.is_floating_point()}
    assert moved["hidden.weight"] == pytest.approx(0.0025, rel=1e-3)
    assert moved["hidden.bias"] == pytest.approx(0.0025, rel=1e-3)
    assert moved["out.bias"] == pytest.approx(0.01, rel=1e-3)


def test_the_longest_of_several_prefixes_decides() -> None:
    model = nn.ModuleDict({"a": nn.ModuleDict({"b": nn.Linear(2, 3)}), "ab": nn.Linear(3, 5)})
    model.lr_multipliers = {"a": 2.0, "a.b.bias": 3.0}
    adamw = optimizer(model, TrainingConfig(steps=1), torch.device("cpu"))
    multipliers = {tuple(p.shape): group["lr_multiplier"] for group in adamw.param_groups for p in group["params"]}
    assert multipliers == {(3, 2): 2.0, (3,): 3.0, (5, 3): 1.0, (5,): 1.0}


@pytest.mark.parametrize(
    ("multipliers", "message"),
    [
        ({"hide": 2.0}, "lr_multipliers name 'hide', which no parameter begins with; name one of embed, hidden, out"),
        ({"hidden": 0.0}, "lr_multipliers must be positive, got 0.0 for 'hidden'; freeze it by requires_grad_"),
    ],
)
def test_multipliers_that_cannot_be(multipliers: dict[str, float], message: str) -> None:
    model = Toy().prepare(Path()).build_model()
    model.lr_multipliers = multipliers
    with pytest.raises(ValueError, match=message):
        optimizer(model, TrainingConfig(steps=1), torch.device("cpu"))


def test_epochs_count_the_batches_of_the_first(tmp_path: Path) -> None:
    events = run(tmp_path / "a", epochs=1.5, steps=100)
    assert events[-1].step == 14  # of 9 batches an epoch, 13.5
    events = run(tmp_path / "b", epochs=2, accumulate=3)
    assert events[-1].step == 6
    assert run(tmp_path / "c", epochs=100, steps=2)[-1].step == 2


def test_seeds_are_mixed() -> None:
    seeds = {
        derive_seed(seed, step, micro, rank)
        for seed in range(5)
        for step in range(50)
        for micro in range(3)
        for rank in (0, 1)
    }
    assert len(seeds) == 5 * 50 * 3 * 2
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    assert derive_seed(-1, 2) != derive_seed(1, 2)
    # every bit is as often set as not
    counts = [sum(seed >> bit & 1 for seed in seeds) for bit in range(63)]
    assert all(abs(count / len(seeds) - 0.5) < 0.06 for count in counts)


def test_bfloat16_trains_and_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "has_bfloat16", lambda: False)
    events = run(tmp_path / "a", steps=30, precision="bfloat16", log_every=10, lr=0.03, warmup=5)
    assert [event.text for event in of(Warned, events)] == [
        "this processor has no units for bfloat16: steps take up to 40 times as long; take float32"
    ]
    losses = [event.loss for event in of(StepLogged, events)]
    assert losses[-1] < losses[0]
    exact = run(tmp_path / "b", steps=30, log_every=10, lr=0.03, warmup=5)
    assert losses != [event.loss for event in of(StepLogged, exact)]
    assert losses == pytest.approx([event.loss for event in of(StepLogged, exact)], rel=0.05)
    assert all(
        t.dtype == torch.float32 for n, t in weights(tmp_path / "a" / "last.safetensors").items() if n != "calls"
    )
    monkeypatch.setattr(setup, "has_bfloat16", lambda: True)
    assert not of(Warned, run(tmp_path / "c", steps=1, precision="bfloat16"))


def test_whether_the_processor_has_bfloat16_can_be_asked() -> None:
    flags = Path("/proc/cpuinfo").read_text() if sys.platform == "linux" else ""
    if flags:
        assert setup.has_bfloat16() is ("avx512_bf16" in flags or "amx_tile" in flags)


def test_one_process_has_nothing_to_share(tmp_path: Path) -> None:
    (warned,) = of(Warned, run(tmp_path, steps=1, parallel="shard"))
    assert warned.text == "parallel='shard' with one process shares nothing; start several with torchrun"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device")
def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="device='cuda' is not on this machine; try device='auto' or device='cpu'"):
        run(tmp_path / "a", steps=1, device="cuda")
    assert not (tmp_path / "a").exists()


def test_tensorboard_when_asked(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(tmp_path, steps=10, log_every=2, validate_every=5, tensorboard=True)
    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    assert {"step/loss", "step/lr", "step/right", "validation/accuracy"} <= set(read.Tags()["scalars"])
    assert [item.step for item in read.Scalars("step/loss")] == [2, 4, 6, 8, 10]


def test_tensorboard_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"tensorboard=True needs tensorboard; install it with: pip install"):
        run(tmp_path / "a", steps=10, tensorboard=True)
    assert not (tmp_path / "a").exists()


def test_threads_are_measured_chosen_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available", lambda: 2)
    monkeypatch.setattr(threads, "fastest", lambda times: max(times))
    before = torch.get_num_threads()
    prepared, started, *_ = run(tmp_path, steps=3, threads=None)
    assert prepared == Prepared(tmp_path, started.parameters, "cpu", [1, 2], "made of numbers")
    assert (started.threads, started.summary) == (2, "made of numbers")
    assert set(started.thread_times) == {1, 2}
    assert all(seconds > 0 for seconds in started.thread_times.values())
    assert torch.get_num_threads() == before
    # remembered, because another count rounds otherwise
    again = run(tmp_path, resume=True, steps=5, threads=None)
    assert (again[0].threads, again[0].thread_times) == (2, {})
    assert run(tmp_path, resume=True, steps=6, threads=1)[0].threads == 1


def test_one_processor_has_nothing_to_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "available", lambda: 1)
    started, *_ = run(tmp_path, steps=3, threads=None)
    assert (started.threads, started.thread_times) == (1, {})


class Slow(Toy):
    def preparation_notice(self, folder: Path, new: bool) -> str:
        return f"a {'new' if new else 'second'} sum"


def test_what_takes_long_is_told_first(tmp_path: Path) -> None:
    events = fit.fit(Slow(), tmp_path / "a", TrainingConfig(steps=2, threads=1))
    assert next(events) == Ahead("a new sum")
    # nothing was trained: it is as if it had never begun
    events.close()
    assert not (tmp_path / "a").exists()
    assert run(tmp_path / "a", Slow(), steps=2)[0] == Ahead("a new sum")
    assert run(tmp_path / "a", Slow(), resume=True, steps=4)[0] == Ahead("a second sum")


def test_a_generator_left_early_leaves_a_run_to_resume(tmp_path: Path) -> None:
    run(tmp_path / "whole", steps=20, save_every=6)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    events = fit.fit(Toy(), tmp_path / "left", TrainingConfig(steps=20, save_every=6, threads=1))
    for event in events:
        if isinstance(event, Saved) and event.step == 12:
            break
    events.close()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    run(tmp_path / "left", resume=True, steps=20, save_every=6)
    a, b = (weights(tmp_path / name / "last.safetensors") for name in ("whole", "left"))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_a_folder_trains_one_at_a_time(tmp_path: Path) -> None:
    events = fit.fit(Toy(), tmp_path, TrainingConfig(steps=20, threads=1))
    next(events)
    with pytest.raises(BlockingIOError, match="another process trains in .* now; wait for its end, or take another"):
        run(tmp_path, resume=True, steps=20)
    events.close()
    assert run(tmp_path, resume=True, steps=20)[-1].reason == "done"


class DrawingProblem(ToyProblem):
    """Writes whether the model is in training mode, in place of a picture, after odd steps if `odd` is set."""

    odd = False

    def draw_samples(self, model: nn.Module, path: Path) -> bool:
        assert not torch.is_grad_enabled()
        if self.odd and int(path.stem) % 2 == 0:
            return False
        path.write_text(f"{model.training}")
        return True


class DrawingToy(Toy):
    problem = DrawingProblem


def test_a_task_that_draws_leaves_a_picture_at_every_validation(tmp_path: Path) -> None:
    run(tmp_path, DrawingToy(), steps=7, validate_every=3)
    samples = {path.name: path.read_text() for path in (tmp_path / "samples").iterdir()}
    assert samples == {"3.png": "False", "6.png": "False", "7.png": "False"}
    run(tmp_path / "other", Toy(), steps=1)
    assert not (tmp_path / "other" / "samples").exists()


def test_a_folder_of_samples_is_there_only_with_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DrawingProblem, "odd", True)
    run(tmp_path, DrawingToy(), steps=2, validate_every=2)
    assert not (tmp_path / "samples").exists()
    run(tmp_path, DrawingToy(), resume=True, steps=4, validate_every=1)
    assert [path.name for path in (tmp_path / "samples").iterdir()] == ["3.png"]


def test_a_picture_that_cannot_be_drawn_costs_no_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(problem: DrawingProblem, model: nn.Module, path: Path) -> bool:
        # the checkpoint that knows of this validation is there already
        assert checkpoint.read(tmp_path / "last.safetensors").facts["progress"]["validated_at"] == int(path.stem)
        raise OSError("no space is left")

    monkeypatch.setattr(DrawingProblem, "draw_samples", full)
    events = run(tmp_path, DrawingToy(), steps=5, validate_every=3)
    assert [event.text for event in of(Warned, events)] == [
        "no picture of step 3: no space is left",
        "no picture of step 5: no space is left",
    ]
    assert [event.step for event in of(Validated, events)] == [3, 5]
    assert events[-1].reason == "done"
    run(tmp_path / "toy", steps=5, validate_every=3)
    same(tmp_path, tmp_path / "toy")
    assert not (tmp_path / "samples").exists()


@pytest.mark.parametrize("retain", [True, False])
def test_malloc_is_set_only_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retain: bool) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(malloc, "retain_freed_memory", lambda: calls.append(True))
    run(tmp_path, steps=1, retain_memory=retain)
    assert calls == [True] * retain


def test_the_peak_of_memory_is_written_before_the_last_event(tmp_path: Path) -> None:
    for event in fit.fit(Toy(), tmp_path, TrainingConfig(steps=2, threads=1)):
        assert (tmp_path / "memory.json").exists() is isinstance(event, Stopped)
    assert peak_memory.read(tmp_path) > 1 << 20


@for_each("content", ["", "[]", "{}", '{"peak_bytes": Infinity}', '{"peak_bytes": []}', "[" * 100_000])
def test_a_damaged_peak_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "memory.json").write_text(content)
    assert peak_memory.read(tmp_path) == 0
