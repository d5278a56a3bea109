"""The tasks whose runs can be attacked, and the attacks on each.  No torch here."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regard.common.suggestions import known
from regard.tasks.base import NoOptions, TaskConfig
from regard.tasks.registry import TASKS


def attackable_tasks(input_kind: str | None = None) -> dict[str, type[TaskConfig]]:
    """The tasks whose runs can be attacked; with `input_kind` those that read such inputs."""
    return {
        name: config
        for name, config in TASKS.items()
        if config.Attack is not NoOptions and input_kind in (None, config.input_kind)
    }


def choose_attack(run: Path | str, config: TaskConfig, attack: str | None, texts: Sequence[str] = ()) -> str:
    """The attack, or the first of the task; raises for a task without attacks, for an attack on other inputs, and for
    texts to attack if the task reads none.
    """
    tasks = attackable_tasks()
    if config.name not in tasks:
        raise ValueError(
            f"{run} is a run of {config.name}, which regard attack does not change; name a run of {', '.join(tasks)}"
        )
    if texts and not config.input_kind.is_text:
        raise ValueError(f"{run} is a run of {config.name}, which reads no texts; leave {texts[0]!r} out")
    kind: Any = config.Attack
    if attack is None:
        return str(kind.attacks[0])
    if attack not in kind.attacks:
        others: list[Any] = [each.Attack for each in tasks.values()]
        known("attack", attack, dict.fromkeys(name for each in others for name in each.attacks))
        changes = next(each.changes for each in others if attack in each.attacks)
        raise ValueError(
            f"attack={attack} {changes}, and {run} is a run of {config.name}; use attack={' or '.join(kind.attacks)}"
        )
    return attack
