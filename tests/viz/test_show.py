"""show: one call for a notebook, a terminal and every kind of file."""

import base64
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.for_each import for_each
from tests.recording.toy import computed, kept, stack, weights
from tests.refusals import Act, check_refusals
from tests.viz.test_browser import browser, opened

import regard
from regard.attn.maps.attention_map import DenseMap
from regard.recording import RecordedMap, Recording
from regard.viz import Alignment
from regard.viz.show import View, show

DATE = Alignment(["4", ".", "Mai"], ["05", "04"], torch.tensor([[0.1, 0.0, 0.9], [1.0, 0.0, 0.0]]), "German")
THINGS: dict[str, Callable[[], object]] = {
    "recording": stack,
    "recorded": lambda: stack()[1],
    "map": lambda: computed(2, 3, 5, 7),
    "map of heads": lambda: computed(2, 3, 5, 7).pick(0),
    "matrix": lambda: weights(5, 7),
    "heads": lambda: weights(3, 5, 7),
    "tensor": lambda: weights(2, 3, 5, 7),
    "halves": lambda: weights(2, 3, 5, 7).bfloat16(),
    "rollout": lambda: stack().rollout(),
    "words": lambda: stack(n=3).with_labels(["a", "##b", "c"]).merge_words(),
    "alignment": lambda: DATE,
    "alignments": lambda: [DATE, DATE],
}
START = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF", ".html": b"<!doctype html>", ".npz": b"PK"}


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf", ".html", ".npz", ".txt"])
@pytest.mark.parametrize("thing", ["recording", "matrix", "alignments"])
def test_a_file_by_its_suffix_is_the_same_twice(thing: str, suffix: str, tmp_path: Path) -> None:
    one, two = (show(THINGS[thing]()).save(tmp_path / f"{n}{suffix}").read_bytes() for n in "ab")
    assert one == two
    assert one.startswith(START.get(suffix, b""))
    assert len(one) > 150


@for_each("thing", THINGS)
def test_everything_can_be_shown(thing: str, tmp_path: Path) -> None:
    shown = regard.show(THINGS[thing]())
    assert isinstance(shown, View)
    assert repr(shown) == shown.text().rstrip("\n")
    assert shown.save(tmp_path / "a.txt").read_text(encoding="utf-8") == shown.text()
    assert "<main" in shown.save(tmp_path / "a.html").read_text(encoding="utf-8")
    with np.load(shown.save(tmp_path / "a.npz"), allow_pickle=False) as held:
        assert held["0"].dtype == np.float32


def test_the_archive_holds_it_all(tmp_path: Path) -> None:
    tape = Recording(
        (kept("a", 2, 3, 5, 7, kind="cross", call=1, step=2), RecordedMap("b", "hop", DenseMap(weights(2, 1, 5, 7))))
    )
    tape = tape.with_labels(["q", "ä", "\n", "", "🙂"], list("abcdefg"))
    with np.load(show(tape).save(tmp_path / "a.npz"), allow_pickle=False) as held:
        assert np.array_equal(held["0"], weights(2, 3, 5, 7).numpy())
        assert held["names"].tolist() == ["a", "b"]
        assert held["kinds"].tolist() == ["cross", "hop"]
        assert (held["calls"].tolist(), held["steps"].tolist()) == ([1, 0], [2, 0])
        assert held["verified"].tolist() == [True, False]
        assert np.isnan(held["certificates"]).tolist() == [False, True]
        assert held["queries"].tolist() == list(tape.queries)
        assert held["keys"].tolist() == list(tape.keys)


def test_a_recording_is_saved_to_be_loaded(tmp_path: Path) -> None:
    found = Recording.load(show(stack()).save(tmp_path / "a.safetensors"))
    assert found.names == stack().names


def test_weights_that_nobody_vouches_for_are_marked() -> None:
    assert "UNVERIFIED" in show(weights(5, 7)).text()
    assert "UNVERIFIED" not in show(stack()).text()


def test_labels_and_samples() -> None:
    shown = show(weights(2, 1, 2, 3), queries=["eins", "zwei"], keys=["un", "deux", "trois"], sample=1)
    assert "eins" in shown.text()
    assert "trois" in shown.text()
    assert shown.text() != show(weights(2, 1, 2, 3), queries=["eins", "zwei"], keys=["un", "deux", "trois"]).text()


