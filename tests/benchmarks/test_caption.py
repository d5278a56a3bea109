"""The benchmark of captions, on runs that have learned nothing."""

from pathlib import Path

import pytest
from benchmarks import measured
from benchmarks.vision import caption
from benchmarks.vision.result import Result
from PIL import Image

from regard.data.scenes import scenes
from regard.data.tokens import Tokens
from regard.tasks.caption import Caption
from regard.tasks.captioner import build, write_tokens
from regard.tasks.captioning import _facts
from regard.tasks.pictures import remember
from regard.train import checkpoint


def test_it_judges_draws_and_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = scenes("test", count=20)
    tokens = Tokens.train("words", [line for said in some.captions for line in said], 100)
    for name in caption.BOUNDS:
        run = tmp_path / f"caption-{name}"
        write_tokens(tokens, run)
        remember(_facts(some, some), run, new=True)
        model = build(Caption(attention=name), 1, len(tokens))
        checkpoint.write(run / "best.safetensors", checkpoint.gather(model), {"step": 3, "score": {}})
    monkeypatch.setattr(caption, "read", lambda task, split: some)
    monkeypatch.setattr(Result, "write", lambda self: measured.write(tmp_path / "caption.json", self))
    assert caption.main(["--runs", str(tmp_path), "--report", "--pictures", str(tmp_path)]) == 0
    told = Result.read(tmp_path / "caption.json")
    assert [row.verdict for row in told.rows] == ["falls short"] * 4
    assert [row.bound.value for row in told.rows if row.bound is not None] == [95, 90, 90, 80]
    assert len(told.tables[0].rows) == 4
    for picture in told.pictures:
        with Image.open(tmp_path / picture.file) as image:
            assert image.width > 300
        assert (tmp_path / picture.file).stat().st_size < 60_000
    with pytest.raises(SystemExit):
        caption.main(["--runs", str(tmp_path), "middling"])
