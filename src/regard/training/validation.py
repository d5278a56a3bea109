"""A validation amid a training: one process alone looks at what the weights are worth."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from regard.common import atomic_files
from regard.training import checkpoint
from regard.training.checkpoint import Checkpoint
from regard.training.events import Warned
from regard.training.protocol import Draws, TrainingProblem, ValidationResult
from regard.training.run_folder import SAMPLES
from regard.training.runtime.signals import Interrupts, StopRequested
from regard.training.step import seed


@dataclass(frozen=True)
class Validation:
    work: TrainingProblem
    run: Path
    device: torch.device
    interrupts: Interrupts

    def filled(self, stored: Checkpoint, path: Path) -> nn.Module:
        """A model of its own with the stored weights: no other process has part in it.

        Made anew each time: where a model hardly fits, nobody has room for one between validations.
        """
        model = self.work.model().to(self.device)
        checkpoint.load_model(model, stored, path)
        return model

    def score(self, model: nn.Module, number: int) -> ValidationResult | None:
        """What the model is worth, drawing by the seed of this number; None if a signal came in between."""
        seed(self.device, number)
        model.eval()
        try:
            with torch.no_grad(), self.interrupts.at_once():
                return self.work.validate(model)
        except StopRequested:
            return None
        finally:
            model.train()

    def picture(self, model: nn.Module, step: int) -> Warned | None:
        """What the model makes, beside its score, if it makes something to look at; or why there is no picture."""
        if not isinstance(self.work, Draws):
            return None
        path = self.run / SAMPLES / f"{step}.png"
        model.eval()
        try:
            atomic_files.make_folder(path.parent)
            with torch.no_grad():
                self.work.picture(model, path)
        except (OSError, ImportError) as error:
            return Warned(f"no picture of step {step}: {error}")
        finally:
            model.train()
        return None