def test_a_notebook_gets_three_kinds() -> None:
    shown = show(stack())
    bundle = shown._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "image/png"}
    assert bundle["text/plain"] == repr(shown)
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    frame = re.fullmatch(r'<iframe srcdoc="([^"]*)" sandbox="([^"]*)"[^>]*></iframe>', bundle["text/html"])
    assert frame
    assert frame[2] == "allow-scripts allow-downloads"
    assert unescape(frame[1]).startswith("<!doctype html>")
    assert bundle == shown._repr_mimebundle_()
    assert set(shown._repr_mimebundle_(include={"text/plain"})) == {"text/plain"}
    assert set(shown._repr_mimebundle_(exclude={"text/html", "image/png"})) == {"text/plain"}


def test_a_notebook_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    bundle = show(DATE)._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/plain"].endswith("figures need matplotlib; install it with: pip install 'regard[view]'")


@pytest.mark.skipif(browser is None, reason="no browser is installed")
@pytest.mark.parametrize("thing", ["recording", "alignment"])
def test_the_frame_of_a_notebook_runs(thing: str, tmp_path: Path) -> None:
    """Nothing on the page needs what its frame forbids."""
    frame = show(THINGS[thing]())._repr_mimebundle_(include={"text/html"})["text/html"]
    page = tmp_path / "notebook.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{frame}</body>", encoding="utf-8")
    document, console = opened(page)
    assert "<iframe" in document
    assert not console
    shutil.rmtree(tmp_path / "profile", ignore_errors=True)


LARGE = Recording((RecordedMap("a", "self", computed(1, 1, 5, 5)),))
REFUSED: dict[type[Exception], dict[str, Act]] = {
    ValueError: {
        "unknown suffix '.gif'; known are: .png, .svg, .pdf, .html, .npz, .txt,": lambda at: show(stack()).save(
            at / "a.gif"
        ),
        "unknown suffix ''; known are: .png, .svg": lambda at: show(stack()).save(at / "a"),
        "unknown suffix '.safe": lambda at: show(DATE).save(at / "a.safetensors"),
        "there is no map in the recording, so there is nothing to": lambda at: show(Recording()),
        "unknown what 'hedas'; did you mean 'heads'?": lambda at: show(stack(), what="hedas"),
        "keys without queries label one side only": lambda at: show(stack(), keys=["a"]),
        "queries is no option of an Al": lambda at: show(DATE, queries=["a"]),
        "sample is no option of an Alignment": lambda at: show(DATE, sample=1),
    },
    FileNotFoundError: {
        "there is no folder": lambda at: show(DATE).save(at / "b" / "a.png"),
    },
    TypeError: {
        "x must be a Recording, a map, a tensor of weights or an Al": lambda at: show("text"),
        "or an Alignment, got list; try regard.record(model)": lambda at: show([]),
        "alignments must be an Alignment, got 3": lambda at: show([DATE, 3]),
        "weights must be floating, (…, queries, keys)": lambda at: show(torch.ones(2, 3).long()),
        "weights.unsqueeze(-2)": lambda at: show(torch.ones(3)),
    },
}


def test_refusals(tmp_path: Path) -> None:
    check_refusals(REFUSED, tmp_path)


def test_a_sample_that_is_not_there() -> None:
    shown = show(weights(3, 5, 7))
    with pytest.raises(IndexError, match="sample 2 is not there: the map is of one sample; use 0"):
        shown.recording[0].weights.pick(2)
    assert shown.recording[0].weights.pick(0, 1).shape == (5, 7)
    assert shown.recording[0].weights.pick(slice(None), slice(1, 2)).shape == (1, 1, 5, 7)


def test_an_archive_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.viz.show._MAX_NPZ_BYTES", 50)
    with pytest.raises(
        ValueError, match="the weights would take 1e-07 GB, more than the 5e-08 GB that a .npz is writt"
    ):
        show(LARGE).save(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a.html"])
def test_a_full_disk_leaves_what_was_there(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_bytes(b"before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("regard.common.atomic_files.os.fsync", full)
    with pytest.raises(OSError, match=f"cannot write .*{name}: the disk is full"):
        show(stack(1)).save(tmp_path / name)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"before"]


def test_the_options_of_a_figure(tmp_path: Path) -> None:
    from regard.viz.recording.figures import draw_recording

    tape, other = stack(2), stack(3)[1:]
    other = Recording(tuple(replace(one, name=f"layers.{n}") for n, one in enumerate(other)))
    for options in ({"what": "map", "layer": 1, "head": 2}, {"what": "text", "query": 1}, {"other": other}):
        shown = show(tape, **options).save(tmp_path / "a.svg").read_bytes()
        drawn = draw_recording(tape, tmp_path / "b.svg", **({"what": "difference"} | options))
        assert shown == drawn.read_bytes()
    assert "head 2 of 3" in show(tape, layer=1, head=2).text()
    assert " – " in show(tape, other=other).text()
