"""A step of all layers of a language model in one native call is the step layer by layer."""

import pytest
import torch
from tests.models.language_model_cases import V, built, gpt2, xl

import regard.layers.causal_stack as causal_stack
from regard.kernels import native_library
from regard.layers.native_decoder import native_stack_step
from regard.models.gpt2 import GPT2

pytestmark = pytest.mark.skipif(native_library.library() is None, reason="no native library")

CASES = {
    "learned": gpt2(),
    "sinusoidal": gpt2(positions="sinusoidal"),
    "relu": gpt2(activation=torch.relu_),
    "gelu of torch": gpt2(activation=torch.nn.GELU("tanh")),
    "one layer": gpt2(layers=1),
}


def runs(model: GPT2, batch: int, prompt: int, steps: int = 5, lengths: torch.Tensor | None = None) -> torch.Tensor:
    tokens = torch.randint(0, V, (batch, prompt + steps), generator=torch.Generator().manual_seed(batch))
    with torch.no_grad():
        state, logits = model.init_state(tokens[:, :prompt], lengths), []
        for t in range(prompt, prompt + steps):
            step = model.step(tokens[:, t : t + 1], state)
            state = step.state
            logits.append(step.logits)
    return torch.cat(logits, 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch", [1, 3, 9, 40])
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_step_layer_by_layer(
    name: str, batch: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = built(CASES[name]).eval().to(dtype)
    calls: list[bool] = []

    def counted(*arguments: object) -> object:
        stepped = native_stack_step(*arguments)  # type: ignore[arg-type]
        calls.append(stepped is not None)
        return stepped

    for prompt in (0, 4):
        monkeypatch.setattr(causal_stack, "native_stack_step", counted)
        native = runs(model, batch, prompt)
        monkeypatch.setattr(causal_stack, "native_stack_step", lambda *arguments: None)
        tolerance = {"rtol": 1e-3, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9}
        torch.testing.assert_close(native, runs(model, batch, prompt), **tolerance)
        if prompt:
            # rows whose prompts are shorter have gaps behind them
            lengths = torch.arange(batch) % (prompt + 1)
            monkeypatch.setattr(causal_stack, "native_stack_step", counted)
            native = runs(model, batch, prompt, lengths=lengths)
            monkeypatch.setattr(causal_stack, "native_stack_step", lambda *arguments: None)
            torch.testing.assert_close(native, runs(model, batch, prompt, lengths=lengths), **tolerance)
    assert calls == [True] * 15


@pytest.mark.parametrize(
    "make", [gpt2(positions="rotary"), gpt2(positions="alibi"), gpt2(activation=torch.nn.GELU()), xl(memory=0)]
)
def test_other_layers_are_computed_one_by_one(make: object) -> None:
    model = built(make).eval()  # type: ignore[arg-type]
    x = torch.randn(2, 1, model.embedding.weight.shape[1] if isinstance(model, GPT2) else model.width)
    with torch.no_grad():
        assert native_stack_step(model.stack.layers, model.stack.norm, x, [None, None]) is None


def test_gradients_training_and_hooks_are_computed_one_by_one() -> None:
    model = built(gpt2()).eval()
    stack, x = model.stack, torch.randn(2, 1, model.embedding.weight.shape[1])
    assert native_stack_step(stack.layers, stack.norm, x, [None, None]) is None
    with torch.no_grad():
        assert native_stack_step(stack.layers, stack.norm, x, [None, None]) is not None
        assert native_stack_step(stack.layers, stack.norm, x.double(), [None, None]) is None
        assert native_stack_step(stack.layers, stack.norm, x[..., :-1], [None, None]) is None
        assert native_stack_step(stack.layers, stack.norm, x, [None]) is None
        seen = torch.ones(2, 1, dtype=torch.bool)
        assert native_stack_step(stack.layers, stack.norm, x, [None, None], seen) is not None
        assert native_stack_step(stack.layers, stack.norm, x, [None, None], seen.float()) is None
        assert native_stack_step(stack.layers, stack.norm, x, [None, None], seen[:1]) is None
        handle = stack.layers[1].feed.register_forward_hook(lambda *arguments: None)
        assert native_stack_step(stack.layers, stack.norm, x, [None, None]) is None
        handle.remove()


def test_a_state_can_be_continued_twice() -> None:
    """The cache of a state is shared by the states after it until two of them write to the same place."""
    model = built(gpt2()).eval()
    with torch.no_grad():
        state = model.init_state(torch.tensor([[1, 2, 3]]))
        first = model.step(torch.tensor([[4]]), state)
        other = model.step(torch.tensor([[5]]), state)
        after = model.step(torch.tensor([[6]]), first.state).logits
        torch.testing.assert_close(after[:, 0], model(torch.tensor([[1, 2, 3, 4, 6]]))[:, -1], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(other.logits[:, 0], model(torch.tensor([[1, 2, 3, 5]]))[:, -1], rtol=1e-3, atol=1e-4)
