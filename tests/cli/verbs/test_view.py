"""regard view: a recording or a run, in the terminal, a file, a browser."""

import shlex
import threading
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from tests.cli.conftest import Refused, Regard
from tests.for_each import for_each
from tests.recording.toy import kept, stack
from tests.viz.recordings import said, seen

from regard.cli.verbs import view
from regard.recording.recording import Recording
from regard.recording.run import PIXELS
from regard.tasks.translate.task import TranslateTask


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    return stack(2).save(tmp_path / "tape.safetensors")


def test_a_recording_is_shown(regard: Regard, tape: Path) -> None:
    ran = regard("view", tape)
    assert ran.code == 0
    assert ran.err == "regard: 2 maps of 2 modules, each checked against what the model computed\n"
    assert "layers.1" in ran.out
    assert "w4" in ran.out


def test_pieces_of_which_none_is_a_part_are_words(regard: Regard, tape: Path) -> None:
    assert regard("view", tape, "--words").out == regard("view", tape).out


def test_a_folder_that_holds_one(regard: Regard, tmp_path: Path) -> None:
    stack(2).save(tmp_path / "folder")
    assert regard("view", tmp_path / "folder").code == 0


def test_unverified_maps_are_counted(regard: Regard, tmp_path: Path) -> None:
    bad = Recording((kept("a", 1, 1, 2, 2), kept("b", 1, 1, 2, 2, tolerance=1e-9))).save(tmp_path / "a.safetensors")
    ran = regard("view", bad)
    assert ran.err == "regard: 2 maps of 2 modules, 1 of them UNVERIFIED\n"
    assert "UNVERIFIED" in ran.out


@for_each("suffix", [".html", ".png", ".svg", ".pdf", ".npz", ".txt", ".safetensors"])
def test_a_file_by_its_suffix(suffix: str, regard: Regard, tape: Path, tmp_path: Path) -> None:
    path = tmp_path / f"seen{suffix}"
    ran = regard("view", tape, "--out", path)
    assert (ran.code, ran.out) == (0, "")
    assert f"regard: written to {path}\n" in ran.err
    assert path.stat().st_size > 150


def test_some_of_it(regard: Regard, tape: Path, tmp_path: Path) -> None:
    out = tmp_path / "some.safetensors"
    assert regard("view", tape, "--layers", "*.1", "--sample", 1, "--out", out).code == 0
    found = Recording.load(out)
    assert found.names == ("layers.1",)
    assert torch.equal(found[0].weights.dense(), stack(2)[1].weights.dense()[1:])


def test_a_training(regard: Regard, trained: Path) -> None:
    first = regard("view", trained)
    assert first.code == 0, first.err
    assert "alignment" in first.out
    other = regard("view", trained, "e d c", "--weights", "last")
    assert other.code == 0, other.err
    assert "e d c" in other.out


