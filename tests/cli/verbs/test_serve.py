"""regard serve: bad options and folders without a run; the rest is in tests/serve."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.conftest import Regard

from regard.serve.server import listen


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--port", 70000], "--port must be 0 to 65535, got 70000; 0 takes a free one"),
        (["--batch", 0], "--batch must be 1 or more, got 0"),
        (["--threads", -1], "--threads must be 1 or more, got -1"),
        (["--seconds", 0], "--seconds must be more than 0 and finite, got 0.0"),
        (["--arrival", "inf"], "--arrival must be more than 0 and finite, got inf"),
        (
            ["--texts", 7, "--waiting", 5],
            "--waiting must hold the texts of one request, 7, got 5; try --waiting 7 or --texts 5",
        ),
        (["--weights", "averge"], "unknown --weights 'averge'; did you mean 'average'?"),
    ],
)
def test_bad_options(options: list[object], sentence: str, regard: Regard, trained: Path) -> None:
    ran = regard("serve", trained, *options)
    assert ran.code == 2
    assert ran.err.startswith(f"regard: {sentence}")
    assert ran.out == ""


def test_no_run(regard: Regard, tmp_path: Path) -> None:
    ran = regard("serve", tmp_path / "none")
    assert ran == (2, "", f"regard: there is no run {tmp_path / 'none'}; name the folder of a training\n")


def test_a_port_that_is_taken(regard: Regard, trained: Path) -> None:
    with listen("127.0.0.1", 0) as at:
        port = at.getsockname()[1]
        ran = regard("serve", trained, "--port", port)
    assert ran.code == 2
    assert ran.err.startswith(f"regard: port {port} of 127.0.0.1 cannot be listened at (")
    assert ran.err.endswith("); try --port 0, which takes a free one\n")


def test_it_serves_until_it_is_interrupted(regard: Regard, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arguments of the service, and the notes at its start and end."""
    given = {}

    def serve(endpoint: object, limits: object, socket: object, *, ready: Callable[[], None], **options: object) -> int:
        given.update(options, endpoint=endpoint, limits=limits)
        ready()
        return 1

    monkeypatch.setattr("regard.serve.server.serve", serve)
    ran = regard("serve", trained, "--port", 0, "--batch", 7, "--tokens", 13, "--allow-host", "a.example", "b.example")
    assert ran.code == 0
    assert ran.out.startswith(f"{trained} is served at http://127.0.0.1:")
    assert ran.err == "regard: stopped; 1 request answered\n"
    assert (given["limits"].batch, given["endpoint"].tokens, given["endpoint"].run) == (7, 13, "run")
    assert given["allowed"] == ("a.example", "b.example")
    assert (given["host"], given["log"]) == ("127.0.0.1", None)


@pytest.mark.parametrize("missing", ["fastapi", "starlette", "uvicorn", "pydantic", "prometheus_client"])
def test_a_missing_library_is_named(
    missing: str, regard: Regard, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("regard.serve.", f"{missing}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    ran = regard("serve", trained, "--port", 0)
    sentence = "a service needs FastAPI and uvicorn; install them with: pip install 'regard[serve]'"
    assert ran == (2, "", f"regard: {sentence}\n")
