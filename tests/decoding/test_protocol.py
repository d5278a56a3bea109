"""Logits that are left unread."""

import torch
from tests.decoding.toy import Standing
from torch import Tensor

from regard.decoding.protocol import LazyLogits, Step


def test_only_a_plain_layer_is_left_unread() -> None:
    class Scaled(torch.nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    states, plain, scaled = torch.randn(2, 3, 5), torch.nn.Linear(5, 7), Scaled(5, 7)
    left = LazyLogits.of(plain, states)
    assert isinstance(left, LazyLogits)
    assert left.shape == (2, 3, 7)
    assert torch.equal(Step(left, Standing(states, states)).logits, plain(states))
    made = LazyLogits.of(scaled, states)
    assert isinstance(made, Tensor)
    assert torch.equal(made, scaled(states))
    heard = []
    handle = plain.register_forward_hook(lambda _, __, out: heard.append(out))
    assert isinstance(LazyLogits.of(plain, states), Tensor)
    assert len(heard) == 1
    handle.remove()
    everywhere = torch.nn.modules.module
    for register in (everywhere.register_module_forward_hook, everywhere.register_module_forward_pre_hook):
        handle = register(lambda *_: heard.append(None))
        assert isinstance(LazyLogits.of(plain, states), Tensor)
        handle.remove()
    assert len(heard) == 3
    assert isinstance(LazyLogits.of(plain, states), LazyLogits)
