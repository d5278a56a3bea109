"""A comparison of another folder is refused before any training."""

from pathlib import Path

import pytest

from regard.experiments.comparison import compare
from regard.tasks.classify_image.options import ClassifyImage
from regard.training.config import TrainingConfig

VARIANTS = ClassifyImage.of(width=2, depths=(1,)).variants(["se"])


@pytest.mark.parametrize("content", ["[task", "a = " + "[" * 100_000])
def test_options_that_cannot_be_read(content: str, tmp_path: Path) -> None:
    (tmp_path / "compare.toml").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=r"compare\.toml cannot be read \(.*\); name another folder"):
        compare(VARIANTS, TrainingConfig(steps=1), tmp_path)
