"""The benchmark of agents: its rows, its bounds, its file."""

from pathlib import Path

from benchmarks import agents
from benchmarks.vision.result import Result
from tests.for_each import for_each

SMALL = {"width": 8, "batch": 4, "passes": 1, "minibatches": 1, "valid_episodes": 3}
FEW = ["--seeds", "1", "--seconds", "0", "--episodes", "4", "--validate-every", "1"]


@for_each(
    ("part", "options", "bounds"),
    [
        ("memories", ["--envs", "pairs", "--memories", "dot", "none"], [0.95, None]),
        ("tmaze", ["--length", "2"], [2, None]),
        ("minigrid", ["--gym", "gym:FrozenLake-v1"], [2, None]),
        ("target", [], [0.9, 0.8, None, 0.9, 0.8, None]),
        ("message", [], [0.95, None, None]),
        ("arm", [], [0.9, 0.8, 0.8, None]),
        ("decision", ["--pairs", "1"], [None, 0.1, 0.1]),
        ("speed", ["--memories", "additive", "--segments", "3"], [10_000]),
    ],
)
def test_parts(part: str, options: list[str], bounds: list[float | None], tmp_path: Path) -> None:
    assert agents.main(["--part", part, *options, *FEW], tmp_path, **SMALL) == 0
    (path,) = tmp_path.glob("*.json")
    assert path.stem.startswith(part)
    found = Result.read(path)
    assert [row.bound and row.bound.value for row in found.rows] == bounds
    few = "--seeds 1 --seconds 0.0 --validate-every 1 --episodes 4"
    assert sorted(found.commands[0].split()) == sorted(
        ["python", "-m", "benchmarks.agents", "--part", part, *options, *few.split()]
    )
