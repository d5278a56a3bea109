"""The batches of every task: a pure function of the epoch, whose shares of several processes are the whole."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tasks.own_files import FILE_TASKS
from tests.tasks.test_changed_files import config_of

# options whose draws depend on the process
DRAWS = {"word_dropout": 0.0, "value_dropout": 0.0, "noise": 0.0}
# the loss of an example depends on the others of its share, or on responses that its process draws
DEPENDENT = {"embed", "select-response"}


@pytest.mark.parametrize("name", FILE_TASKS)
def test_processes_share_the_batches_of_an_epoch(name: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    config = config_of(name, tmp_path, batch=12)
    names = {item.name for options in (config, config.model) for item in fields(options)}
    config = config.with_options(**{option: value for option, value in DRAWS.items() if option in names})
    problem = config.prepare(tmp_path / "run")
    plans = [problem.plan_epoch(epoch) for epoch in (0, 1, 0)]
    for plan, again in zip(plans[0], plans[2], strict=True):
        np.testing.assert_equal(plan, again)
    assert len(plans[0]) > 0
    assert [repr(each) for each in plans[0]] != [repr(each) for each in plans[1]]
    model = problem.build_model().eval()
    for planned in plans[0][:3]:
        whole = problem.load_batch(planned, 0, 1)
        shares = [part for rank in (0, 1) if (part := problem.load_batch(planned, rank, 2)) is not None]
        assert problem.num_terms(whole) == sum(map(problem.num_terms, shares))
        if name not in DEPENDENT:
            loss, *losses = (problem.loss(model, batch).total for batch in (whole, *shares))
            torch.testing.assert_close(sum(losses), loss, rtol=1e-4, atol=1e-5)
