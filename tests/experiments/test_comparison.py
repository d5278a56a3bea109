"""Every variant is trained with all of its options; a comparison of another folder is refused before any training."""

from pathlib import Path

import pytest
from tests.comparisons import train_in_process

from regard.experiments import comparison
from regard.experiments.comparison import compare
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.registry import read_config
from regard.training.config import TrainingConfig

VARIANTS = ClassifyImage.of(width=2, depths=(1,)).variants(["se"])


@pytest.mark.parametrize("content", ["[task", "a = " + "[" * 100_000])
def test_options_that_cannot_be_read(content: str, tmp_path: Path) -> None:
    (tmp_path / "compare.toml").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"compare\.toml cannot be read \(.*\); name another folder"):
        compare(VARIANTS, TrainingConfig(steps=1), tmp_path)


def test_variants_differ_in_any_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "_process", train_in_process)
    monkeypatch.chdir(tmp_path)
    configs = {f"width {width}": ClassifyImage.of(width=width, depths=(1,), batch=8 * width) for width in (2, 3)}
    compare(configs, TrainingConfig(steps=1, threads=1), Path("out"))
    for name, config in configs.items():
        assert read_config(Path("out") / name) == config
