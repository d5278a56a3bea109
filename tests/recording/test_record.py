"""record: what it keeps, what it costs, what it leaves as it was, and what it says when it cannot."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.refusals import Act, check_refusals
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import regard
from regard.attn.maps.attention_map import DenseMap, LazyMap

B, N, D, H = 2, 7, 12, 3


class Attend(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, H, -1)).transpose(1, 3).unbind(2)
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.feed = Attend(), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return x + torch.relu(self.feed(x))


def model() -> nn.Sequential:
    return nn.Sequential(Layer(), Layer(), Layer()).eval()


def x() -> Tensor:
    return torch.randn(B, N, D)


def test_the_tape_is_a_recording_that_grows() -> None:
    net, given = model(), x()
    with regard.record(net) as tape:
        assert isinstance(tape, regard.recording.Recording)
        assert len(tape) == 0
        net(given)
        assert len(tape) == 3
        assert tape.select("1.*")[0].name == "1.attention"
        net(given)
    net(given)
    assert len(tape) == 6
    assert isinstance(tape.maps, tuple)
    assert [one.call for one in tape["1.attention"]] == [0, 1]
    assert tape.about["model"] == "Sequential"
    assert tape[:3].rollout()[0].shape == (B, 1, N, N)


def test_the_model_is_left_as_it_was() -> None:
    net, given = model(), x()
    before = copy.deepcopy(net.state_dict())
    want = net(given)
    with regard.record(net):
        got = net(given)
    assert torch.equal(want, got)
    assert got.requires_grad
    for module in net.modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks
    for name, value in net.state_dict().items():
        assert torch.equal(before[name], value)


def test_an_error_in_the_model_leaves_nothing_behind() -> None:
    net = model()
    with pytest.raises(RuntimeError, match="mat1 and mat2"), regard.record(net) as tape:
        net(torch.randn(B, N, D + 1))
    assert not any(module._forward_hooks for module in net.modules())
    with regard.record(net) as tape:
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            net(torch.randn(B, N, D + 1))
        net(x())
    assert list(tape.names) == ["0.attention", "1.attention", "2.attention"]


def test_only_the_layers_that_are_asked_for() -> None:
    net, given = model(), x()
    for layers, names in (("1.*", ["1.attention"]), (["0.*", "2.attention"], ["0.attention", "2.attention"])):
        with regard.record(net, layers=layers) as tape:
            net(given)
        assert list(tape.names) == names


@pytest.mark.parametrize("keep", ["qk", "weights"])
def test_some_heads_and_rows_are_cut_before_they_are_kept(keep: str) -> None:
    net, given = model(), x()
    with regard.record(net) as whole:
        net(given)
    with regard.record(net, heads=[2, 0], rows=[6, 1, -3], keep=keep) as tape:
        net(given)
    for one, all_of_it in zip(tape, whole, strict=True):
        assert one.verified
        assert (one.heads, one.rows) == ((2, 0), (6, 1, 4))
        want = all_of_it.weights.dense()[:, [2, 0]][..., [6, 1, 4], :]
        torch.testing.assert_close(one.weights.dense(), want, rtol=0.0, atol=1e-6)
    assert isinstance(tape[0].weights, LazyMap if keep == "qk" else DenseMap)
    with regard.record(net, heads=1, rows=slice(-2, None)) as tape:
        net(given)
    torch.testing.assert_close(tape[0].weights.dense(), whole[0].weights.dense()[:, 1:2, -2:], rtol=0.0, atol=1e-6)


def test_queries_and_keys_are_kept_and_nothing_else() -> None:
    net, given = model(), torch.randn(1, 500, D)
    least = 2 * 3 * 500 * D * 4 + 500 * 8  # queries and keys of three layers, positions of all
    with regard.record(net, budget=least) as tape:
        net(given)
    assert len(tape) == 3
    with (
        pytest.raises(
            MemoryError,
            match="the budget of 148 kB is too small: '1.attention' takes 48 kB, 2 maps of its size are to come",
        ),
        regard.record(net, budget=least - 1),
    ):
        net(given)


def test_the_budget_looks_ahead() -> None:
    net, given = model(), torch.randn(1, 100, D)
    one, rule = 4 * H * 100 * 100, 8 * 100  # weights, and the positions that tell what is masked, once for all
    with regard.record(net, keep="weights", budget=3 * one + rule) as tape:
        net(given)
    assert len(tape) == 3
    said = (
        "the budget of 240 kB is too small: '0.attention' takes 120 kB, 3 maps of its size are to come, 240 kB are left"
    )
    with pytest.raises(MemoryError, match=said) as error, regard.record(net, keep="weights", budget=2 * one) as tape:
        net(given)
    assert "keep queries and keys instead of weights, or raise budget=" in str(error.value)
    assert len(tape) == 0
    said = "the budget of 361 kB is spent: 361 kB are kept, and '0.attention' needs 120 kB more; record fewer layers="
    with regard.record(net, keep="weights", budget=3 * one + rule) as tape:
        net(given)
        with pytest.raises(MemoryError, match=said):
            net(given)
    assert len(tape) == 3


def test_the_gradient_is_that_of_the_weights() -> None:
    net, given = model(), x()
    with regard.record(net, gradients=True) as tape:
        out = net(given)
    with pytest.raises(RuntimeError, match="the gradient of '0.attention' is known after a backward pass"):
        tape[0].gradient.dense()
    (out * torch.arange(D)).sum().backward()
    attend = net[0].attention
    q, k, v = attend.qkv(given).unflatten(-1, (3, H, -1)).transpose(1, 3).unbind(2)
    weights = torch.softmax((q @ k.mT * (D // H) ** -0.5).masked_fill(~torch.ones(N, N).bool().tril(), -torch.inf), -1)
    weights = weights.detach().requires_grad_()
    h = given + attend.out((weights @ v).transpose(1, 2).flatten(-2))
    h = h + torch.relu(net[0].feed(h))
    (net[2](net[1](h)) * torch.arange(D)).sum().backward()
    torch.testing.assert_close(tape[0].gradient.dense(), weights.grad, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(tape[0].gradient.pick(1, 2)[3:5, 1:], weights.grad[1, 2, 3:5, 1:], rtol=1e-4, atol=1e-5)
    assert tape.relevance()[0].shape == (B, 1, N, N)
    with regard.record(net, gradients=True, heads=[2], rows=[5, 1]) as some:
        out = net(given)
    (out * torch.arange(D)).sum().backward()
    torch.testing.assert_close(some[0].gradient.dense(), weights.grad[:, [2]][..., [5, 1], :], rtol=1e-4, atol=1e-5)


def test_gradients_of_every_way_to_attend() -> None:
    heads = nn.MultiheadAttention(D, H, batch_first=True)
    own = regard.MultiHead(D, H, kv_heads=1)
    given = x()
    for net, call in ((heads, lambda: heads(given, given, given)[0]), (own, lambda: own(given))):
        with regard.record(net, gradients=True) as tape:
            out = call()
        out.sum().backward()
        (one,) = tape
        assert one.gradient.shape == one.shape
        # rows of a softmax: what all weights together gain is the loss's own change with the output
        assert one.gradient.dense().abs().sum() > 0


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_compiled_model_is_recorded_and_stays_compiled(fullgraph: bool) -> None:
    net, given = model(), x()
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    fast = torch.compile(net, backend=backend, fullgraph=fullgraph)
    want = fast(given)
    compiled = len(graphs)
    with regard.record(fast) as tape:
        got = fast(given)
    torch.testing.assert_close(got, want, rtol=0.0, atol=1e-6)
    assert list(tape.names) == ["0.attention", "1.attention", "2.attention"]
    assert all(one.verified for one in tape)
    fast(given)
    assert len(graphs) == compiled
    assert len(tape) == 3


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_under_autocast_the_certificate_knows_the_type(kind: torch.dtype) -> None:
    for net, given in ((model(), x()), (regard.MultiHead(D, H), x())):
        with torch.no_grad(), torch.autocast("cpu", dtype=kind):
            want = net(given)
            with regard.record(net) as tape:
                got = net(given)
            assert torch.equal(want, got)
            assert all(one.verified for one in tape)
            inside = tape[0].weights.dense()
        assert inside.dtype == torch.float32
        assert torch.equal(inside, tape[0].weights.dense())


def test_inference_mode_is_recorded() -> None:
    net, given = model(), x()
    with torch.inference_mode(), regard.record(net) as tape:
        net(given)
        net(given)
    assert all(one.verified for one in tape)
    assert not tape[0].weights.dense().is_inference()


def test_tolerance_is_what_the_caller_says() -> None:
    net = model()
    with regard.record(net, tolerance=1e-12) as tape:
        net(x())
    assert tape[0].tolerance == 1e-12
    assert not all(one.verified for one in tape)


class WrittenOut(nn.Module):
    def forward(self, x: Tensor) -> Tensor:  # "*b t d"
        return (x @ x.mT).softmax(-1) @ x


class Uneven(regard.Normalizer):
    """A term that nobody here wrote."""

    def weights(self, scores: Tensor, allowed: Tensor | None) -> Tensor:
        return torch.softmax(scores, -1)


def refused(make: Any = model, run: Any = lambda net: net(x()), **options: Any) -> Act:
    def act(_: Path) -> None:
        net = make()
        with regard.record(net, **options):
            run(net)

    return act


def mapped(net: nn.Module) -> Tensor:
    return torch.vmap(net)(torch.randn(3, B, N, D))


REFUSED: dict[type[Exception], dict[str, Act]] = {
    ValueError: {
        "unknown keep 'weight'; did you mean 'weights'": refused(keep="weight"),
        "unknown layers '0.atention'; did you mean '0.attention'": refused(layers="0.atention"),
        "budget must be a positive number of bytes, got 0; try 2_000_000_000": refused(budget=0),
        "tolerance must be positive for record, got -1.0": refused(tolerance=-1.0),
        "gradients=True needs an output with a gradient, and that of '0.attention' has none": refused(
            run=torch.no_grad()(lambda net: net(x())), gradients=True
        ),
        "heads=[1] cannot be taken from AttentionMap": refused(
            lambda: regard.MultiHead(D, H, attention=regard.Attention(normalize=Uneven())), heads=[1]
        ),
    },
    TypeError: {
        "layers must be names or patterns of modules, got 0; try": refused(layers=[0]),
        "heads must be whole numbers, at least one, got []; try heads=[0]": refused(heads=[]),
        "rows must be whole numbers": refused(rows=[0.5]),
        "record cannot capture calls inside TorchScript, and '1' is": refused(
            lambda: nn.Sequential(model(), torch.jit.script(nn.Linear(D, D)))
        ),
        "record captures one thread, and 'the model' runs in": refused(lambda: nn.DataParallel(model())),
        "model must be a Module, got": lambda _: regard.record("bert").__enter__(),  # type: ignore[arg-type]
    },
    RuntimeError: {
        "another record, or an intervene, is running in this thread; end that with-block first": refused(
            run=lambda net: regard.record(net[1]).__enter__()
        ),
        "record cannot capture calls inside torch.func: '0.attention' attends under vmap": refused(run=mapped),
        "record cannot capture calls inside torch.func: '0' attends under vmap": refused(
            lambda: nn.Sequential(WrittenOut()), mapped
        ),
    },
    IndexError: {
        "heads=[3] are not there: '0.attention' has heads 0 to 2; choose others, or layers= that have them": refused(
            heads=[3]
        ),
        "rows=[7] are not there: '0.attention' has queries 0 to 6; a slice takes those there are": refused(rows=[7]),
    },
}


def test_refusals(tmp_path: Path) -> None:
    check_refusals(REFUSED, tmp_path)


def test_gradients_need_the_graph_of_a_checkpoint() -> None:
    net, inputs = WrittenOut(), x().requires_grad_()
    said = "that of 'the model' has none; checkpoint the model with use_reentrant=False, which keeps the graph$"
    with pytest.raises(ValueError, match=said), regard.record(net, gradients=True):
        checkpoint(net, inputs, use_reentrant=True)
    with regard.record(net, gradients=True) as recording:
        checkpoint(net, inputs, use_reentrant=False).sum().backward()
    assert recording[0].gradient is not None
