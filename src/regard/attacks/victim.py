"""Victim: the model under attack, as a function of inputs in the box; its logits, gradients and random draws."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attacks.objectives import Objective
from regard.common import checks


class LossGradient(NamedTuple):
    """The loss of each input, its gradient, and the logits behind it."""

    loss: Tensor  # "b"
    gradient: Tensor  # "b ..."
    logits: Tensor  # "b k"


class FirstStep(NamedTuple):
    """Facts about the first gradients of inputs, by which masked gradients are found."""

    has_gradient: Tensor  # "b"
    is_saturated: Tensor  # "b": whether the probability of a class is 1 in floating point
    has_probabilities: Tensor  # "b": whether the logits are a distribution, as of a softmax


class Victim:
    """Logits of inputs from 0 to 1, whose model is in evaluation mode.

    A model that draws random numbers in evaluation mode is stochastic: each of its values is then a mean over `samples`
    passes, of gradients for a step and of probabilities for a verdict (EOT, Athalye et al. 2018). Whether it draws
    shows in the state of the random generator, which costs no pass.
    """

    def __init__(self, logits: Callable[[Tensor], Tensor], samples: int, highest_label: int = 0) -> None:
        self._logits, self._most, self._highest_label = logits, samples, highest_label
        self.is_stochastic: bool | None = None  # not known before the first pass
        self.first_steps: list[FirstStep] = []
        self.passes = 0  # so far

    @property
    def samples(self) -> int:
        """Passes per value."""
        return self._most if self.is_stochastic else 1

    @torch.no_grad()
    def logits(self, x: Tensor) -> Tensor:  # "b ..." -> "b k"
        """Logits, or logarithms of the mean probabilities."""
        first = self._forward(x)
        if not self.is_stochastic:
            return first
        further = (self._forward(x).softmax(-1) for _ in range(self.samples - 1))
        return ((first.softmax(-1) + sum(further)) / self.samples).log()

    def gradient(self, x: Tensor, objective: Objective) -> LossGradient:  # "b ..."
        first = self._sample_gradient(x, objective)
        if not self.is_stochastic:
            return first
        samples = [first, *(self._sample_gradient(x, objective) for _ in range(self.samples - 1))]
        loss, gradient = (torch.stack([sample[n] for sample in samples]).mean(0) for n in (0, 1))
        probabilities = torch.stack([sample.logits.softmax(-1) for sample in samples]).mean(0)
        return LossGradient(loss, gradient, probabilities.log())

    def note_first_step(self, evaluation: LossGradient) -> None:
        """Keeps the facts that `regard.attacks.diagnostics` reads."""
        logits, gradient = evaluation.logits, evaluation.gradient
        is_share = (logits >= 0).all(1) & ((logits.sum(1) - 1).abs() < 1e-3)
        step = FirstStep(gradient.flatten(1).any(1), logits.softmax(1).amax(1) == 1, is_share)
        self.first_steps.append(step)

    def _sample_gradient(self, x: Tensor, objective: Objective) -> LossGradient:
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            logits = self._forward(x)
            loss = objective(logits)
            # gradients of the inputs alone: those of the parameters are neither computed nor changed
            gradient = torch.autograd.grad(loss.sum(), x, allow_unused=True)[0] if loss.requires_grad else None
        if gradient is None and torch.is_inference_mode_enabled():
            raise ValueError(
                "an attack by gradients cannot run under torch.inference_mode(), which has none; leave its block, or "
                "use the attack Square"
            )
        if gradient is None:
            raise ValueError(
                "the logits of the model do not depend on the inputs by operations that have gradients; use the attack "
                "Square, which needs none"
            )
        return LossGradient(loss.detach(), gradient, logits.detach())

    def _forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        if self.is_stochastic is not None:
            return _logits_of(self._logits(x))
        before = _random_state(x.device)
        logits = _logits_of(self._logits(x))
        self.is_stochastic = not torch.equal(before, _random_state(x.device))
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(x) or logits.shape[1] < 2:
            received = checks.shape(logits) if isinstance(logits, Tensor) else type(logits).__name__
            raise ValueError(
                f"the model must return logits of two classes or more, ({len(x)}, classes), got {received}; wrap it in "
                "a module that returns them"
            )
        if self._highest_label >= logits.shape[1]:
            raise ValueError(
                f"targets must be from 0 to {logits.shape[1] - 1}, the logits of the model, got {self._highest_label}; "
                "number the classes as the model does"
            )
        return logits


def _logits_of(output: Any) -> Any:
    """The logits in the output of a classifier of transformers; any other output as it is."""
    return output if isinstance(output, Tensor) else getattr(output, "logits", output)


def _random_state(device: torch.device) -> Tensor:
    """The state of the generators that a model on this device draws from."""
    state = torch.get_rng_state()
    return torch.cat([state, torch.cuda.get_rng_state(device)]) if device.type == "cuda" else state
