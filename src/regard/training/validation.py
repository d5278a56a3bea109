"""Validation during a training, in one process: the score of a model, and samples of its outputs."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.common import atomic_files
from regard.training import checkpoint
from regard.training.checkpoint import Checkpoint
from regard.training.events import Warned
from regard.training.protocol import TrainingProblem, ValidationResult
from regard.training.run_folder import SAMPLES
from regard.training.runtime.signals import Interrupts, StopRequested
from regard.training.step import set_seed


@dataclass(frozen=True)
class Validation:
    problem: TrainingProblem[Any, Any]
    run: Path
    device: torch.device
    interrupts: Interrupts

    def build_model(self, stored: Checkpoint, path: Path) -> nn.Module:
        """A model with the stored weights, whole in this process.

        Built anew each time: a large model leaves no room for a second one between validations.
        """
        model: nn.Module = self.problem.build_model().to(self.device)
        checkpoint.load_model(model, stored, path)
        return model

    def score(self, model: nn.Module, seed: int) -> ValidationResult | None:
        """The score of the model, with random draws from this seed; None if a signal interrupted it."""
        set_seed(self.device, seed)
        model.eval()
        try:
            with torch.no_grad(), self.interrupts.raise_stop_requests():
                return self.problem.validate(model)
        except StopRequested:
            return None
        finally:
            model.train()

    def draw_samples(self, model: nn.Module, step: int) -> Warned | None:
        """Draws outputs of the model if the problem does so; a warning if that fails."""
        path = self.run / SAMPLES / f"{step}.png"
        model.eval()
        drawn = False
        try:
            atomic_files.make_folder(path.parent)
            with torch.no_grad():
                drawn = self.problem.draw_samples(model, path)
        except (OSError, ImportError) as error:
            return Warned(f"no picture of step {step}: {error}")
        finally:
            model.train()
            if not drawn:
                # removes the folder only if it is empty
                with contextlib.suppress(OSError):
                    path.parent.rmdir()
        return None
