"""regard demo, on few dates."""

from pathlib import Path

import pytest
from tests.cli.conftest import Refused, Regard

from regard.data import embedded
from regard.data.embedded import dates


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    few = embedded.EmbeddedPairs(
        "few", lambda seed: dates.splits(seed, 300, 20, len(dates.FORMS)), "characters", "characters"
    )
    monkeypatch.setitem(embedded.EMBEDDED, "dates", few)
    monkeypatch.setattr("regard.training.runtime.threads.available", lambda: 1)
    # an untrained model makes long outputs, whose figures take time
    monkeypatch.setattr(dates, "TEN", ("zh", "ko"))


def test_from_nothing_to_pictures_and_again(regard: Regard, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    ran = regard("demo", "--steps", 3, "--out", out)
    assert ran.code == 0, ran.err
    for language in dates.TEN:
        (line,) = [line for line in ran.out.splitlines() if f" {language}: " in line and "wrong: it is" in line]
        assert line.startswith("  ")
    assert f"of {len(dates.FORMS)} unseen dates in {len(dates.LANGUAGES)} languages." in ran.out
    assert "The hardest languages: " in ran.out
    assert (out / "alignment.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "alignment.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert str(out / "alignment.png") in ran.out
    assert str(out / "alignment.html") in ran.out

    again = regard("demo", "--steps", 3, "--out", out)
    assert again.code == 0
    assert again.out.startswith(f"{out / 'run'} exists: it is resumed, if 3 steps are not done;")
    assert "Nothing is left to train" in again.out


def test_wrong_input(refused: Refused, tmp_path: Path) -> None:
    assert "steps must be 1 or more, got 0" in refused("demo", "--steps", 0, "--out", tmp_path / "demo")
    assert not (tmp_path / "demo").exists()
