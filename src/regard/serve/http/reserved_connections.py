"""Connections that a busy service keeps for checks of its health: a full house must not look like a dead one."""

from typing import Any

from starlette.types import Scope

HEALTH, LIVE, READY = "/health", "/health/live", "/health/ready"
HEALTH_PATHS = (HEALTH, LIVE, READY)
_STATE = "regard.reserved"


def reserved_count(connections: int) -> int:
    """The number of connections of a service that answer /health alone: an eighth, at most 16."""
    return min(connections // 8, 16)


def reserve(app_state: dict[str, Any]) -> dict[str, Any]:
    """The state of the requests of a connection that answers /health alone."""
    return {**app_state, _STATE: True}


def is_reserved(scope: Scope) -> bool:
    """Whether a request came on a connection that answers /health alone."""
    return _STATE in scope.get("state", ())
