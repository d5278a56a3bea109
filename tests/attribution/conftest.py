"""A short search for other attention: its steps are most of the time of `faithfulness`."""

from functools import partial
from importlib import import_module

import pytest

from regard.attribution.adversarial_map import adversarial_map


@pytest.fixture(autouse=True)
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    # the package has a function of the name of the module
    measuring = import_module("regard.attribution.faithfulness")
    monkeypatch.setattr(measuring, "adversarial_map", partial(adversarial_map, steps=4))
