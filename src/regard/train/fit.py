"""fit(task, run, training): trains a task in a run folder and tells what happens, event by event.

Every step is a pure function of the weights, the moments and Progress: the plan gives the batches, a seed mixed out of
the task's seed, step, batch and rank gives the dropout. So a resumed run goes on to the same weights, bit for bit on a
CPU with the same number of threads, wherever it was killed.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.tasks.task import Score, Task
from regard.train import checkpoint, distributed, files, opening, threads
from regard.train.average import average
from regard.train.checkpoint import Stored
from regard.train.distributed import Objective, Processes
from regard.train.events import Event, Saved, Started, Stepped, Validated, Warned
from regard.train.interrupts import Asked, Interrupts
from regard.train.metrics import Metrics
from regard.train.progress import Progress, Window, better, mix
from regard.train.run import AVERAGE, BEST, LAST, VALIDATED, Record
from regard.train.schedule import factor
from regard.train.training import Training


class Diverged(RuntimeError):
    """The loss or the gradient is no number any more. Weights and checkpoints are those from before."""


def fit(task: Task, run: Path, training: Training, resume: bool = False) -> Iterator[Event]:
    """Trains and yields events, the last of them Stopped; under torchrun only the first process yields any.

    A new run wants a folder without one; `resume` goes on with the run in the folder, and Training may be another.
    """
    run = Path(run)
    before = torch.get_num_threads()
    with distributed.join(training.device) as processes:
        try:
            fitting = _Fitting(task, run, training, resume, processes)
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

    def __init__(self, task: Task, run: Path, training: Training, resume: bool, processes: Processes) -> None:
        self.run, self.training, self.seed, self.processes = run, training, task.seed, processes
        self.resume = resume
        self.warnings: list[Warned] = []
        record, stored, self.work = opening.opened(task, run, training, resume, processes)
        self.progress = Progress() if stored is None else Progress.from_dict(stored.facts["progress"])
        self.plan = self.work.batches(self.progress.epoch)
        torch.manual_seed(task.seed)
        self.model = self.work.model().to(processes.device)
        if stored is not None:
            checkpoint.load_model(self.model, stored, run / LAST)
        self.model.train()
        self.objective = Objective(self.model, self.work, training.precision)
        self.thread_times: dict[int, float] = {}
        torch.set_num_threads(self._threads(record))
        if processes.first:
            replace(record, threads=torch.get_num_threads()).write(run)
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.spread = distributed.spread(self.objective, processes, training.parallel)
        self.optimizer = opening.optimizer(self.model, training, processes.device)
        self.learned = [p for p in self.model.parameters() if p.requires_grad]
        if stored is not None:
            checkpoint.load_optimizer(self.model, self.optimizer, stored, run / LAST)
        first = len(self.plan) if self.progress.epoch == 0 else len(self.work.batches(0))
        self.batches = first
        self.steps = opening.steps_in_all(training, first)
        self.metrics = Metrics(run, self.progress, training.tensorboard) if processes.first else None
        self.interrupts = Interrupts()
        self.saved = replace(self.progress, elapsed=0.0)
        self.started_at = self.progress.step
        self.start = time.perf_counter()
        self.names: list[str] | None = None
        self.busy, self.tokens, self.norm, self.lr = 0.0, 0, 0.0, 0.0
        self._warn()

    def close(self) -> None:
        if self.metrics is not None:
            self.metrics.close()

    def _threads(self, record: Record) -> int:
        known = self.training.threads or record.threads
        if known is not None:
            return known
        if self.processes.device.type != "cpu" or self.processes.world > 1:
            return torch.get_num_threads()
        batch = self.work.batch(self.plan[0], 0, 1)

        def backward(trial: nn.Module) -> None:
            trial(batch)[0].backward()

        self.thread_times = threads.measure(self.objective, backward, threads.available())
        return threads.fastest(self.thread_times)

    def _warn(self) -> None:
        if self.training.precision == "bfloat16" and self.processes.device.type == "cpu" and not opening.has_bfloat16():
            self.warnings.append(
                Warned("this processor has no units for bfloat16: steps may take 40 times as long; take float32")
            )
        if self.training.parallel == "shard" and self.processes.world == 1:
            self.warnings.append(
                Warned("parallel='shard' with one process shares nothing; start several with torchrun")
            )

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
            batches=self.batches,
            resumed=self.resume,
        )
        yield from self.warnings
        reason = None
        while reason is None:
            yield from self._due()
            reason = self._ended() or self._step()
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

    def _ended(self) -> str | None:
        if self.steps is not None and self.progress.step >= self.steps:
            return "done"
        if self.training.patience is not None and self.progress.bad >= self.training.patience:
            return "patience"
        return None

    def _finish(self, reason: str) -> Iterator[Event]:
        if reason != "interrupted":
            yield from self._log()
            yield from self._validate()
            yield from self._average()
            if self.interrupts.asked and self.progress.validated_at != self.progress.step:
                reason = "interrupted"
        yield from self._save()
        nothing = self.resume and self.progress.step == self.started_at and reason != "interrupted"
        yield opening.stopped(reason, nothing, self.progress, self.steps, self.training, self.run)

    # The step

    def _step(self) -> str | None:
        """One update of the weights, or the reason why there is none."""
        begun = time.perf_counter()
        done, processes = self.progress, self.processes
        planned, epoch, place = self._take()
        batches = [self.work.batch(item, processes.rank, processes.world) for item in planned]
        counts = [0 if batch is None else self.work.count(batch) for batch in batches]
        minutes = self.training.minutes
        over = processes.first and minutes is not None and self._elapsed() >= 60 * minutes
        count, asked, ended = processes.sums([sum(counts), self.interrupts.asked, over])
        if asked or ended:
            return "interrupted" if asked else "minutes"
        totals, sums = self._backward(batches, int(count))
        self.norm = self._norm()
        names, values = self._sums(totals, sums)
        if not (math.isfinite(values[0]) and math.isfinite(self.norm)):
            raise Diverged(opening.diverged(values[0], self.norm, done.step + 1, epoch, planned, self.training))
        self.lr = self.training.lr * factor(self.training, done.step + 1, self.steps, done.plateau)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        window = done.window.add(values[0], int(count), dict(zip(names, values[1:], strict=True)))
        self.progress = replace(done, step=done.step + 1, epoch=epoch, place=place, window=window)
        self.tokens += int(count)
        self.busy += time.perf_counter() - begun
        return None

    def _take(self) -> tuple[list[object], int, int]:
        """The planned batches of the next step, and where the one after it begins."""
        epoch, place = self.progress.epoch, self.progress.place
        planned: list[object] = []
        while len(planned) < self.training.accumulate:
            if place >= len(self.plan):
                epoch, place = epoch + 1, 0
                self.plan = self.work.batches(epoch)
            planned.append(self.plan[place])
            place += 1
        return planned, epoch, place

    def _backward(self, batches: Sequence[Any], count: int) -> tuple[list[Tensor], dict[str, list[Tensor | float]]]:
        """Gradients of Σ total / count. Wrappers average over the processes, hence their number as a factor."""
        totals: list[Tensor] = []
        sums: dict[str, list[Tensor | float]] = {}
        for micro, batch in enumerate(batches):
            self._draw_from(mix(self.seed, self.progress.step, micro, self.processes.rank))
            here = None if batch is None else batch.to(self.processes.device)
            with distributed.gradients_stay(self.spread, stay=micro + 1 < len(batches)):
                total, others = self.spread(here)
                (total * (self.processes.world / count)).backward()
            totals.append(total.detach())
            for name, value in others.items():
                sums.setdefault(name, []).append(value.detach() if isinstance(value, Tensor) else value)
        if self.processes.world > 1 and self.progress.step == self.started_at:
            distributed.all_took_part(self.model)
        return totals, sums

    def _draw_from(self, seed: int) -> None:
        if self.processes.device.type == "cpu":
            # torch.manual_seed notes the stack for every kind of device that may come later: half a millisecond
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)

    def _norm(self) -> float:
        norm = torch.nn.utils.get_total_norm([p.grad for p in self.learned if p.grad is not None])
        if self.training.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.learned, self.training.clip, norm)
        return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)

    def _sums(self, totals: list[Tensor], sums: dict[str, list[Tensor | float]]) -> tuple[list[str], list[float]]:
        """The loss and the other sums over all batches and processes."""
        if self.names is None:
            self.names = self.processes.names(list(sums))
        if not sums.keys() <= set(self.names):
            raise ValueError(
                f"work.loss sums {sorted(sums)} now and {self.names} at first; report the same sums always"
            )
        total = float(torch.stack(totals).sum(dtype=torch.float64 if totals[0].device.type == "cpu" else None))
        return self.names, self.processes.sums([total, *(float(sum(sums.get(name, []))) for name in self.names)])

    # What is told and written

    def _elapsed(self) -> float:
        return self.progress.elapsed + time.perf_counter() - self.start

    def _stamp(self) -> Progress:
        """Progress with the time until now."""
        now = time.perf_counter()
        self.progress, self.start = replace(self.progress, elapsed=self.progress.elapsed + now - self.start), now
        return self.progress

    def _log(self) -> Iterator[Event]:
        done, window = self._stamp(), self.progress.window
        if not window.steps:
            return
        event = Stepped(
            step=done.step,
            steps=self.steps,
            epoch=done.epoch + done.place / len(self.plan),
            loss=window.total / window.count,
            lr=self.lr,
            norm=self.norm,
            tokens_per_second=self.tokens / self.busy if self.busy else 0.0,
            elapsed=done.elapsed,
            remaining=self._remaining(),
            values={name: value / window.count for name, value in window.sums.items()},
        )
        self.progress = replace(done, window=Window(), logged_at=done.step)
        self.busy, self.tokens = 0.0, 0
        if self.metrics is not None:
            self.metrics.step(event)
        yield event

    def _remaining(self) -> float | None:
        left = []
        if self.steps is not None and self.progress.step:
            left.append((self.steps - self.progress.step) * self.progress.elapsed / self.progress.step)
        if self.training.minutes is not None:
            left.append(60 * self.training.minutes - self.progress.elapsed)
        return max(min(left), 0.0) if left else None

    def _validate(self) -> Iterator[Event]:
        """The score of the present weights, unless they have one; then the files that know of it."""
        done, step = self.progress, self.progress.step
        if done.validated_at == step:
            return
        begun = time.perf_counter()
        with distributed.gathered(self.spread):
            score = self._score(self.model) if self.processes.first else None
            found, value, higher = self.processes.share(
                [0.0, 0.0, 0.0] if score is None else [1.0, score.value, score.higher_is_better]
            )
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
            weights = Stored({n: t for n, t in stored.tensors.items() if n.startswith("model.")}, stored.tied)
            events.append(Validated(step, score, improved, time.perf_counter() - begun))
            self.metrics.validation(Validated(step, score, improved, time.perf_counter() - begun))
            if self.training.average:
                files.folder(self.run / VALIDATED)
                checkpoint.write(self._validated(step), weights, opening.facts(step, score))
            if keep:
                checkpoint.write(self.run / BEST, weights, opening.facts(step, score))
                events.append(Saved(self.run / BEST, step))
        yield from events
        yield from self._save(stored)

    def _score(self, model: nn.Module) -> Score | None:
        """None if a signal came in between."""
        self._draw_from(mix(self.seed, self.progress.step))
        model.eval()
        try:
            with torch.no_grad(), self.interrupts.at_once():
                return self.work.validate(model)
        except Asked:
            return None
        finally:
            model.train()

    def _average(self) -> Iterator[Event]:
        """At the end: the mean of the last validated weights, kept as the best if it scores better."""
        done = self.progress
        if not self.training.average or done.averaged_at == done.step or done.validated_at != done.step:
            return
        if self.processes.first:
            assert self.metrics is not None
            begun = time.perf_counter()
            stored = average([self._validated(step) for step in done.validated])
            model = self.work.model().to(self.processes.device)
            checkpoint.load_model(model, stored, self.run / AVERAGE)
            score = self._score(model)
            if score is None:
                return
            facts = {**opening.facts(done.step, score), "averaged": done.validated}
            checkpoint.write(self.run / AVERAGE, stored, facts)
            yield Saved(self.run / AVERAGE, done.step)
            improved = better(score.value, done.kept, score.higher_is_better)
            event = Validated(done.step, score, improved, time.perf_counter() - begun, of="average")
            self.metrics.validation(event)
            if improved:
                checkpoint.write(self.run / BEST, stored, facts)
                self.progress = replace(done, kept=score.value)
            yield event
        self.progress = replace(self.progress, averaged_at=done.step)
        yield from self._save()

    def _validated(self, step: int) -> Path:
        return self.run / VALIDATED / f"{step}.safetensors"

    def _gather(self) -> Stored:
        """Weights and moments; where processes hold shares, all of them must come here."""
        if self.processes.first or self.training.parallel == "shard":
            return checkpoint.gather(self.model, self.optimizer)
        return Stored({})

    def _save(self, stored: Stored | None = None) -> Iterator[Event]:
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
            if int(path.stem) not in done.validated:
                path.unlink(missing_ok=True)
        yield Saved(self.run / LAST, done.step)
