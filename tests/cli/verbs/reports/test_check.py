"""regard check: a manifest notices every file and every answer that is another one."""

import json
import shutil
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Refused, Regard
from tests.for_each import for_each

from regard.cli.parsing.parser import parse
from regard.cli.served_runs import ServedRuns
from regard.cli.verbs.serve import ServeOptions
from regard.tasks.manifest import FILE, _difference, _file_of_run
from regard.tasks.registry import read_config


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    """A copy of a run, to be damaged."""
    return Path(shutil.copytree(trained, tmp_path / "copied"))


def test_a_run_is_checked(copied: Path, regard: Regard) -> None:
    plain = regard("check", copied)
    assert plain.out.endswith(" files read, and the model answers; there is no manifest.json to compare with\n")
    written = regard("check", copied, "a b", "c", "--write-manifest", "--json")
    assert written.err == f"regard: the manifest is written to {copied / FILE}; copy it with the run\n"
    found = json.loads(written.out)
    assert (found["has_manifest"], found["examples"], found["weights"], found["step"]) == (True, 2, "best", 4)
    checked = regard("check", copied)
    assert checked.out.startswith(f"version {found['version']}: the best weights of step 4\n")
    assert "2 stored examples answered as before" in checked.out
    # files of the training alone say nothing about answers
    (copied / "metrics.jsonl").write_text("")
    assert regard("check", copied).code == 0


def test_what_was_held_out_is_stored(copied: Path, regard: Regard) -> None:
    regard("check", copied, "--write-manifest")
    (example,) = json.loads((copied / FILE).read_text(encoding="utf-8"))["examples"]
    assert set(example["input"]) <= set("abcde ")


def changed(manifest: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**manifest, **changes}


def test_every_difference_is_a_sentence(copied: Path, regard: Regard, refused: Refused) -> None:
    assert refused("check", copied, "a").startswith("'a' is an example to store; give --write-manifest as well, or")
    regard("check", copied, "a b", "--write-manifest")
    whole = (copied / FILE).read_text(encoding="utf-8")
    manifest = json.loads(whole)
    (example,) = manifest["examples"]
    files = manifest["files"]
    other = json.loads(json.dumps(example).replace('"text": "', '"text": "x'))
    for content, sentence in (
        ("{", f"{copied / FILE} cannot be read (Expecting property name"),
        ("[]", "it must have format, weights, files and examples"),
        (json.dumps(changed(manifest, files=[])), "it must have format, weights, files and examples"),
        (json.dumps(changed(manifest, examples=[{"input": 3}])), "it must have format, weights, files and examples"),
        (json.dumps(changed(manifest, format=99)), "99"),
        (json.dumps(changed(manifest, weights="last")), "is about the last weights of the run, and the best weights"),
        (json.dumps(changed(manifest, files={**files, "gone": ""})),
         "gone is missing, and manifest.json lists it; copy the whole run"),
        (json.dumps(changed(manifest, files={**files, "run.json": "0" * 64})),
         "run.json is another file than manifest.json lists: its SHA-256 is "),
        (json.dumps(changed(manifest, files={"run.json": files["run.json"]})),
         "is not listed in manifest.json; remove it, or write the manifest anew"),
        (json.dumps(changed(manifest, examples=[other])), "does not answer 'a b' as manifest.json says: text"),
    ):  # fmt: skip
        (copied / FILE).write_text(content, encoding="utf-8")
        assert sentence in (said := refused("check", copied))
    assert said.endswith(
        "; its versions of torch or regard may be others; write the manifest anew if the answer is right"
    )
    (copied / FILE).unlink()
    (copied / FILE).mkdir()
    assert refused("check", copied).endswith(
        f"{FILE} cannot be read (it is no file); write it anew: regard check RUN --write-manifest"
    )


