"""A model in evaluation for a while: afterwards every module is as it was."""

import pytest
from torch import nn

from regard.common.eval_mode import eval_mode


def test_every_module_is_as_it_was() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3)))
    model[1].eval()
    before = [module.training for module in model.modules()]
    assert before == [True, True, False, False, False]
    with eval_mode(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before
    with pytest.raises(IndexError), eval_mode(model):
        model[2]
    assert [module.training for module in model.modules()] == before
