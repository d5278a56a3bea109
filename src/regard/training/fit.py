"""fit(task, run, training): trains a task in a run folder and tells what happens, event by event.

Every step is a pure function of the weights, the moments and Progress: the plan gives the batches, a seed mixed out of
the task's seed, step, batch and rank gives the dropout. So a resumed run goes on to the same weights, bit for bit on a
CPU with the same number of threads, wherever it was killed.
"""

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from regard.common import atomic_files
from regard.training import checkpoint, messages, setup, stopping
from regard.training.average import average
from regard.training.checkpoint import Checkpoint
from regard.training.config import TrainingConfig
from regard.training.epoch_plan import EpochPlan
from regard.training.events import Event, Prepared, Saved, Started, StepLogged, Validated
from regard.training.metrics_log import MetricsLog
from regard.training.protocol import Task, ValidationResult
from regard.training.run_folder import AVERAGE, BEST, LAST, VALIDATED
from regard.training.runtime import distributed, malloc, threads
from regard.training.runtime.distributed import Objective, Processes
from regard.training.runtime.signals import Interrupts
from regard.training.schedule import factor
from regard.training.state import LogWindow, TrainingState, better, derive_seed
from regard.training.step import Diverged, Stepper, seed
from regard.training.validation import Validation

__all__ = ["Diverged", "fit"]


def fit(task: Task, run: Path, training: TrainingConfig, resume: bool = False) -> Iterator[Event]:
    """Trains and yields events, the last of them Stopped; under torchrun only the first process yields any.

    A new run wants a folder without one; `resume` goes on with the run in the folder, and Training may be another.
    A loss that is no number raises Diverged.
    """
    run = Path(run)
    before = torch.get_num_threads()
    processes = distributed.join(training.device)
    with setup.claimed(run, resume, processes) as made:
        try:
            with setup.begun(task, run, training, resume, made, processes):
                yield from setup.ahead(task, run, resume, processes)
                fitting = _Fitting(task, run, training, resume, processes)
                yield from fitting.settle()
                fitting.begin()
            try:
                with fitting.interrupts:
                    for event in fitting.events():
                        if processes.first:
                            yield event
            finally:
                fitting.close()
        finally:
            torch.set_num_threads(before)


