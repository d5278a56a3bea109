"""fit(config, run, training): trains a task in the folder of a run and yields events.

Every step is a pure function of the weights, the moments, the TrainingState and the state of the problem, if it has
any: the plan gives the batches, and a seed derived from the task's seed, step, batch and rank gives the dropout. So a
resumed run reaches the same weights, bit for bit on a CPU with the same number of threads, wherever it was killed.
"""

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from regard.common import atomic_files, checks
from regard.training import checkpoint, initial_run, messages, setup, stopping, time_budget
from regard.training.checkpoint import Checkpoint
from regard.training.config import PLATEAU_FACTOR, PLATEAU_PATIENCE, TrainingConfig
from regard.training.epoch_plan import EpochPlan
from regard.training.events import Ahead, Event, InterimReport, Prepared, Saved, Started, StepLogged, Validated, Warned
from regard.training.folder_lock import LockedFolder
from regard.training.metrics_log import MetricsLog
from regard.training.model_size import build_in_memory
from regard.training.protocol import TrainableConfig, ValidationResult
from regard.training.run_folder import AVERAGE, BEST, CONFIG, LAST, VALIDATED, write_baselines, write_config
from regard.training.runtime import distributed, malloc, peak_memory, threads
from regard.training.runtime.distributed import Objective, Processes
from regard.training.runtime.signals import Interrupts
from regard.training.schedule import factor
from regard.training.state import LogWindow, TrainingState, derive_seed, is_better
from regard.training.step import Diverged, Stepper, set_seed
from regard.training.time_budget import ClockRequests
from regard.training.validation import Validation

__all__ = ["Diverged", "fit"]

# seconds between reports of progress
_REPORT_INTERVAL = 1.0


def fit(
    config: TrainableConfig, run: Path, training: TrainingConfig, resume: bool = False, init_from: Path | None = None
) -> Iterator[Event]:
    """Trains and yields events, the last of them Stopped; under torchrun only the first process yields any.

    A new run overwrites nothing: it raises FileExistsError if the folder holds a run, or a file that a run would write.
    `resume` goes on with the run in the folder, perhaps with another training. `init_from` is the folder of an earlier
    run of the task: its best weights are the initial ones, and its vocabularies and classes are kept. A loss that is
    not finite raises Diverged.
    """
    if isinstance(config, str | type):
        raise TypeError(f"config must be the options of a task, got {config!r}; write Translate.of(data='reverse')")
    checks.instance_of("training", training, TrainingConfig, "TrainingConfig(steps=1000)")
    run = Path(run)
    if resume and init_from is not None:
        raise ValueError(
            f"init_from={init_from} is for a new run, and resume goes on with an old one; give one of them"
        )
    initial = None if init_from is None else initial_run.read_initial_run(Path(init_from), config)
    threads_before = torch.get_num_threads()
    processes = distributed.join(training.device)
    with setup.locked_folder(config, run, resume, processes) as folder:
        try:
            with setup.recorded_run(config, folder, training, resume, processes, initial):
                if processes.is_first and (text := config.preparation_notice(run, new=not resume)):
                    yield Ahead(text)
                trainer = _Trainer(config, folder, training, resume, processes)
                yield from setup.version_warnings(run, resume, processes)
                yield from trainer.tune_threads()
                trainer.begin()
            try:
                with trainer.interrupts:
                    for event in trainer.events():
                        if processes.is_first:
                            yield event
            finally:
                trainer.close()
        finally:
            torch.set_num_threads(threads_before)


