"""regard serve: a trained model over HTTP, with a web page and a JSON API."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli import run_options
from regard.cli.run_options import parse_with_run
from regard.common.option_checks import check_positive
from regard.common.option_fields import flag, positional
from regard.tasks.registry import describe

if TYPE_CHECKING:
    from regard.inference.limits import Limits


@dataclass(frozen=True)
class ServeOptions:
    """Serve a trained model: a web page that shows its outputs and their attention, and a JSON API. Ctrl-C stops it.

    POST /v1/translate {"text": …} or /v1/classify {"image": base64}, GET /v1/model, /health, /metrics, /openapi.json.
    Only this machine can connect, unless --host says otherwise; inputs are neither stored nor logged.
    `regard serve RUN --help` lists only the limits of the task of that run.
    """

    run: Path = positional()
    """The folder of a run, or of a released model in transformers' layout."""
    host: str = "127.0.0.1"
    """The address to listen at; 0.0.0.0 lets other machines connect."""
    port: int = 8080
    """The port to listen at; 0 takes a free one, and the address is printed."""
    allow_host: tuple[str, ...] = ()
    """Further host names of the service, such as that of a proxy in front of it."""

    batch: int = 64
    """Inputs that the model answers at once, at most."""
    waiting: int = 512
    """Inputs that may wait; further requests get status 429."""
    seconds: float = 30.0
    """The time limit of an answer (503), waiting included."""
    arrival: float = 10.0
    """The time limit for a request to arrive (408)."""
    texts: int = 32
    """Inputs per request, at most."""

    log: bool = flag()
    """Print a line per request: time, path, status, duration; never its content."""
    task: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ValueError(f"--port must be 0 to 65535, got {self.port}; 0 takes a free one")
        check_positive(self, "batch", "waiting", "texts")
        for name in ("seconds", "arrival"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"--{name} must be more than 0 and finite, got {getattr(self, name)}")


def run(args: Sequence[str]) -> int:
    options, config = parse_with_run(ServeOptions, "regard serve", args, "Serve")
    of_task = config.Serve(**options.task)
    if not config.is_served:
        raise ValueError(
            f"{describe(options.run, config)}, which is not served; "
            f"use {config.next_command(shlex.quote(str(options.run)))}"
        )
    from regard.serve.server import address, listen, serve
    from regard.viz.html.security import is_loopback

    limits = _limits(options, of_task)
    loaded = run_options.load(options.run, options.load)
    endpoint = loaded.predictor.endpoint(limits, run=options.run.resolve().name, step=loaded.step)
    with listen(options.host, options.port) as socket:

        def ready() -> None:
            if not is_loopback(options.host):
                _note(
                    f"--host {options.host} lets in everyone who reaches this machine, without a password and "
                    "unencrypted; put a proxy with both in front of it, or leave --host out"
                )
            print(f"{options.run} is served at {address(socket)} (Ctrl-C stops it)", flush=True)

        log = _print if options.log else None
        count = serve(endpoint, limits, socket, host=options.host, allowed=options.allow_host, log=log, ready=ready)
    _note(f"stopped; {count} request{'s' * (count != 1)} answered")
    return 0


def _limits(options: ServeOptions, of_task: Any) -> "Limits":
    """The limits that were typed, or that the task gives; otherwise the defaults of Limits."""
    from regard.inference.limits import Limits

    names = [item.name for item in fields(Limits)]
    values = {name: getattr(of_task, name, getattr(options, name, None)) for name in names}
    return Limits(**{name: value for name, value in values.items() if value is not None})


def _note(text: str) -> None:
    _print(f"regard: {text}")


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
