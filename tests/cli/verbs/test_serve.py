"""regard serve: bad options and folders without a run; the rest is in tests/serve."""

import shlex
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from tests.cli.conftest import Refused, Regard
from tests.for_each import for_each

from regard.cli import run_options
from regard.cli.parsing.help import field_docs
from regard.serve.server import listen
from regard.tasks.shared.image_options import ServeImages
from regard.tasks.translate.options import ServeTexts


@for_each(
    ("words", "sentence"),
    {
        "--port 70000": "--port must be 0 to 65535, got 70000; 0 takes a free one",
        "--batch 0": "--batch must be 1 or more, got 0",
        "--seconds 0": "--seconds must be positive and finite, got 0.0",
        "--texts 7 --waiting 5": "--waiting must hold the texts of one request, 7, got 5; try --waiting 7 or --texts 5",
        "--token 'a b'": "a token must be letters, digits and the signs - . _ ~ + /, at least one; python -c ",
        "--token a --token-file b": "--token and --token-file both give the token; leave one of them out",
        "--token-file none": "--token-file none cannot be read (No such file or directory); name a file with the token",
        f"--token-file {sys.executable}": f"--token-file {sys.executable} cannot be read (it is not UTF-8); name",
        "--allow-host=": "--allow-host must be the name of a host, got ''",
        "--allow-origin a.example": "an allowed origin must be a scheme, a host in lower case and maybe a port",
    }.items(),
)
def test_bad_options(words: str, sentence: str, refused: Refused, trained: Path) -> None:
    assert refused("serve", trained, *shlex.split(words)).startswith(sentence)


def test_a_port_that_is_taken(refused: Refused, trained: Path) -> None:
    with listen("127.0.0.1", 0) as at:
        port = at.getsockname()[1]
        sentence = refused("serve", trained, "--port", port)
    assert sentence.startswith(f"port {port} of 127.0.0.1 cannot be listened at (")
    assert sentence.endswith("); try --port 0, which takes a free one")


def test_it_serves_until_it_is_interrupted(
    regard: Regard, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arguments of the service, and the notes at its start and end."""
    given = {}

    def serve(running: None, socket: object, ready: Callable[[], None]) -> int:
        ready()
        return 1

    server = "regard.serve.server.server"
    monkeypatch.setattr(server, lambda models, **options: given.update(options, models=models))
    monkeypatch.setattr("regard.serve.server.serve", serve)
    ran = regard("serve", trained, "--port", 0, "--batch", 7, "--tokens", 13, "--allow-host", "a.example", "b.example")
    assert ran.code == 0
    assert ran.out.startswith(f"{trained} is served at http://127.0.0.1:")
    assert ran.err == "regard: stopped; 1 request answered\n"
    (model,) = given["models"]
    assert (model.limits.batch, model.endpoint.tokens, model.endpoint.run, model.name) == (7, 13, "run", "")
    assert given["allowed"] == ("a.example", "b.example")
    assert (given["host"], given["log"], given["tokens"], given["origins"]) == ("127.0.0.1", None, {}, ())

    other, secret = tmp_path / "other", tmp_path / "token"
    other.symlink_to(trained)
    secret.write_text("s3cret\n")
    both = ["--host", "0.0.0.0", "--token-file", secret, "--allow-origin", "https://a.example", "--tokens", 13]
    ran = regard("serve", trained, other, "--port", 0, *both)
    assert ran.code == 0
    assert ran.out.startswith(f"{trained}, {other} are served at http://0.0.0.0:")
    assert ran.err.startswith(
        "regard: --host 0.0.0.0 lets in everyone who has the token, which is sent unencrypted; "
        "put a proxy with TLS in front of it, or leave --host out\n"
    )
    assert [(model.name, model.endpoint.run, model.endpoint.tokens) for model in given["models"]] == [
        ("run", "run", 13),
        ("other", "other", 13),
    ]
    assert (given["tokens"], given["origins"]) == ({"token": "s3cret"}, ("https://a.example",))


def test_runs_of_one_name(refused: Refused, trained: Path) -> None:
    assert refused("serve", trained, trained).startswith("two runs have the name 'run', which is the path of a model;")


def test_options_of_any_of_the_runs() -> None:
    """An option of the task of one run goes to the runs that have it."""
    joined = run_options._joined([ServeTexts, ServeImages, ServeTexts])
    assert {item.name for item in fields(joined)} == {"characters", "tokens", "beam", "body", "pixels"}
    assert field_docs(joined)["pixels"] == field_docs(ServeImages)["pixels"]
    assert run_options._joined([ServeTexts, ServeTexts]) is ServeTexts


@for_each("missing", ["fastapi", "fastapi_swagger", "starlette", "uvicorn", "pydantic", "prometheus_client"])
def test_a_missing_library_is_named(
    missing: str, refused: Refused, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("regard.serve.", f"{missing}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    sentence = "a service needs FastAPI and uvicorn; install them with: pip install 'regard[serve]'"
    assert refused("serve", trained, "--port", 0) == sentence
