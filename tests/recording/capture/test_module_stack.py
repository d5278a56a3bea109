"""The modules that a record or an intervene is about: those of its model, in its thread."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard.interop import uniform
from regard.recording.capture.module_stack import ModuleFrame, ModuleStack, is_cross_attention


class Fused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(6, 18)

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*self.project(x).chunk(3, -1))


class Written(Fused):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).chunk(3, -1)
        return nn.Softmax(-1)(q @ k.mT) @ v


class Layer(nn.Module):
    """A layer of this library behind projections."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = regard.MultiHead(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.heads(x)


class Stack(nn.Module):
    def __init__(self, kind: type[nn.Module], layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(kind() for _ in range(layers))

    def encode(self, x: Tensor) -> Tensor:
        """Attends in a method of its own, then by modules."""
        return self(F.scaled_dot_product_attention(x, x, x))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


KINDS = (Fused, Written, Layer)
NAMES = ("layers.0", "layers.1", "layers.2")
x = torch.randn(1, 5, 6, generator=torch.Generator().manual_seed(0))


def names(recording: regard.recording.Recording) -> tuple[str, ...]:
    return tuple(name.removesuffix(".heads") for name in recording.names)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_another_model_is_not_recorded(kind: type[nn.Module]) -> None:
    model, other = Stack(kind), Stack(kind)
    left_alone = pytest.warns(
        UserWarning, match=r"record left alone the attention of .*no part of the model; run other"
    )
    with left_alone, regard.record(model) as recording:
        other(x)
        model(x)
        other(x)
    assert names(recording) == NAMES
    assert len(recording) == 3


@pytest.mark.parametrize("kind", [Fused, Layer])
@torch.no_grad()
def test_another_model_is_not_changed(kind: type[nn.Module]) -> None:
    model, other = Stack(kind), Stack(kind)
    expected = other(x)
    left_alone = pytest.warns(UserWarning, match=r"intervene left alone the attention of .*no part of the model")
    with left_alone, regard.intervene(model, uniform) as intervention:
        model(x)
        assert torch.equal(other(x), expected)
    assert set(intervention.calls.values()) == {1}
    assert len(intervention.calls) == 3


@torch.no_grad()
def test_nested_interventions_of_two_models_reach_each_its_own() -> None:
    model, other = Stack(Fused), Stack(Fused)
    left_alone = pytest.warns(UserWarning, match="intervene left alone")
    with left_alone, regard.intervene(model, uniform) as outer, regard.intervene(other, uniform) as inner:
        model(x)
        other(x)
    assert outer.calls == inner.calls == dict.fromkeys(NAMES, 1)


@torch.no_grad()
def test_swapped_terms_reach_one_of_two_models() -> None:
    model, other = Stack(Layer), Stack(Layer)
    expected = other(x)
    with regard.swap(model, normalize=regard.Sparsemax()), regard.record(model) as recording:
        model(x)
    assert torch.equal(other(x), expected)
    assert names(recording) == NAMES


@torch.no_grad()
def test_methods_and_wrappers_of_the_model_are_recorded() -> None:
    model = Stack(Fused)
    with regard.record(model) as recording:
        nn.Sequential(model)(x)
        model.encode(x)
    assert recording.names == (*NAMES, "")


@torch.no_grad()
def test_a_module_that_the_model_calls_unregistered_is_a_part_of_it() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = [Fused()]

        def forward(self, x: Tensor) -> Tensor:
            return self.hidden[0](x)

    with regard.record(model := Holder()) as recording:
        model(x)
    assert recording.names == ("",)


@contextmanager
def running(run: object) -> Iterator[None]:
    """Another thread that is inside a layer of the model while the block runs."""
    assert callable(run)
    entered, left = threading.Event(), threading.Event()
    thread = threading.Thread(target=run, args=(entered, left))
    thread.start()
    assert entered.wait(30)
    try:
        yield
    finally:
        left.set()
        thread.join()


class Waiting(Stack):
    """Waits inside its second layer for another thread, if that is asked for."""

    def __init__(self, kind: type[nn.Module] = Fused) -> None:
        super().__init__(kind)
        self.waits = threading.local()
        self.layers[1].register_forward_pre_hook(self._wait)

    def _wait(self, module: nn.Module, args: object) -> None:
        events = getattr(self.waits, "events", None)
        if events is not None:
            events[0].set()
            events[1].wait(30)

    def run_and_wait(self, entered: threading.Event, left: threading.Event) -> None:
        self.waits.events = (entered, left)
        with torch.no_grad():
            self(x)


@torch.no_grad()
def test_another_thread_that_runs_the_model_changes_no_names() -> None:
    model = Waiting()
    with regard.record(model) as recording, running(model.run_and_wait):
        model(x)
    assert recording.names == NAMES
    with regard.intervene(model, uniform, layers="layers.2") as intervention, running(model.run_and_wait):
        model(x)
    assert intervention.calls == {"layers.2": 1}


@torch.no_grad()
def test_two_threads_record_one_model_each_for_itself() -> None:
    model, recordings = Waiting(), []

    def run(entered: threading.Event, left: threading.Event) -> None:
        with regard.record(model) as recording:
            model.run_and_wait(entered, left)
        recordings.append(recording)

    with regard.record(model) as recording, running(run):
        model(x)
    assert [r.names for r in (recording, *recordings)] == [NAMES, NAMES]


@torch.no_grad()
def test_two_threads_change_one_model_each_for_itself() -> None:
    model, interventions = Waiting(), []

    def run(entered: threading.Event, left: threading.Event) -> None:
        with regard.intervene(model, uniform, layers="layers.0") as intervention:
            model.run_and_wait(entered, left)
        interventions.append(intervention)

    expected = model(x)
    with regard.intervene(model, uniform, layers="layers.2") as intervention, running(run):
        model(x)
    assert intervention.calls == {"layers.2": 1}
    assert interventions[0].calls == {"layers.0": 1}
    assert torch.equal(model(x), expected)


@torch.no_grad()
def test_swapped_terms_are_recorded_while_another_thread_runs_the_model() -> None:
    model = Waiting(Layer)
    with regard.swap(model, normalize=regard.Sparsemax()):
        with regard.record(model) as recording, running(model.run_and_wait):
            swapped = model(x)
        assert torch.equal(model(x), swapped)
    assert names(recording) == NAMES
    assert all(recorded.verified for recorded in recording)


@torch.no_grad()
def test_a_model_that_ran_in_another_thread_alone_did_not_run() -> None:
    model = Stack(Fused)
    not_run = pytest.warns(UserWarning, match="no module of the model ran in this thread")
    with not_run, regard.record(model):
        thread = threading.Thread(target=lambda: model(x))
        thread.start()
        thread.join()


def test_hooks_take_calls_without_keyword_arguments() -> None:
    # another thread may see a hook of which the flags are not yet set
    stack = ModuleStack(model := Stack(Fused))
    with stack.attached():
        stack._enter(model, (x,))
        assert stack.current.kwargs == {}


@for_each(
    ("name", "is_cross"),
    [
        ("encoder.cross_attention.attention.self", True),
        ("encoder.self_attends.0.attention.self", False),
        ("encoder.layer.0.attention.self", False),
        ("encoder.layer.0.crossattention.self", True),
        ("decoder.layers.0.encoder_attn", True),
        ("cross_encoder.layer.0.attention.self", False),
    ],
)
def test_the_name_of_a_module_shows_cross_attention(name: str, is_cross: bool) -> None:
    assert is_cross_attention(ModuleFrame(name, None), 6, 9) == is_cross