class _Fitting:
    """One call of fit: what is built at its start, and the Progress, which alone changes with the weights."""

    def __init__(self, task: Task, run: Path, training: TrainingConfig, resume: bool, processes: Processes) -> None:
        self.run, self.training, self.seed, self.processes, self.resume = run, training, task.seed, processes, resume
        record, stored, self.work = setup.opened(task, run, training, resume, processes)
        self.progress = TrainingState() if stored is None else TrainingState.from_dict(stored.facts["progress"])
        self.plan = EpochPlan(self.work, self.progress.epoch)
        self.steps = stopping.steps_in_all(training, self.plan.first)
        seed(processes.device, task.seed)
        self.model = self.work.model().to(processes.device).train()
        self.parameters = sum(p.numel() for p in self.model.parameters())
        if stored is not None:
            checkpoint.load_model(self.model, stored, run / LAST)
        objective = Objective(self.model, self.work, processes.device, training.precision)
        self.stepper = Stepper(objective, self.work, training, task.seed, processes)
        if stored is not None:
            checkpoint.load_optimizer(self.model, self.stepper.optimizer, stored, run / LAST)
        self.record, self.thread_times = record, dict[int, float]()
        self.metrics: MetricsLog | None = None
        self.interrupts = Interrupts()
        self.sharded = training.parallel == "shard" and processes.world > 1
        self.validation = Validation(self.work, run, processes.device, self.interrupts)
        self.started_at = self.progress.step
        self.saved = replace(self.progress, elapsed=0.0)
        self.start, self.busy, self.tokens = 0.0, 0.0, 0

    def begin(self) -> None:
        """From here on the clock runs and files are written."""
        if self.processes.first:
            self.metrics = MetricsLog(self.run, self.progress, self.training.tensorboard)
            replace(self.record, threads=torch.get_num_threads()).write(self.run)
        self.start = time.perf_counter()

    def close(self) -> None:
        if self.metrics is not None:
            self.metrics.close()

    def settle(self) -> Iterator[Event]:
        """Freed memory stays, on a CPU; and how many threads there are: if that must be tried, it is told before."""
        if self.processes.device.type == "cpu":
            malloc.keep()
        known, alone = self.training.threads or self.record.threads, self.processes.world == 1
        # what one process found best is too many for each of several
        if known is not None and (self.training.threads or alone):
            torch.set_num_threads(known)
        elif self.processes.device.type == "cpu" and alone:
            counts = threads.counts()
            if len(counts) > 1:
                yield Prepared(self.run, self.parameters, str(self.processes.device), counts, self.work.told)
                self.thread_times = self._tried(counts)
                counts = [threads.fastest(self.thread_times)]
            torch.set_num_threads(counts[0])

    def _tried(self, counts: Sequence[int]) -> dict[int, float]:
        batch = self.work.batch(self.plan.batches[0], 0, 1)
        count = self.work.count(batch)
        # of a copy, so that neither weights nor gradients change; the data is not copied
        trial = Objective(copy.deepcopy(self.model), self.work, self.processes.device, self.training.precision)
        return threads.measure(lambda: trial(batch, count)[0].backward(), counts)

    # The course of events

    def events(self) -> Iterator[Event]:
        yield Started(
            run=self.run,
            parameters=self.parameters,
            device=str(self.processes.device),
            processes=self.processes.world,
            threads=torch.get_num_threads(),
            thread_times=self.thread_times,
            step=self.progress.step,
            steps=self.steps,
            batches=self.plan.first,
            resumed=self.resume,
            told=self.work.told,
        )
        yield from setup.warnings(self.run, self.resume, self.started_at, self.training, self.processes)
        reason = None
        while reason is None:
            yield from self._due()
            reason = stopping.reason(self.training, self.steps, self.progress) or self._step()
        yield from self._finish(reason)

    def _due(self) -> Iterator[Event]:
        """What the step just done asks for: a line, a validation, a checkpoint."""
        step = self.progress.step
        if step and step % self.training.log_every == 0:
            yield from self._log()
        if step and step % self.training.validate_every == 0:
            yield from self._validate()
        if step % self.training.save_every == 0:
            yield from self._save()

    def _finish(self, reason: str) -> Iterator[Event]:
        if reason != "interrupted":
            yield from self._log()
            yield from self._validate()
            yield from self._average()
            if self.progress.validated_at != self.progress.step or self._to_average():
                reason = "interrupted"
        yield from self._save()
        nothing = self.resume and self.progress.step == self.started_at and reason != "interrupted"
        yield messages.stopped(reason, nothing, self.progress, self.steps, self.training, self.run)

    def _step(self) -> str | None:
        """One update of the weights, or the reason why there is none."""
        begun, done, minutes = time.perf_counter(), self.progress, self.training.minutes
        planned, epoch, place = self.plan.take(done.epoch, done.place, self.training.accumulate)
        batches = self.stepper.load(planned)
        over = minutes is not None and self._elapsed() >= 60 * minutes
        # The first process's clock decides for all, a signal to any of them as well.
        told = [
            float(sum(own for _, own in batches)),
            float(self.interrupts.asked),
            float(over and self.processes.first),
        ]
        count, asked, ended = self.processes.sums(told)
        if asked or ended:
            return "interrupted" if asked else "minutes"
        if not count:
            raise ValueError(
                f"batch {messages.brief(planned)} of epoch {epoch} has nothing to lose; leave it out of the plan"
            )
        try:
            taken = self.stepper.step(batches, int(count), done.step, self._lr(done.step + 1))
        except Diverged as error:
            at = done.step + 1, epoch, planned, self.saved.step
            raise Diverged(messages.diverged(error, self.work, *at, self.training)) from None
        window = done.window.add(taken.total, int(count), taken.norm, taken.sums)
        self.progress = replace(done, step=done.step + 1, epoch=epoch, place=place, window=window)
        self.tokens += int(count)
        self.busy += time.perf_counter() - begun
        return None

    def _lr(self, step: int) -> float:
        return self.training.lr * factor(self.training, step, self.steps, self.progress.plateau)

    # What is told and written

    def _elapsed(self) -> float:
        return self.progress.elapsed + time.perf_counter() - self.start

    def _stamp(self) -> TrainingState:
        """Progress with the time until now."""
        now = time.perf_counter()
        self.progress, self.start = replace(self.progress, elapsed=self.progress.elapsed + now - self.start), now
        return self.progress

    def _log(self) -> Iterator[Event]:
        done, window = self._stamp(), self.progress.window
        if not window.steps:
            return
        event = StepLogged(
            step=done.step,
            steps=self.steps,
            epoch=done.epoch + done.place / len(self.plan.batches),
            loss=window.total / window.count,
            lr=self._lr(done.step),
            norm=window.norm,
            tokens_per_second=self.tokens / self.busy if self.busy else 0.0,
            elapsed=done.elapsed,
            remaining=stopping.remaining(self.training, self.steps, done),
            values={name: value / window.count for name, value in window.sums.items()},
            counted=self.work.counted,
        )
        self.progress = replace(done, window=LogWindow(), logged_at=done.step)
        self.busy, self.tokens = 0.0, 0
        if self.metrics is not None:
            self.metrics.step(event)
        yield event

    def _validate(self) -> Iterator[Event]:
        """The score of the present weights, unless they have one; then the files that know of it."""
        done, step = self.progress, self.progress.step
        if done.validated_at == step:
            return
        begun = time.perf_counter()
        model = self._whole()
        score = self._score(model)
        found, higher, *reached = self.processes.share(
            [0.0] * 4 if score is None else [1.0, score.higher_is_better, *score.reached]
        )
        value = reached[0], reached[1]
        if not found:
            return
        improved = better(value, done.best, bool(higher))
        keep = better(value, done.kept, bool(higher))
        # An end out of turn is no turn: a run that is made longer must not lose patience earlier.
        in_turn = step % self.training.validate_every == 0
        by, patience = self.training.plateau_factor or 0.5, self.training.plateau_patience or 2
        self.progress = replace(
            done,
            validated_at=step,
            best=value if improved else done.best,
            bad=0 if improved else done.bad + in_turn,
            kept=value if keep else done.kept,
            plateau=done.plateau.after(improved, by, patience) if in_turn else done.plateau,
            validated=(*done.validated, step)[-self.training.average :] if self.training.average else (),
        )
        stored = self._gather()
        events: list[Event] = []
        if score is not None:
            assert self.metrics is not None
            weights = Checkpoint({n: t for n, t in stored.tensors.items() if n.startswith("model.")}, stored.tied)
            events.append(Validated(step, score, improved, time.perf_counter() - begun))
            self.metrics.validation(Validated(step, score, improved, time.perf_counter() - begun))
            if self.training.average:
                atomic_files.make_folder(self.run / VALIDATED)
                checkpoint.write(self._validated(step), weights, _facts(step, score))
            if keep:
                checkpoint.write(self.run / BEST, weights, _facts(step, score))
                events.append(Saved(self.run / BEST, step))
        yield from events
        yield from self._save(stored)
        # behind the checkpoint: what cannot be drawn costs no validation
        if model is not None and (warned := self.validation.picture(model, step)):
            yield warned

    def _whole(self) -> nn.Module | None:
        """The model that validates, on the first process; where processes hold shares, all of them must come here."""
        if not self.sharded:
            return self.model if self.processes.first else None
        stored = checkpoint.gather(self.model)
        return self.validation.filled(stored, self.run / LAST) if self.processes.first else None

    def _score(self, model: nn.Module | None) -> ValidationResult | None:
        """None if a signal came in between, and of no model."""
        return None if model is None else self.validation.score(model, derive_seed(self.seed, self.progress.step))

    def _to_average(self) -> bool:
        return self.training.average > 0 and self.progress.averaged_at != self.progress.step

    def _average(self) -> Iterator[Event]:
        """At the end: the mean of the last validated weights, kept as the best if it scores better."""
        done, begun = self.progress, time.perf_counter()
        if not self._to_average() or done.validated_at != done.step:
            return
        model = None
        if self.processes.first:
            stored = average([self._validated(step) for step in done.validated])
            model = self.validation.filled(stored, self.run / AVERAGE)
        score = self._score(model)
        (found,) = self.processes.share([float(score is not None)])
        if not found:
            return
        self.progress = replace(done, averaged_at=done.step)
        if score is not None:
            assert self.metrics is not None
            facts = {**_facts(done.step, score), "averaged": done.validated}
            checkpoint.write(self.run / AVERAGE, stored, facts)
            improved = better(score.reached, done.kept, score.higher_is_better)
            if improved:
                checkpoint.write(self.run / BEST, stored, facts)
                self.progress = replace(self.progress, kept=score.reached)
            event = Validated(done.step, score, improved, time.perf_counter() - begun, of="average")
            self.metrics.validation(event)
            yield event
            yield Saved(self.run / AVERAGE, done.step)
        yield from self._save()

    def _validated(self, step: int) -> Path:
        return self.run / VALIDATED / f"{step}.safetensors"

    def _gather(self) -> Checkpoint:
        """Weights and moments; where processes hold shares, all of them must come here."""
        needed = self.processes.first or self.sharded
        return checkpoint.gather(self.model, self.stepper.optimizer) if needed else Checkpoint({})

    def _save(self, stored: Checkpoint | None = None) -> Iterator[Event]:
        if replace(self.progress, elapsed=0.0) == self.saved:
            return
        stored = stored or self._gather()
        done = self._stamp()
        self.saved = replace(done, elapsed=0.0)
        if self.metrics is None:
            return
        self.metrics.settle()
        checkpoint.write(self.run / LAST, stored, {"step": done.step, "progress": done.to_dict()})
        # Only now is no checkpoint left that knows the older ones.
        for path in (self.run / VALIDATED).glob("*.safetensors"):
            if path.stem.isdigit() and int(path.stem) not in done.validated:
                path.unlink(missing_ok=True)
        yield Saved(self.run / LAST, done.step)


def _facts(step: int, score: ValidationResult) -> dict[str, object]:
    return {"step": step, "score": dict(score.values), "main": score.main}
