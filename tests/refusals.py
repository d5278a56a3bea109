"""Tables of refusals: by the kind of the error, each sentence with an act that is refused by it."""

from collections.abc import Callable, Mapping
from pathlib import Path

Act = Callable[[Path], object]


def check_refusals(refused: Mapping[type[Exception], Mapping[str, Act]], folder: Path) -> None:
    """Every act raises its kind of error with its sentence, and leaves the folder empty."""
    faults = []
    for kind, acts in refused.items():
        for sentence, act in acts.items():
            try:
                act(folder)
            except kind as error:
                if sentence not in str(error):
                    faults.append(f"{sentence!r} is not in {str(error)!r}")
            else:
                faults.append(f"nothing refuses {sentence!r}")
    assert not faults, "\n".join(faults)
    assert not list(folder.iterdir())