def test_it_is_served(regard: Regard, tape: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb gives the recording to the server, which answers on this machine."""
    from regard.viz.recording import tile_server

    pages: list[bytes] = []

    def serve(recording: Recording, host: str = "127.0.0.1", port: int = 0, image: torch.Tensor | None = None) -> None:
        with tile_server.Server(recording, host, port, sample=0, image=image) as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            with urllib.request.urlopen(server.address) as answer:
                pages.append(answer.read())
            server.shutdown()
            thread.join()

    monkeypatch.setattr(tile_server, "serve", serve)
    assert regard("view", tape, "--serve").code == 0
    assert pages[0].startswith(b"<!doctype html>")
    assert b"layers.1" in pages[0]
    assert b'"image":null' in pages[0]
    # over the picture that was looked at
    Image.new("RGB", (4, 3)).save(tape.parent / "a.png")
    looked = replace(stack(1), maps=tuple(replace(one, grid=(1, one.shape[-1])) for one in stack(1)))
    tape = looked.save(tape.parent / "looked.safetensors")
    assert regard("view", tape, "--serve", "--image", tape.parent / "a.png").code == 0
    assert b'"image":"data:image/png;base64,' in pages[1]


@for_each(
    ("words", "sentence"),
    {
        "nowhere": "there is no run or recording ",
        "tape.safetensors 'a text'": "is a recording, which has its own input; leave 'a text' out",
        "tape.safetensors two texts": "one text at a time, got 2; quote a sentence",
        "tape.safetensors --layers layer.0": "unknown --layers 'layer.0'; did you mean 'layers.0'?",
        "tape.safetensors --sample 2": "--sample=2 is not there in 'layers.0'; there are 0 to 1",
        "tape.safetensors --weights last": "--weights last is for the folder of a run; leave it out",
        "tape.safetensors --port 80": "--port 80 means nothing without --serve; add --serve or leave it out",
        "tape.safetensors --serve --port 80000": "--port must be 0 to 65535, got 80000; 0 takes a free one",
        "tape.safetensors --serve --out a.png": "--serve and --out a.png exclude each other; give one of them",
        "tape.safetensors --image a.png --out a.npz": "--image a.png is for a page or a figure, and a.npz is none; "
        "write .html, .png, .svg or .pdf, or leave --image out",
        "tape.safetensors --image a.png --out b.png": "needs attention over patches of an image, and there is none",
        "tape.safetensors --out a.doc": "unknown suffix of --out '.doc'",
        "a.txt": "is no recording: a recording is a .safetensors file, or a folder with ",
        "bad.safetensors": "is damaged or no safetensors file",
        "empty.safetensors": "holds no maps, so there is nothing to see; record a model that attends",
        "patches.safetensors --image a.png --out b.png": "has 5 × 4 pixels, and the image that the model read, b.png, "
        "had 3 × 2; name that one",
        "folder": "holds neither config.json, a model that transformers saved, nor run.json, a run",
    }.items(),
)
def test_wrong_input_is_one_sentence(
    words: str, sentence: str, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "bad.safetensors"):
        Path(name).write_text("text", encoding="utf-8")
    Path("folder").mkdir()
    Image.new("L", (5, 4)).save("a.png")
    stack(2).save("tape.safetensors")
    Recording().save("empty.safetensors")
    maps = tuple(replace(recorded_map, grid=(1, recorded_map.shape[-1])) for recorded_map in stack(1))
    replace(stack(1), maps=maps, about={PIXELS: "3 × 2", "picture": "b.png"}).save("patches.safetensors")
    assert sentence in refused("view", *shlex.split(words))


def test_inputs_are_not_overwritten(refused: Refused, trained: Path, tape: Path, tmp_path: Path) -> None:
    picture, best = tmp_path / "three.png", trained / "best.safetensors"
    Image.new("L", (5, 4)).save(picture)
    for args, out, what in (
        (["view", tape, "--sample", 0], tape, "the recording"),
        (["view", trained, picture], picture, "the input"),
        (["view", tape, "--image", picture], picture, "the file of --image"),
        (["view", trained, "a b", "--other", tape], tape, "the file of --other"),
        (["view", trained, "a b"], best, f"a file of {trained}"),
        (["record", trained, picture], picture, "the input"),
        (["record", trained, "a b"], best, f"a file of {trained}"),
    ):
        before = out.read_bytes()
        sentence = f"--out {out} is {what} and would be written over; name another file"
        assert refused(*args, "--out", out) == sentence
        assert out.read_bytes() == before


def test_a_run_without_an_example(refused: Refused, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TranslateTask, "example", lambda self, folder: None)
    assert refused("view", trained) == f"{trained} has no example of its own; give an input"


def test_a_model_of_transformers_needs_a_text(refused: Refused, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    sentence = "holds a model of transformers, which has no text of its own; give one"
    assert refused("view", tmp_path).endswith(sentence)


def test_rollout(regard: Regard, refused: Refused, tape: Path, tmp_path: Path) -> None:
    assert "rollout" in regard("view", tape, "--rollout").out
    assert regard("view", tape, "--rollout", "--out", tmp_path / "a.safetensors").code == 0
    torch.testing.assert_close(
        Recording.load(tmp_path / "a.safetensors")[0].weights.dense(),
        Recording.load(tape).rollout()[0].weights.dense(),
    )
    sentence = refused("view", seen(queries=3).save(tmp_path / "cross.safetensors"), "--rollout")
    assert sentence.startswith("--rollout does not apply: rollout follows self attention from layer to layer, and ")
    assert sentence.endswith("; or leave --rollout out")


def test_the_options_of_a_figure(regard: Regard, refused: Refused, tape: Path, tmp_path: Path) -> None:
    assert regard("view", tape, "--what", "text", "--layer", "1", "--query", "2", "--out", tmp_path / "a.svg").code == 0
    assert "query 2" in (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert regard("view", tape, "--other", tape, "--out", tmp_path / "b.svg").code == 0
    assert "difference" in (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert "layers.1 · head 2 of 3" in regard("view", tape, "--layer", "layers.1", "--head", "2").out
    sentence = refused("view", tape, "--what", "difference", "--out", tmp_path / "c.svg")
    assert "--what difference needs other" in sentence
    assert "--what map is for a file; add --out" in refused("view", tape, "--what", "map")
    assert "--head 1 means nothing with --serve" in refused("view", tape, "--head", "1", "--serve")


def test_gates_of_recurrent_layers(
    regard: Regard, refused: Refused, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # names are shortened to the width of the terminal
    ran = regard("view", trained, "a b c", "--gates", "--layers", "*.update")
    assert ran.code == 0, ran.err
    lines = [line for line in ran.out.splitlines() if " cell " in line]
    assert any("encoder.rnn.l0.update" in line for line in lines)
    assert any("encoder.rnn.l0_reverse.update" in line for line in lines)
    assert any("decoder.stack.rnn.l0.update" in line for line in lines)
    ran = regard("record", trained, "a b c", "--gates", "--out", tmp_path / "gates.safetensors")
    assert ran.code == 0, ran.err
    ran = regard("view", tmp_path / "gates.safetensors", "--layer", "encoder.rnn.l0.reset", "--out", tmp_path / "a.svg")
    assert ran.code == 0, ran.err
    told = said(tmp_path / "a.svg")
    assert "encoder.rnn.l0.reset" in told
    assert "4 × 4 (units × steps)" in told
    sentence = refused("view", tmp_path / "gates.safetensors", "--gates")
    assert sentence.startswith("--gates is for the folder of a run, and ")
    assert sentence.endswith(" is a recording; leave it out")


def test_too_many_maps_are_refused_before_they_are_drawn(
    regard: Regard, refused: Refused, tape: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "_MOST_MAPS", 1)
    name = Recording.load(tape)[0].name
    sentence = f"{tape} has 2 maps, and view shows at most 1; choose some with --layers, such as --layers {name}"
    assert refused("view", tape) == sentence
    assert regard("view", tape, "--layers", name).code == 0
