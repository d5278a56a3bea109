"""regard serve: trained models over HTTP, each with a web page and a JSON API."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from regard.cli.output import note
from regard.cli.run_options import parse_with_runs
from regard.cli.served_runs import ServedRuns
from regard.common.options.checks import CheckedOptions
from regard.common.options.fields import at_least, flag, option, positional, positive
from regard.common.wording import plural
from regard.inference.limits import Limits
from regard.serve.access import check_origin
from regard.tasks.registry import describe

# warnings about a service that other machines reach, without a token and with one
_WARNINGS = (
    "lets in everyone who reaches this machine, without a password and unencrypted; "
    "put a proxy with both in front of it",
    "lets in everyone who has the token, which is sent unencrypted; put a proxy with TLS in front of it",
)


@dataclass(frozen=True)
class ServeOptions(CheckedOptions):
    """Serve trained models: a web page that shows outputs and their attention, and a JSON API. Ctrl-C stops it, and
    SIGHUP exchanges the runs whose files have changed, and the tokens, without losing a request.

    POST /v1/translate {"text": …} or /v1/classify {"image": base64}, GET /v1/model, /health, /metrics, /openapi.json
    and /docs; several runs are under the names of their folders: POST /en-de/v1/translate. Only this machine can
    connect, unless --host says otherwise; inputs are neither stored nor logged. `regard serve RUN --help` lists only
    the limits of the task of that run.
    """

    run: tuple[Path, ...] = positional(metavar="RUN [RUN ...]")
    """Folders of runs, or of released models in transformers' layout."""
    host: str = "127.0.0.1"
    """The address to listen at; 0.0.0.0 lets other machines connect."""
    port: int = 8080
    """The port to listen at; 0 takes a free one, and the address is printed."""
    allow_host: tuple[str, ...] = ()
    """Further host names of the service, such as that of a proxy in front of it."""
    allow_origin: tuple[str, ...] = ()
    """Sites whose pages may ask the service from a browser, such as https://www.example.org."""
    token: str | None = None
    """A token that requests must send (Authorization: Bearer TOKEN); the process list of this machine shows it."""
    token_file: Path | None = option(None, metavar="FILE")
    """A file with the token, which no process list shows; or with several, a line each: a name, a blank, the token."""

    batch: int = at_least(1, Limits.batch)
    """Inputs that the model answers at once, at most."""
    waiting: int = at_least(1, Limits.waiting)
    """Inputs that may wait; further requests get status 429."""
    seconds: float = positive(Limits.seconds)
    """The time limit of an answer (503), waiting included."""
    arrival: float = positive(Limits.arrival)
    """The time limit for a request to arrive (408)."""
    client_waiting: int | None = at_least(1, example=64)
    """Inputs of one client, a named token or an address, that may wait or be answered at once; None does not limit."""
    client_seconds: float | None = positive(example=20)
    """Seconds of a model that one client may use up per minute, computing; further requests get status 429."""
    client_connections: int | None = at_least(1, example=16)
    """Connections of one address at once; behind a proxy all have that of the proxy."""
    texts: int = at_least(1, Limits.texts)
    """Inputs per request, at most."""

    log: bool = flag()
    """Print a line per request: time, path, status, duration; never its content."""
    task: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ValueError(f"--port must be 0 to 65535, got {self.port}; 0 takes a free one")
        super().__post_init__()
        if self.token is not None and self.token_file is not None:
            raise ValueError("--token and --token-file both give the token; leave one of them out")
        for origin in self.allow_origin:
            check_origin(origin)
        if not all(host.strip() for host in self.allow_host):
            raise ValueError("--allow-host must be the name of a host, got ''; try --allow-host translate.example")


def run(args: Sequence[str]) -> int:
    options, configs = parse_with_runs(ServeOptions, "serve", args)
    for folder, config in zip(options.run, configs, strict=True):
        if not config.is_served:
            raise ValueError(
                f"{describe(folder, config)}, which is not served; use {config.next_command(shlex.quote(str(folder)))}"
            )
    runs = ServedRuns(options)
    tokens = runs.tokens()
    models = runs.load(configs)
    from regard.serve.server import ModelFailed, address, listen, serve, server
    from regard.viz.html.security import is_loopback

    with listen(options.host, options.port) as socket:

        def ready() -> None:
            if not is_loopback(options.host):
                note(f"--host {options.host} {_WARNINGS[bool(tokens)]}, or leave --host out")
            verb = "is" if len(models) == 1 else "are"
            names = ", ".join(map(str, options.run))
            print(f"{names} {verb} served at {address(socket)} (Ctrl-C stops it)", flush=True)

        running = server(
            models,
            host=options.host,
            allowed=options.allow_host,
            origins=options.allow_origin,
            tokens=tokens,
            log=partial(print, file=sys.stderr, flush=True) if options.log else None,
            reload=runs.reload,
            note=note,
        )
        try:
            count = serve(running, socket, ready)
        except ModelFailed:
            note("a model failed, as the log says; start the service again")
            return 1
    note(f"stopped; {plural(count, 'request')} answered")
    return 0
