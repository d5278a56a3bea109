"""The batches of every task: a pure function of the epoch, whose shares of several processes are the whole."""

from pathlib import Path

import numpy as np
import pytest
from tests.tasks.own_files import FILE_TASKS
from tests.tasks.test_changed_files import config_of


@pytest.mark.parametrize("name", FILE_TASKS)
def test_processes_share_the_batches_of_an_epoch(name: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    problem = config_of(name, tmp_path, batch=12).prepare(tmp_path / "run")
    plans = [problem.plan_epoch(epoch) for epoch in (0, 1, 0)]
    for plan, again in zip(plans[0], plans[2], strict=True):
        np.testing.assert_equal(plan, again)
    assert len(plans[0]) > 0
    assert [repr(each) for each in plans[0]] != [repr(each) for each in plans[1]]
    for planned in plans[0][:3]:
        whole = problem.load_batch(planned, 0, 1)
        parts = [problem.load_batch(planned, rank, 2) for rank in (0, 1)]
        assert problem.num_terms(whole) == sum(problem.num_terms(part) for part in parts if part is not None)
