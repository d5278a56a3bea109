"""The facts of a run of respond, as its file has them."""

import json
from pathlib import Path

import pytest

from regard.tasks.respond.data import ReplyFacts


@pytest.mark.parametrize("count", [-1, 10**400])
def test_counts_that_no_data_has_are_refused(count: int, tmp_path: Path) -> None:
    """A count of 400 digits is no floating-point number, and the baseline would fail."""
    facts = ReplyFacts(counts=[1], train=0, valid=0, train_sha256="", valid_sha256="")
    facts.write(tmp_path)
    path = tmp_path / ReplyFacts.file
    path.write_text(json.dumps({**json.loads(path.read_text()), "counts": [1, count]}))
    with pytest.raises(ValueError, match=r"counts must be whole numbers from 0 to 2⁵³, got '(-1|10+…)'") as caught:
        ReplyFacts.read(tmp_path)
    assert "\n" not in str(caught.value)
