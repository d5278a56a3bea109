"""The page as a file: nothing from outside, nothing that runs but its own script, the data exactly as given."""

import base64
import hashlib
import json
import re
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

from regard.viz import Alignment, draw
from regard.viz.html import page

NASTY = [
    "</script>",
    "<!--",
    "<script>",
    "]]>",
    '"',
    "'",
    "&amp;",
    "\u2028",
    "\u2029",
    "\x00",
    "\ud800",
    "ש",
    "$&",
    "\\",
]
TEXT = st.text(st.characters(exclude_categories=()))


def nasty() -> Alignment:
    weights = torch.rand(len(NASTY), len(NASTY), generator=torch.Generator().manual_seed(7))
    told = "</title><script>alert(1)</script>"
    return Alignment(NASTY, NASTY[::-1], weights, told, told, (told, "<b>\ud800"))


def data(said: str) -> dict[str, object]:
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', said, flags=re.DOTALL)
    assert len(found) == 1
    return json.loads(found[0])


@given(st.recursive(TEXT | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner)))
def test_a_block_is_its_data_and_cannot_be_left(value: object) -> None:
    block = page.json_block(value)
    assert json.loads(block) == value
    assert block.isascii()
    assert not set("<>&") & set(block)


def test_the_data_comes_back_exactly(tmp_path: Path) -> None:
    given = [nasty(), Alignment(["a", "b"], ["c"], torch.tensor([[1 / 3, 1e-30]]), text=("a b", "c"))]
    found = data(draw(given, tmp_path / "a.html").read_text(encoding="utf-8"))["alignments"]
    assert isinstance(found, list)
    for one, back in zip(given, found, strict=True):
        assert [back["source"], back["target"], back["title"], back["note"]] == [
            list(one.source),
            list(one.target),
            one.title,
            one.note,
        ]
        assert back["text"] == list(one.text)
        raw = base64.b64decode(back["weights"])
        assert struct.unpack(f"<{len(raw) // 4}f", raw) == tuple(one.weights.flatten().tolist())


def test_what_cannot_be_seen_is_shown_by_a_sign(tmp_path: Path) -> None:
    found = data(draw(Alignment([" ", "a"], ["\n"], torch.ones(1, 2)), tmp_path / "a.html").read_text(encoding="utf-8"))
    assert found["shown"] == {" ": "␣", "\n": "↵"}


def test_only_its_own_script_and_style_may_run(tmp_path: Path) -> None:
    said = draw(nasty(), tmp_path / "a.html").read_text(encoding="utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', said)
    assert policy
    rules = dict(rule.split(" ", 1) for rule in policy[1].split("; "))
    for kind, tag in (("script-src", "script"), ("style-src", "style")):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", said, flags=re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert rules.pop(kind) == f"'sha256-{digest}'"
    assert rules == {"default-src": "'none'", "img-src": "data:", "base-uri": "'none'", "form-action": "'none'"}
    assert said.count("<script") == 2
    assert "alert(1)</script>" not in said


def test_nothing_comes_from_outside(tmp_path: Path) -> None:
    said = draw(Alignment(["a"], ["b"], torch.ones(1, 1)), tmp_path / "a.html").read_text(encoding="utf-8")
    assert "://" not in said
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|\ssrc=", said)
    assert re.findall(r'href="(.*?)"', said) == ["data:,"]
    assert len(said.encode()) < 60_000


def test_a_reader_without_scripts_gets_the_text(tmp_path: Path) -> None:
    said = draw(nasty(), tmp_path / "a.html").read_text(encoding="utf-8")
    (words,) = re.findall(r"<noscript><pre>(.*?)</pre></noscript>", said, flags=re.DOTALL)
    assert "&lt;/title&gt;" in words
    assert "<" not in words


@pytest.mark.parametrize(("count", "title"), [(1, "a → b"), (2, "2 alignments")])
def test_the_title(count: int, title: str, tmp_path: Path) -> None:
    said = draw([Alignment(["a"], ["b"], torch.ones(1, 1))] * count, tmp_path / "a.html").read_text(encoding="utf-8")
    assert f"<title>{title}</title>" in said
