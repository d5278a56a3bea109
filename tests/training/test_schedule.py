"""Schedules against torch's own and against their closed forms."""

import math
from typing import Any

import pytest
import torch
from tests.for_each import for_each
from torch.optim import lr_scheduler

from regard.training import schedule
from regard.training.config import TrainingConfig
from regard.training.schedule import Plateau


def rates(make: Any, steps: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler, lrs = make(optimizer), []
    for _ in range(steps):
        lrs.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return lrs


def factors(name: Any, steps: int) -> list[float]:
    training = TrainingConfig(steps=steps, schedule=name, warmup=0)
    return [schedule.factor(training, step, steps, Plateau()) for step in range(1, steps + 1)]


def test_cosine_is_that_of_torch() -> None:
    want = rates(lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=23), 23)
    assert factors("cosine", 23) == pytest.approx(want, abs=1e-12)


def test_linear_is_that_of_torch() -> None:
    want = rates(lambda o: lr_scheduler.LinearLR(o, start_factor=1.0, end_factor=0.0, total_iters=23), 23)
    assert factors("linear", 23) == pytest.approx(want, abs=1e-12)


@for_each(
    ("name", "warmup"),
    [
        (name, warmup)
        for name in ("constant", "inverse-sqrt", "cosine", "linear", "plateau")
        for warmup in (0, 1, 5)
        if warmup or name != "inverse-sqrt"  # which is refused
    ],
)
def test_a_schedule_rises_to_one_and_never_again(name: Any, warmup: int) -> None:
    training = TrainingConfig(steps=29, schedule=name, warmup=warmup)
    factors = [schedule.factor(training, step, 29, Plateau()) for step in range(1, 30)]
    assert factors[:warmup] == pytest.approx([step / warmup for step in range(1, warmup + 1)])
    assert max(factors) == 1.0
    after = factors[max(warmup - 1, 0) :]
    assert after == sorted(after, reverse=True)
    assert min(factors) > 0, "a step without a learning rate is a step for nothing"


def test_the_inverse_square_root_is_its_formula() -> None:
    # Vaswani et al. 2017: min(s^-0.5, s w^-1.5), scaled to one at its peak
    for step in range(1, 100):
        want = min(step**-0.5, step * 7**-1.5) * math.sqrt(7)
        assert schedule.inverse_sqrt(step, 7) == pytest.approx(want)


def test_beyond_the_end_nothing_is_learned() -> None:
    for name in ("cosine", "linear"):
        training = TrainingConfig(steps=23, schedule=name, warmup=3)
        assert schedule.factor(training, 50, 23, Plateau()) == pytest.approx(0.0)


def test_plateau_is_that_of_torch() -> None:
    scores = [5.0, 4.0, 4.5, 4.2, 4.1, 3.0, 3.5, 3.5, 3.5, 3.5, 3.5, 2.0, 2.5]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    # torch lowers after more than `patience` bad ones, we after as many; its cooldown of 0 is ours
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=0.0)
    plateau, best = Plateau(), math.inf
    for score in scores:
        scheduler.step(score)
        plateau = plateau.after(score < best, by=0.5, patience=2)
        best = min(best, score)
        assert plateau.factor == optimizer.param_groups[0]["lr"]
    assert plateau.factor == 0.125
