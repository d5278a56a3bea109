"""Fonts: found where they are, spelt out where there are none."""

from pathlib import Path

import matplotlib
import pytest
from tests.for_each import for_each

from regard.viz.text import fonts

installed = fonts._installed
BUNDLED = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


@pytest.fixture(autouse=True)
def _same_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"STIXGeneral": str(BUNDLED / "STIXGeneral.ttf"), "cmr10": str(BUNDLED / "cmr10.ttf")}
    monkeypatch.setattr(fonts, "_installed", lambda: found)


def lacking(family: str) -> str:
    """A character that this font has and the usual one has not."""
    usual = fonts._characters(str(BUNDLED / "DejaVuSans.ttf"))
    return chr(max(fonts._characters(str(BUNDLED / f"{family}.ttf")) - usual))


def test_the_usual_font_is_enough_for_latin() -> None:
    assert fonts.families(["Grüße, Ωμέγα, год"]) == (matplotlib.rcParams["font.family"], frozenset())


def test_a_font_that_has_the_character_is_added_once() -> None:
    character = lacking("STIXGeneral")
    assert fonts.families([character, "a" + character]) == (
        [*matplotlib.rcParams["font.family"], "STIXGeneral"],
        frozenset(),
    )


def test_what_no_font_has_is_named() -> None:
    assert fonts.families(["a", "\uf8ff月 "]) == (matplotlib.rcParams["font.family"], frozenset("\uf8ff月"))


def test_installed_fonts_are_files_that_draw() -> None:
    found = installed()
    assert Path(found["DejaVu Sans"]).exists()
    assert not any("Last Resort" in family for family in found)


def test_a_damaged_font_has_nothing(tmp_path: Path) -> None:
    bad = tmp_path / "bad.ttf"
    bad.write_bytes(b"no font")
    assert fonts._characters(str(bad)) == frozenset()


@for_each(
    ("text", "said"),
    [
        ("ab", "ab"),
        ("1月2", "1[U+6708]2"),
        ("月日", "[U+6708…]"),
        ("月日x月", "[U+6708…]x[U+6708]"),
        ("◌月", "[U+6708]"),
        ("", ""),
    ],
)
def test_spelling(text: str, said: str) -> None:
    assert fonts.spell_missing(text, frozenset("月日")) == said


def test_the_font_named_after_the_script_comes_first() -> None:
    names = ["Noto Serif Thai", "Noto Sans Arabic", "Noto Sans Thai", "Ahem"]
    assert sorted(names, key=lambda name: fonts._font_rank(name, "THAI"))[:2] == ["Noto Sans Thai", "Noto Serif Thai"]