def test_examples_are_files_of_the_run(tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside.png"
    (run / "examples").mkdir(parents=True)
    outside.touch()
    (run / "examples" / "a.png").touch()
    (run / "examples" / "link.png").symlink_to(outside)
    assert _file_of_run(run, "examples/a.png").samefile(run / "examples" / "a.png")
    for name in ("../outside.png", str(outside), "examples/link.png", "examples", "examples/b.png"):
        with pytest.raises(ValueError, match=r"^the example '.*' of .* is no file of the run; copy the whole run, or "):
            _file_of_run(run, name)


@for_each(
    ("recorded", "present", "where"),
    [
        ({"a": [1.0, "b"]}, {"a": [1.0004, "b"]}, None),
        ({"a": [1.0, "b"]}, {"a": [1.1, "b"]}, "a was '1.0' and is '1.1'"),
        ({"a": 1}, {"b": 1}, "the output was"),
        ([1, 2], [1], "the output was '[1, 2]' and is '[1]'"),
        (None, 0.0, "the output was 'None' and is '0.0'"),
        ("a", "a", None),
    ],
)
def test_outputs_are_compared(recorded: Any, present: Any, where: str | None) -> None:
    found = _difference(recorded, present)
    assert found is None if where is None else (found or "").startswith(where)


def test_served_runs_reload_what_changed(
    copied: Path, tmp_path: Path, regard: Regard, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("ann first\n")
    options = parse(ServeOptions, "regard serve", [str(copied), "--token-file", str(tokens)])
    runs = ServedRuns(options)
    (model,) = runs.load([read_config(copied)])
    assert model.version.startswith("4-")
    same = runs.reload([model], {"ann": "first"})
    assert (same.models[0] is model, same.outcome) == (True, "unchanged")
    # the same weights in new files are no new version
    regard("check", copied, "a b", "--write-manifest")
    assert runs.reload([model], {"ann": "first"}).outcome == "unchanged"
    tokens.write_text("ann first\nbob second\n")
    assert runs.reload([model], {"ann": "first"}).tokens == {"ann": "first", "bob": "second"}
    # the manifest is that of other weights
    shutil.copy(copied / "last.safetensors", copied / "best.safetensors")
    (copied / "run.json").touch()
    refused = runs.reload([model], {"ann": "first"})
    assert refused.outcome == "refused"
    (sentence,) = refused.refused
    assert sentence.startswith(f"{copied} stays at version {model.version}: {copied / 'best.safetensors'} is another")
    (copied / FILE).unlink()
    exchanged = runs.reload([model], {"ann": "first", "bob": "second"})
    version = exchanged.models[0].version
    assert list(exchanged.exchanged) == [f"{copied} is now version {version}, before {model.version}"]
    monkeypatch.setattr("regard.tasks.manifest.signature", lambda folder, times=count(): next(times))
    (sentence,) = runs.reload([model], {"ann": "first"}).refused
    assert sentence.endswith("its files changed while they were read; reload again when the copy is complete")
    monkeypatch.setattr(model.endpoint, "name", "shout")
    monkeypatch.setattr("regard.tasks.manifest.signature", lambda folder: None)
    (sentence,) = runs.reload([model], {"ann": "first"}).refused
    assert sentence.endswith(
        "it answers at /v1/translate now, and not at /v1/shout; start the service again to serve another task"
    )


@for_each(
    ("content", "sentence"),
    [
        (b"", "has no token; write one into it, or leave the option out"),
        (b"# nobody\n\n", "has no token; write one into it, or leave the option out"),
        (b"a b c\n", ", line 1 has 3 words; write a name, a blank and its token"),
        (b"ann one\nann two\n", ", line 2: 'ann' names two tokens; give each a name of its own"),
        (b"ann one\nbob one\n", ", line 2: 'bob' has the token of another name; make a new one"),
        (b"a\x1bb one\n", ", line 1: the name must be up to 64 letters, digits, '.', '_' and '-', got 'a\\x1bb'"),
        (b"ann o\x00e\n", ", line 1: a token must be letters, digits and the signs - . _ ~ + /, at least one;"),
        ("ann \u00fcber".encode(), ", line 1: a token must be letters, digits and the signs"),
        (b"\xff\xfeann one", "cannot be read (it is not UTF-8); name a file with the token"),
    ],
)
def test_token_files(content: bytes, sentence: str, refused: Refused, trained: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_bytes(content)
    assert sentence in refused("serve", trained, "--token-file", tokens)


def test_names_of_tokens(tmp_path: Path) -> None:
    from regard.serve.access import read_tokens

    path = tmp_path / "tokens"
    path.write_bytes(b"\xef\xbb\xbfann first\r\n# a comment\r\nbob\tsecond\r\n")
    assert read_tokens(path) == {"ann": "first", "bob": "second"}
    path.write_text("only\n")
    assert read_tokens(path) == {"token": "only"}