class _Trainer:
    """One call of fit: the objects built at its start, and the TrainingState, which changes with the weights."""

    def __init__(
        self,
        config: TrainableConfig,
        folder: LockedFolder,
        training: TrainingConfig,
        resume: bool,
        processes: Processes,
    ) -> None:
        self.folder, run = folder, folder.path
        self.config, self.run, self.training, self.resume, self.processes = config, run, training, resume, processes
        self.record, stored, self.state, self.problem = setup.load_everything(config, run, training, resume, processes)
        self.plan = EpochPlan(self.problem, self.state.epoch)
        self.steps = stopping.total_steps(training, self.plan.first_epoch_length)
        parts = processes.world if training.parallel == "shard" else 1
        set_seed(processes.device, config.seed)
        model = build_in_memory(self.problem.build_model, config, processes.device, parts)
        self.model: nn.Module = model.to(processes.device).train()
        self.parameters = sum(p.numel() for p in self.model.parameters())
        if stored is not None:
            checkpoint.load_model(self.model, stored, run / LAST)
        elif self.record.initial is not None:
            checkpoint.load(self.model, initial_run.weights_file(self.record.initial, run))
        objective = Objective(self.model, self.problem, processes.device, training.precision)
        self.stepper = Stepper(objective, self.problem, training, config.seed, processes)
        if stored is not None:
            checkpoint.load_optimizer(self.model, self.stepper.optimizer, stored, run / LAST)
            checkpoint.load_problem(self.problem, stored, run / LAST)
        self.thread_times: dict[int, float] = {}
        self.metrics: MetricsLog | None = None
        self.interrupts = Interrupts()
        self.sharded = training.parallel == "shard" and processes.world > 1
        self.validation = Validation(self.problem, run, processes.device, self.interrupts)
        self.first_step = self.state.step
        self.saved_state = replace(self.state, elapsed=0.0)
        self.saved_after = self.state.elapsed  # seconds of training at the last checkpoint
        # the clock, and the seconds and loss terms of the steps since the last logged one
        self.start, self.step_seconds, self.terms = 0.0, 0.0, 0
        self.reported = 0.0
        self.clock = ClockRequests()

    def begin(self) -> None:
        """Opens the files of the run and starts the clock."""
        if self.processes.is_first:
            self.folder.check_in_place()
            self.metrics = MetricsLog(self.run, self.state, self.training.tensorboard)
            try:
                record = replace(self.record, threads=torch.get_num_threads())
                record.with_files(self.run, self.config.run_files).write(self.run)
                write_config(self.run / CONFIG, self.config, self.training, self.record.options, self.record.initial)
            except BaseException:
                self.close()
                raise
        if self.record.initial is not None and not self.resume:
            self._save_initial_weights()
        self.start = self.reported = time.perf_counter()

    def _save_initial_weights(self) -> None:
        """Writes the checkpoint of step 0: from then on the run that it was initialised from may be deleted."""
        stored = self._collect()
        if self.processes.is_first:
            checkpoint.write(self.run / LAST, stored, {"step": 0, "progress": self.state.to_dict()})

    def close(self) -> None:
        if self.metrics is not None:
            self.metrics.close()

    def tune_threads(self) -> Iterator[Event]:
        """Sets the thread count: given, recorded, or timed after an event; and on a CPU malloc, unless switched off."""
        on_cpu = self.processes.device.type == "cpu"
        if on_cpu and self.training.retain_memory:
            malloc.retain_freed_memory()
        count, single = self.training.threads or self.record.threads, self.processes.world == 1
        # a count recorded by one process is too many for each of several
        if count is not None and (self.training.threads or single):
            torch.set_num_threads(count)
        elif on_cpu and single:
            counts = threads.counts()
            if len(counts) > 1:
                yield Prepared(self.run, self.parameters, str(self.processes.device), counts, self.problem.summary)
                self.thread_times = self._time_threads(counts)
                counts = [threads.fastest(self.thread_times)]
            torch.set_num_threads(counts[0])

    def _time_threads(self, counts: Sequence[int]) -> dict[int, float]:
        """Times passes of a copy of the model: weights, gradients and the state of the problem stay as they are."""
        problem_state = {name: t.clone() for name, t in self.problem.state_dict().items()}
        batch = self.problem.load_batch(self.plan.batches[0], 0, 1)
        count = self.problem.num_terms(batch)
        trial = Objective(copy.deepcopy(self.model), self.problem, self.processes.device, self.training.precision)
        times = threads.measure(lambda: trial(batch, count)[0].backward(), counts)
        if problem_state:
            self.problem.load_state_dict(problem_state)
        return times

    # The loop

    def events(self) -> Iterator[Event]:
        yield Started(
            run=self.run,
            parameters=self.parameters,
            device=str(self.processes.device),
            processes=self.processes.world,
            threads=torch.get_num_threads(),
            thread_times=self.thread_times,
            step=self.state.step,
            steps=self.steps,
            batches=self.plan.first_epoch_length,
            resumed=self.resume,
            summary=self.problem.summary,
        )
        yield from setup.warnings(self.run, self.resume, self.first_step, self.training, self.processes, self.problem)
        reason = None
        while reason is None:
            yield from self._scheduled_events()
            reason = stopping.stop_reason(self.training, self.steps, self.state) or self._step()
        yield from self._finish(reason)

    def _scheduled_events(self) -> Iterator[Event]:
        """Logs, validates and saves if it is time to, after the current step."""
        step = self.state.step
        if step and step % self.training.log_every == 0:
            yield from self._log()
        if self.clock.estimate:
            self._estimate_steps()
        if step and (self.clock.validate or step % self.training.validate_every == 0):
            yield from self._validate()
        # the estimate is saved at once: a run that is killed afterwards goes on with it
        if self.clock.estimate or self.clock.save or step % self.training.save_every == 0:
            yield from self._save()
        self.clock = ClockRequests()
        now = time.perf_counter()
        if self.state.window.steps and now - self.reported >= _REPORT_INTERVAL:
            self.reported = now
            yield InterimReport(self._progress(replace(self.state, elapsed=self._elapsed())))

    def _finish(self, reason: str) -> Iterator[Event]:
        self.clock = ClockRequests()
        if reason != "interrupted":
            yield from self._log()
            yield from self._validate()
            yield from self._average()
            if self.state.validated_at != self.state.step or self._must_average():
                reason = "interrupted"
        yield from self._save()
        if self.processes.is_first:
            self.folder.check_in_place()
            peak_memory.write(self.run)
        nothing_left = self.resume and self.state.step == self.first_step and reason != "interrupted"
        stopped = messages.stopped(reason, nothing_left, self.state, self.steps, self.training, self.run)
        if self.processes.is_first and reason != "interrupted":
            stopped = replace(stopped, notes=(*self._compare_with_baselines(), *self.problem.closing_notes()))
        yield stopped

    def _compare_with_baselines(self) -> Sequence[str]:
        """Sentences about the best weights and the baselines of the task, whose scores are written into the folder."""
        report = self.problem.baselines()
        if report is None or not (self.run / BEST).exists():
            return ()
        write_baselines(report, self.run)
        return messages.baseline_sentences(report, checkpoint.read(self.run / BEST).facts["score"][report.metric])

    def _step(self) -> str | None:
        """Updates the weights once, or returns the reason why not."""
        # before batches are loaded: loading may advance the state of the problem, which a checkpoint stores
        if (reason := self._stop_request()) is not None:
            return reason
        start, state = time.perf_counter(), self.state
        planned, epoch, place = self.plan.take(state.epoch, state.place, self.training.accumulate)
        batches = self.stepper.load(planned)
        (total_count,) = self.processes.sum([float(sum(count for _, count in batches))])
        if not total_count:
            raise ValueError(
                f"{self.problem.locate(planned)} of epoch {epoch} has no loss terms; leave it out of the plan"
            )
        count = int(total_count)
        try:
            result = self.stepper.step(batches, count, state.step, self._lr(state.step + 1))
        except Diverged as error:
            position = state.step + 1, epoch, planned, self.saved_state.step
            raise Diverged(messages.diverged(error, self.problem, *position, self.training)) from None
        window = state.window.add(result.total, count, result.norm, result.sums)
        self.state = replace(state, step=state.step + 1, epoch=epoch, place=place, window=window)
        self.terms += count
        self.step_seconds += time.perf_counter() - start
        return None

    def _stop_request(self) -> str | None:
        """The reason to stop before the next step: a signal to any process, or the clock of the first one.

        The other decisions of that clock hold after the step.
        """
        clock = ClockRequests()
        if self.processes.is_first:
            clock = time_budget.requests(self.training, self.steps, self.state, self._elapsed(), self.saved_after)
        wishes = [float(self.interrupts.stop_requested), clock.stop, clock.validate, clock.estimate, clock.save]
        interrupted, *decisions = map(bool, self.processes.sum(wishes))
        self.clock = ClockRequests(*decisions)
        return "interrupted" if interrupted else "minutes" if self.clock.stop else None

    def _estimate_steps(self) -> None:
        """Estimates the number of steps at the end of the minutes; all processes must call this."""
        elapsed = self._elapsed()
        steps, elapsed = self.processes.broadcast(
            [float(time_budget.estimated_steps(self.training, self.state, elapsed)), elapsed]
        )
        self.state = replace(self.state, estimate=time_budget.revised(self.training, self.state, int(steps), elapsed))

    def _lr(self, step: int) -> float:
        return self.training.lr * factor(self.training, step, self.steps, self.state.plateau, self.state.estimate)

    def _elapsed(self) -> float:
        return self.state.elapsed + time.perf_counter() - self.start

    def _update_elapsed(self) -> TrainingState:
        """Adds the time until now to the state."""
        now = time.perf_counter()
        self.state, self.start = replace(self.state, elapsed=self.state.elapsed + now - self.start), now
        return self.state

    # Log, validate, average, save

    def _log(self) -> Iterator[Event]:
        state = self._update_elapsed()
        if not state.window.steps:
            return
        event = self._progress(state)
        self.state = replace(state, window=LogWindow(), logged_at=state.step)
        self.step_seconds, self.terms, self.reported = 0.0, 0, time.perf_counter()
        if self.metrics is not None:
            self.metrics.step(event)
        yield event

    def _progress(self, state: TrainingState) -> StepLogged:
        """The means since the last logged step."""
        window = state.window
        return StepLogged(
            step=state.step,
            steps=self.steps,
            epoch=state.epoch + state.place / len(self.plan.batches),
            loss=window.total / window.count,
            lr=self._lr(state.step),
            norm=window.norm,
            tokens_per_second=self.terms / self.step_seconds if self.step_seconds else 0.0,
            elapsed=state.elapsed,
            remaining=stopping.remaining_seconds(self.training, self.steps, state),
            values={name: value / window.count for name, value in window.sums.items()},
            unit=self.problem.unit,
        )

    def _validate(self) -> Iterator[Event]:
        """Scores the current weights, unless they have a score, and writes the files that hold it."""
        state, step = self.state, self.state.step
        if state.validated_at == step:
            return
        start = time.perf_counter()
        model = self._whole_model()
        score = self._score(model)
        if self.sharded and model is not None and score is not None:
            # the validated model is a copy, and a validation may store its choices in buffers, as memory networks do
            checkpoint.copy_buffers(model, self.model)
        has_score, higher_is_better, value, nll = self.processes.broadcast(
            [0.0] * 4 if score is None else [1.0, score.higher_is_better, *score.score_key]
        )
        if not has_score:
            return
        key = value, nll
        improved = is_better(key, state.best, bool(higher_is_better))
        keep = is_better(key, state.kept, bool(higher_is_better))
        # The end of a training may validate out of turn; that must not count, or a run that is then made longer would
        # run out of patience earlier than one that was long from the start.
        in_turn = step % self.training.validate_every == 0 or (self.clock.validate and self.steps is None)
        plateau = state.plateau
        if in_turn:
            by = self.training.plateau_factor or PLATEAU_FACTOR
            plateau = plateau.after(improved, by, self.training.plateau_patience or PLATEAU_PATIENCE)
        self.state = replace(
            state,
            validated_at=step,
            best=key if improved else state.best,
            bad=0 if improved else state.bad + in_turn,
            kept=key if keep else state.kept,
            plateau=plateau,
            validate_at=time_budget.next_validation(self.training, self._elapsed(), time.perf_counter() - start),
            validation_seconds=0.0 if self.training.minutes is None else time.perf_counter() - start,
            validated=(*state.validated, step)[-self.training.average :] if self.training.average else (),
        )
        if self.state.estimate is not None and self.steps is None:
            self._estimate_steps()
        stored = self._collect()
        events: list[Event] = []
        if score is not None:
            assert self.metrics is not None
            self.folder.check_in_place()
            weights = Checkpoint({n: t for n, t in stored.tensors.items() if n.startswith("model.")}, stored.tied)
            is_tie = improved and state.best is not None and key[0] == state.best[0]
            validated = Validated(step, score, improved, time.perf_counter() - start, is_tie=is_tie)
            events.append(validated)
            self.metrics.validation(validated)
            if self.training.average:
                atomic_files.make_folder(self.run / VALIDATED)
                checkpoint.write(self._validated_path(step), weights, _facts(step, score))
            if keep:
                checkpoint.write(self.run / BEST, weights, _facts(step, score))
                events.append(Saved(self.run / BEST, step))
            events += map(Warned, score.warnings)
        yield from events
        yield from self._save(stored)
        # after the checkpoint, so that a failure costs no validation
        if model is not None and (warning := self.validation.draw_samples(model, step)):
            yield warning

    def _whole_model(self) -> nn.Module | None:
        """The model to validate, in the first process; of a sharded model all processes must call this."""
        if not self.sharded:
            return self.model if self.processes.is_first else None
        stored = checkpoint.collect(self.model)
        return self.validation.build_model(stored, self.run / LAST) if self.processes.is_first else None

    def _score(self, model: nn.Module | None) -> ValidationResult | None:
        """None without a model, or if a signal interrupted the validation."""
        return None if model is None else self.validation.score(model, derive_seed(self.config.seed, self.state.step))

    def _must_average(self) -> bool:
        return self.training.average > 0 and self.state.averaged_at != self.state.step

    def _average(self) -> Iterator[Event]:
        """Scores the mean of the last validated weights, and keeps it as the best if it scores better."""
        state, start = self.state, time.perf_counter()
        if not self._must_average() or state.validated_at != state.step:
            return
        model = None
        if self.processes.is_first:
            means = checkpoint.average([self._validated_path(step) for step in state.validated])
            model = self.validation.build_model(means, self.run / AVERAGE)
        score = self._score(model)
        (has_score,) = self.processes.broadcast([float(score is not None)])
        if not has_score:
            return
        self.state = replace(state, averaged_at=state.step)
        if score is not None:
            assert self.metrics is not None
            assert model is not None
            self.folder.check_in_place()
            # the weights are collected now, with the buffers that the validation has changed
            stored = checkpoint.collect(model)
            facts = {**_facts(state.step, score), "averaged": state.validated}
            checkpoint.write(self.run / AVERAGE, stored, facts)
            improved = is_better(score.score_key, state.kept, score.higher_is_better)
            if improved:
                checkpoint.write(self.run / BEST, stored, facts)
                self.state = replace(self.state, kept=score.score_key)
            event = Validated(state.step, score, improved, time.perf_counter() - start, of="average")
            self.metrics.validation(event)
            yield event
            yield Saved(self.run / AVERAGE, state.step)
        yield from self._save()

    def _validated_path(self, step: int) -> Path:
        return self.run / VALIDATED / f"{step}.safetensors"

    def _collect(self) -> Checkpoint:
        """The content of a checkpoint; all processes must call this."""
        problem_state = self.problem.state_dict()
        if not (self.processes.is_first or self.sharded):
            return Checkpoint({})
        return checkpoint.collect(self.model, self.stepper.optimizer, problem_state)

    def _save(self, stored: Checkpoint | None = None) -> Iterator[Event]:
        if replace(self.state, elapsed=0.0) == self.saved_state:
            return
        stored = stored or self._collect()
        state = self._update_elapsed()
        self.saved_state, self.saved_after = replace(state, elapsed=0.0), state.elapsed
        if self.metrics is None:
            return
        self.folder.check_in_place()
        self.metrics.sync()
        checkpoint.write(self.run / LAST, stored, {"step": state.step, "progress": state.to_dict()})
        # only now does no checkpoint refer to the older ones
        for path in (self.run / VALIDATED).glob("*.safetensors"):
            if path.stem.isdigit() and int(path.stem) not in state.validated:
                path.unlink(missing_ok=True)
        yield Saved(self.run / LAST, state.step)


def _facts(step: int, score: ValidationResult) -> dict[str, object]:
    return {"step": step, "score": dict(score.values), "main": score.main}
