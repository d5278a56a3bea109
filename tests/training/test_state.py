"""TrainingState: it comes back from JSON, and a field that cannot be is named."""

import json
import math
from typing import Any

import pytest
from tests.for_each import for_each

from regard.training.schedule import Plateau, StepEstimate
from regard.training.state import LogWindow, TrainingState

STATE = TrainingState(
    step=11,
    epoch=2,
    place=3,
    elapsed=5.5,
    best=(0.25, math.nan),
    bad=1,
    kept=(0.25, math.inf),
    plateau=Plateau(0.5, 1),
    logged_at=7,
    validated_at=10,
    averaged_at=5,
    validated=(5, 10),
    window=LogWindow(3.5, 13, 4, 0.1, {"right": 2.0}),
    validate_at=2.5,
    estimate=StepEstimate(3.0, 17, 5, 0.5),
)


def as_json(**changes: Any) -> Any:
    return json.loads(json.dumps({**STATE.to_dict(), **changes}))


def test_it_comes_back() -> None:
    assert repr(TrainingState.from_dict(as_json())) == repr(STATE)
    assert TrainingState.from_dict(as_json(best=None, kept=None)).best is None


@for_each("name", sorted(STATE.to_dict()))
def test_no_field_may_be_missing(name: str) -> None:
    values = as_json()
    del values[name]
    with pytest.raises(ValueError, match=f"it lacks {name}$"):
        TrainingState.from_dict(values)


@pytest.mark.parametrize("value", ["x", True, {}, [1, 2, 3, "4"], 10**30, -1])
@pytest.mark.parametrize("name", STATE.to_dict())
def test_no_field_may_be_of_another_type(name: str, value: Any) -> None:
    # a number of seconds
    if name in ("elapsed", "validate_at", "validation_seconds") and value == 10**30:
        return
    with pytest.raises(ValueError, match=rf"{name}\b"):
        TrainingState.from_dict(as_json(**{name: value}))


@for_each(
    ("changes", "message"),
    [
        ({"place": -1}, r"place must be from 0 to 2\^53, got -1"),
        ({"epoch": 2**53}, r"epoch must be from 0 to 2\^53, got 9007199254740992"),
        ({"logged_at": 12}, "logged_at must be at most the step 11, got 12"),
        ({"validated": [10, 5]}, r"validated must be rising steps up to 11, got \(10, 5\)"),
        ({"validated": [12]}, r"validated must be rising steps up to 11, got \(12,\)"),
        ({"elapsed": math.nan}, "elapsed must be a finite number from 0, got nan"),
        ({"plateau": {"factor": -1.0, "bad": 0}}, "plateau.factor must be a finite number from 0, got -1.0"),
        ({"window": {**STATE.to_dict()["window"], "count": -3}}, r"window.count must be from 0 to 2\^53, got -3"),
        ({"window": {"total": 1.0, "count": 3}}, "it lacks norm, steps, sums in window"),
        ({"estimate": {"minutes": 3.0, "steps": -1, "start": 5}}, r"estimate.steps must be from 0 to 2\^53, got -1"),
        ({"estimate": {"minutes": -3.0, "steps": 9, "start": 5}}, "estimate.minutes must be a finite number from 0"),
        ({"mood": 3, "luck": 7}, "it has fields that this version does not know: luck, mood"),
    ],
)
def test_numbers_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingState.from_dict(as_json(**changes))
