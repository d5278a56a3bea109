"""Constraints for the oldest versions of other packages that pyproject.toml admits: python -m tests.oldest.

Requirements of users get their lower bound, torch and packages of the tests alone the pin of constraints.txt; what
these packages need themselves is left to pip.
"""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
DEVELOPERS = ("test", "check", "docs", "bench", "minigrid", "dev")


def lower_bounds() -> dict[str, str]:
    """The lower bound of every requirement of users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    texts = [*project["dependencies"], *(text for name in extras if name not in DEVELOPERS for text in extras[name])]
    bounds = {}
    for requirement in map(Requirement, texts):
        if requirement.name != "regard":
            lower = [clause.version for clause in requirement.specifier if clause.operator == ">="]
            if not lower:
                raise ValueError(f"{requirement} has no lower bound; write the oldest version that the tests pass with")
            bounds[canonicalize_name(requirement.name)] = lower[0]
    return bounds


def constraints() -> list[str]:
    """The lines of a constraints file."""
    bounds = lower_bounds()
    for name in ("torch", "triton"):  # torch with CUDA brings its own triton
        del bounds[name]
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    of_tests = {canonicalize_name(Requirement(text).name) for text in project["optional-dependencies"]["test"]}
    pinned = sorted(({*of_tests, "torch"} & pins.keys()) - bounds.keys())
    return [f"{name}=={version}" for name, version in bounds.items()] + [f"{name}=={pins[name]}" for name in pinned]


if __name__ == "__main__":
    print("\n".join(constraints()))
