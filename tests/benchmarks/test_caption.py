"""The benchmark of captions, on runs that have learned nothing."""

from pathlib import Path

import pytest
from benchmarks import measured
from benchmarks.vision import caption
from benchmarks.vision.result import Result
from PIL import Image

from regard.data.embedded.scenes import CaptionedImages, scenes
from regard.data.text.tokenizer import Tokenizer
from regard.tasks.caption.options import Caption
from regard.tasks.caption.predictor import TOKENS
from regard.tasks.caption.task import caption_stats
from regard.tasks.shared.image_data import save_or_check_stats
from regard.tasks.shared.text_generation import write_tokenizer
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.run_folder import RunRecord


@pytest.mark.whole
def test_it_judges_draws_and_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = scenes("test", count=20)
    tokens = Tokenizer.train("words", [line for said in some.captions for line in said], 100)
    # unlike what the benchmark would train by itself; one has come to its end, the other has not
    tasks = {name: Caption.of(attention=name, hidden=17, seed=5) for name in caption.BOUNDS}
    reached, seeds = {"soft": 70, "hard": 40}, []
    for name, task in tasks.items():
        run = tmp_path / f"caption-{name}"
        write_tokenizer(tokens, run / TOKENS)
        save_or_check_stats(caption_stats(some, some), run, new=True)
        RunRecord.of(task, TrainingConfig(steps=70, lr=0.125)).write(run)
        stored = checkpoint.collect(task.model.build(1, len(tokens)))
        checkpoint.write(run / "best.safetensors", stored, {"step": 3, "score": {}})
        checkpoint.write(run / "last.safetensors", stored, {"step": reached[name]})

    def read(task: Caption, split: str) -> CaptionedImages:
        seeds.append(task.seed)
        return some

    monkeypatch.setattr(caption, "read_captioned", read)
    monkeypatch.setattr(Result, "write", lambda self: measured.write(tmp_path / "caption.json", self))
    assert caption.main(["--runs", str(tmp_path), "--report", "--pictures", str(tmp_path)]) == 0
    told = Result.read(tmp_path / "caption.json")
    assert [row.verdict for row in told.rows] == ["falls short"] * 4
    assert [row.bound.value for row in told.rows if row.bound is not None] == [95, 90, 90, 80]
    assert len(told.tables[0].rows) == 4
    unfinished = "best of 40 steps: step 3; unfinished, 70 steps are planned"
    assert [row.how for row in told.rows] == ["best of 70 steps: step 3"] * 2 + [unfinished] * 2
    assert seeds == [5, 5]
    for name, settings in told.settings.items():
        assert settings["task"] == tasks[name].to_json()  # type: ignore[index]
        assert (settings["training"]["steps"], settings["training"]["lr"]) == (70, 0.125)
    for picture in told.pictures:
        with Image.open(tmp_path / picture.file) as image:
            assert image.width > 300
        assert (tmp_path / picture.file).stat().st_size < 60_000
    with pytest.raises(SystemExit):
        caption.main(["--runs", str(tmp_path), "middling"])
