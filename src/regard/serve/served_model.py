"""ServedModel: an endpoint with its limits and its path; the names under which several models share a service."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from regard.inference.endpoint import Endpoint
from regard.inference.limits import Limits

# first parts of paths that the service itself has
_OWN_PATHS = ("docs", "health", "metrics", "v1", "openapi.json", "page.css", "page.js")


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model of a service: all of its paths begin with /NAME, or are at the root if it has no name.

    `version` names its weights and files in answers and metrics; empty says nothing.
    """

    endpoint: Endpoint
    limits: Limits
    name: str = ""
    version: str = ""

    @property
    def prefix(self) -> str:
        return f"/{self.name}" if self.name else ""


def check_names(names: Sequence[str]) -> None:
    """Raises unless each name can be the first part of a path, and belongs to one model."""
    for n, name in enumerate(names):
        if name in names[:n]:
            raise ValueError(
                f"two runs have the name {name!r}, which is the path of a model; rename a folder, or make a link to it"
            )
        if not re.fullmatch(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*", name) or name in _OWN_PATHS:
            raise ValueError(
                f"{name!r} cannot be the path of a model: give the folder a name of letters, digits, '.', '_', '~' and "
                f"'-', other than {', '.join(_OWN_PATHS)}; or serve it alone"
            )
