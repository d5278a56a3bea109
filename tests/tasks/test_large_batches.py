"""A --batch beyond all samples gives a warning in every task whose batches count samples."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from regard.common.options.checks import large_batch_warnings
from regard.tasks.registry import TASKS


def test_the_sentence() -> None:
    assert large_batch_warnings(1024, 3, "images") == []
    assert large_batch_warnings(2000, 2000, "images") == []
    assert large_batch_warnings(10**12, 2000, "images") == [
        "--batch 1,000,000,000,000 is more than the 2,000 images there are: an epoch is one step, in which all of them "
        "take memory at once; try --batch 125"
    ]


@pytest.mark.parametrize("task", ["classify-image", "glimpse", "language-model", "masked-lm"])
def test_tasks_that_count_samples(task: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one two three four five six\n" * 90, encoding="utf-8")
    is_text = task in ("language-model", "masked-lm")
    options = {"train": (text,), "segment": 16, "tokens": "characters"} if is_text else {"data": "digits"}

    def warnings(batch: int) -> Sequence[str]:
        (folder := tmp_path / str(batch)).mkdir()
        return TASKS[task].of(batch=batch, **options).load().prepare(folder, new=True).warnings()

    (warning,) = warnings(10**12)
    assert warning.startswith("--batch 1,000,000,000,000 is more than the ")
    assert list(warnings(2)) == []
