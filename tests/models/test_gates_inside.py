"""Any gate inside the models of caption, glimpse and generate-image: it is recorded; without one nothing changes."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import record
from regard.gates.catalogue import GATES
from regard.models import RAM, SelfAttentionGAN
from regard.models.show_attend_tell.encoder import AnnotationEncoder


def captioned(**gate: Any) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    return AnnotationEncoder(1, 6, channels=4, **gate), lambda model: model(torch.ones(2, 1, 16, 12).cumsum(-1))


def glimpsed(**gate: Any) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    return RAM(3, 5, glimpses=2, **gate), lambda model: model(torch.ones(2, 3, 16, 16).cumsum(-1))


def generated(**gate: Any) -> tuple[nn.Module, Callable[[nn.Module], Tensor]]:
    y = torch.tensor([0, 1])
    model = SelfAttentionGAN(8, 1, 3, noise=5, width=4, **gate)
    return model, lambda model: model.discriminator(model.generator(torch.ones(2, 5), y), y)


MODELS = {"caption": captioned, "glimpse": glimpsed, "generate-image": generated}


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("name", MODELS)
def test_every_gate(name: str, gate: str) -> None:
    torch.manual_seed(0)
    model, run = MODELS[name](gate=GATES[gate])
    assert run(model).isfinite().all()
    assert any(type(part).__name__ == type(GATES[gate](3)).__name__ for part in model.modules())


@pytest.mark.parametrize("name", MODELS)
def test_without_a_gate_weights_and_keys_stay(name: str) -> None:
    torch.manual_seed(0)
    plain, _ = MODELS[name]()
    torch.manual_seed(0)
    gated, run = MODELS[name](gate=GATES["simam"])
    assert plain.state_dict().keys() == gated.state_dict().keys()
    for key, value in plain.state_dict().items():
        torch.testing.assert_close(gated.state_dict()[key], value, rtol=0, atol=0)
    gated.eval()
    with torch.no_grad(), record(gated) as recording:
        run(gated)
    assert any("gate" in item.name for item in recording)
