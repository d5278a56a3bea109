"""regard serve: a trained model behind HTTP, with a page to type into, or to drop a picture on."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from regard.cli.answers import refuse
from regard.cli.parsing.options import Flag, left_open, parse, positive

if TYPE_CHECKING:
    from regard.inference.limits import Limits
    from regard.serve.image_endpoint import ImageEndpoint
    from regard.serve.translate_endpoint import TranslateEndpoint


@dataclass(frozen=True)
class Options:
    """Serve a trained model: a page where one types, or drops a picture, and sees what it looks at, and a JSON API.
    Ctrl-C stops it.

    POST /v1/translate {"text": …} or /v1/classify {"image": base64}, GET /v1/model, /health, /metrics, /openapi.json.
    Only this machine reaches it, unless --host says otherwise; texts and pictures are neither kept nor logged.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """The folder of a training."""
    host: str = "127.0.0.1"
    """The address to listen at; 0.0.0.0 lets other machines in."""
    port: int = 8080
    """The port to listen at; 0 takes a free one, and the address is printed."""
    allow_host: tuple[str, ...] = ()
    """Further names that the service goes by, such as that of a proxy in front of it."""

    batch: int = 64
    """The model answers up to so many sentences, or pictures, at once."""
    waiting: int = 512
    """So many sentences, or pictures, may wait; who comes then is told to come back (429)."""
    seconds: float = 30.0
    """An answer takes at most so long (503), waiting and unpacking included."""
    arrival: float = 10.0
    """A request arrives within so many seconds (408)."""
    texts: int = 32
    """At most so many texts, or pictures, in a request."""
    characters: int | None = left_open("4,000")
    """At most so many characters in a text."""
    tokens: int | None = left_open("as many as in training")
    """At most so many tokens in a text."""
    beam: int | None = left_open(10)
    """At most so many hypotheses may be asked for."""
    pixels: int | None = left_open("16,000,000")
    """At most so many pixels in the pictures of a request; their first bytes say it, before they are unpacked."""
    body: int | None = left_open("1,000,000, for pictures 8,000,000")
    """At most so many bytes in a request."""

    log: Flag = False
    """Print a line for each request: when, which path, which status, how long; never its text."""
    weights: Literal["best", "last", "average"] = "best"
    """Which weights of the run: of the best validation, of the last step, or their average if one was made."""
    threads: int | None = None
    """Threads of the processor; left open, as many as the training found best."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute; auto takes a GPU if there is one."""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65536:
            raise ValueError(f"--port must be 0 to 65535, got {self.port}; 0 takes a free one")
        positive(self, "batch", "waiting", "texts", "characters", "tokens", "beam", "pixels", "body", "threads")
        for name in ("seconds", "arrival"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"--{name} must be more than 0 and finite, got {getattr(self, name)}")


def verb(args: Sequence[str]) -> int:
    typed = parse(Options, "regard serve", args)
    from regard.cli.loading import recorded
    from regard.cli.sights import SIGHTS
    from regard.serve.http.allowed_hosts import loopback
    from regard.serve.server import address, listen, serve

    limits, kind = _limits(typed), recorded(typed.run).kind
    if kind not in ("Translate", *SIGHTS):
        raise ValueError(f"{typed.run} is a run of {kind}, which is not served; regard predict {typed.run} asks it")
    served = (_seeing if kind in SIGHTS else _translating)(typed, limits)
    with listen(typed.host, typed.port) as at:

        def ready() -> None:
            if not loopback(typed.host):
                _note(
                    f"--host {typed.host} lets in everyone who reaches this machine, without a password and "
                    "unencrypted; put a proxy with both in front of it, or leave --host out"
                )
            print(f"{typed.run} is served at {address(at)} (Ctrl-C stops it)", flush=True)

        log = _line if typed.log else None
        count = serve(served, served.limits, at, host=typed.host, allowed=typed.allow_host, log=log, ready=ready)
    _note(f"stopped; {count} request{'s' * (count != 1)} answered")
    return 0


def _limits(typed: Options) -> "Limits":
    from regard.inference.limits import Limits

    names = [one.name for one in fields(Limits) if getattr(typed, one.name, None) is not None]
    return Limits(**{name: getattr(typed, name) for name in names})


def _translating(typed: Options, limits: "Limits") -> "TranslateEndpoint":
    refuse(typed, ("pixels",), f"is for pictures, and {typed.run} translates")
    from regard.cli.loading import load
    from regard.serve.translate_endpoint import TranslateEndpoint

    loaded = load(typed.run, typed.weights, typed.device, typed.threads)
    return TranslateEndpoint(loaded.task, loaded.by, limits, run=typed.run.resolve().name, step=loaded.step)


def _seeing(typed: Options, limits: "Limits") -> "ImageEndpoint":
    refuse(typed, ("characters", "tokens", "beam"), f"is for texts, and {typed.run} looks at pictures")
    from regard.cli.loading import recorded
    from regard.cli.sights import SIGHTS
    from regard.serve.image_endpoint import ImageEndpoint

    # a body may be large, and those of all who are connected are in memory
    limits = replace(limits, body=typed.body or 8_000_000, connections=64)
    loaded = SIGHTS[recorded(typed.run).kind](typed.run, typed.weights, typed.device, typed.threads)
    return ImageEndpoint(loaded.by, limits, run=typed.run.resolve().name, step=loaded.step)


def _note(text: str) -> None:
    _line(f"regard: {text}")


def _line(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
