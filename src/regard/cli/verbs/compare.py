"""regard compare: several attentions on the same data with the same budget."""

import dataclasses
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from regard.cli.main import choose, say_error
from regard.cli.parsing import toml_config
from regard.cli.parsing.options import part
from regard.cli.verbs.train import ABOUT, chosen, there, training_of
from regard.tasks.registry import TASKS, Kind
from regard.training.config import TrainingConfig

_CONFIG = "compare.toml"
_ABOUT = """Example: regard compare translate --data reverse --attention additive,general,dot,entmax,none --minutes 5
Example: regard compare classify-image --gate none,se,eca,cbam,simam --epochs 20
Example: regard compare caption --attention soft,hard --minutes 10
Example: regard compare glimpse --glimpses 1,2,4 --minutes 2
Example: regard compare generate --attention none,half,whole --minutes 10
`regard compare TASK --help` lists the options."""


@dataclass(frozen=True, kw_only=True)
class Contest:
    """Every one is an ordinary run, FOLDER/NAME, in a process of its own with the same budget. The command given again
    goes on where it ended: what is trained already stays, new names are added. table.md, results.json and curve.png say
    what came out: the best validation score, what is learned from a second (the median), parameters, the peak of the
    process's memory, and the time.
    """

    out: Path | None = None
    """The folder for the runs and what came out; left open, runs/compare-TASK."""
    seeds: int = 1
    """Train each so many times, by --seed and the numbers after it; the table then tells means and 95 % intervals."""
    config: Path | None = None
    """A TOML file with options, such as the config.toml of a run; those typed win. Its paths start where you are."""
    task: dict[str, Any] = field(default_factory=dict, metadata=part())
    training: dict[str, Any] = field(default_factory=dict, metadata=part(TrainingConfig))


@dataclass(frozen=True, kw_only=True)
class Attentions(Contest):
    """Train the same model with several attentions."""

    attention: str = field(metadata={"metavar": "NAME,NAME,..."})
    """Mechanisms by name, as `regard list` has them; none is a decoder without attention. One a head: dot+entmax+…"""


@dataclass(frozen=True, kw_only=True)
class Gates(Contest):
    """Train the same network with several gates."""

    gate: str = field(metadata={"metavar": "NAME,NAME,..."})
    """Gates by name, as `regard list gates` has them; none is a network without."""


@dataclass(frozen=True, kw_only=True)
class Glimpses(Contest):
    """Train the same model with several numbers of glimpses."""

    glimpses: str = field(metadata={"metavar": "N,N,..."})
    """How often the model looks before it answers, such as 1,2,4."""


@dataclass(frozen=True, kw_only=True)
class Places(Contest):
    """Train the same model of captions with several attentions."""

    attention: str = field(metadata={"metavar": "NAME,NAME"})
    """soft, hard: all places mixed by their weights, or one that is drawn."""


@dataclass(frozen=True, kw_only=True)
class Blocks(Contest):
    """Train the same two networks with the attention block at several places."""

    attention: str = field(metadata={"metavar": "NAME,NAME,..."})
    """none, quarter, half, whole: the map that the block looks at, by its share of the picture's size."""


# what is typed, and the option that differs
VARIED: dict[str, tuple[type[Any], str]] = {
    "translate": (Attentions, "attention"),
    "classify-image": (Gates, "gate"),
    "glimpse": (Glimpses, "glimpses"),
    "caption": (Places, "attention"),
    "generate": (Blocks, "attention"),
}


def verb(args: Sequence[str]) -> int:
    task = choose("regard compare", "TASK", ABOUT, args, _ABOUT)
    if task is None:
        return 0
    options, differs = VARIED[task]
    typed = chosen(options, "compare", task, args[1:])
    out = Path("runs") / f"compare-{task}" if typed.out is None else typed.out
    base = there(TASKS[task](**typed.task).placed())
    training, end = training_of(typed.training, base)
    tasks = seeded(base.versions(named(differs, getattr(typed, differs))), typed.seeds)
    if end:
        print(f"regard: each training {end}", file=sys.stderr)
    from regard.cli.comparison import check, results, run

    check(tasks)
    _claim(out, base, training)
    for name, one in tasks.items():
        code = run(name, task, one, out, out / _CONFIG)
        if code == 130:
            command = shlex.join(["regard", "compare", *args])
            say_error(f"interrupted while {name} was trained; the same command goes on: {command}")
            return 130
        if code:
            return code
    print(results(tasks, out, training))
    return 0


def seeded(tasks: Mapping[str, Kind], seeds: int) -> dict[str, Kind]:
    """Each with so many seeds, NAME@SEED; with one, as they are."""
    if seeds < 1:
        raise ValueError(f"--seeds must be 1 or more, got {seeds}; try --seeds 5")
    if seeds == 1:
        return dict(tasks)
    return {
        f"{name}@{task.seed + n}": dataclasses.replace(task, seed=task.seed + n)
        for name, task in tasks.items()
        for n in range(seeds)
    }


def named(option: str, names: str) -> list[str]:
    """Names between commas, each once."""
    found = [name.strip() for name in names.split(",")]
    if twice := [name for name in found if found.count(name) > 1]:
        raise ValueError(f"--{option} names {twice[0]!r} twice; name each once")
    return found


def _claim(out: Path, base: Kind, training: TrainingConfig) -> None:
    """The folder, for comparisons with these options only."""
    path = out / _CONFIG
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        toml_config.write(path, base, training)
        return
    before, now = toml_config.read(path, type(base)), {**_given(base), **_given(training)}
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            raise ValueError(
                f"{out} holds a comparison with {name} {before.get(name)!r}, not {now.get(name)!r}; "
                "give the same options, or another --out"
            )


def _given(of: Any) -> Mapping[str, Any]:
    """The choices as a file would have them: without what is left open."""
    return {
        one.name: getattr(of, one.name)
        for one in dataclasses.fields(of)
        if getattr(of, one.name) is not None or one.default is not None
    }
