"""torch.export with numbers of queries and keys that are not known: every mechanism, and the terms of a layer."""

from collections.abc import Callable

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard import Attention, MultiHead
from regard.kernels.torch_versions import at_least

B, D, H = 2, 8, 4
LENGTHS = torch.tensor([2, 3])
# mechanisms whose steps depend on the steps before, for which torch.export needs its scan
STEPWISE = [name for name in regard.MECHANISMS if hasattr(regard.mechanism(name, D), "start")]
# mechanisms that select among blocks, whose number is a part of the program
IN_BLOCKS = ["moba", "nsa"]
WHOLE = [name for name in regard.MECHANISMS if name not in (*STEPWISE, *IN_BLOCKS)]


class _Pair(nn.Module):
    """A layer by its queries and keys."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return self.layer(q, k)


def export(program: nn.Module, inputs: dict[str, Tensor]) -> nn.Module:
    """The program for any number of positions from 3 to 512 in every input, "b n d"."""
    torch._dynamo.reset()
    shapes = {name: {1: torch.export.Dim(f"n_{name}", min=3, max=512)} for name in inputs}
    with torch.no_grad():
        return torch.export.export(program, tuple(inputs.values()), dynamic_shapes=shapes, strict=False).module()


def check_pair(name: str) -> None:
    program = _Pair(regard.mechanism(name, D).eval())
    exported = export(program, {"q": torch.randn(B, 6, D), "k": torch.randn(B, 7, D)})
    for queries, keys in ((3, 9), (9, 9), (5, 33), (33, 5)):
        q, k = torch.randn(B, queries, D), torch.randn(B, keys, D)
        with torch.no_grad():
            torch.testing.assert_close(exported(q, k), program(q, k), rtol=1e-4, atol=1e-5, msg=name)


@for_each("name", WHOLE, share=0.1)
def test_a_mechanism_takes_any_number_of_queries_and_keys(name: str) -> None:
    check_pair(name)


def test_blocks_of_an_unknown_number_are_refused() -> None:
    for name, owner in (("nsa", "NativeSparseAttention"), ("moba", "TopBlocks")):
        with pytest.raises(ValueError, match=f"{owner} selects among blocks .* export fixed ones"):
            check_pair(name)
    layer, x = regard.mechanism("nsa", D).eval(), torch.randn(B, 6, D)
    with torch.no_grad():
        torch.testing.assert_close(torch.export.export(layer, (x,), strict=False).module()(x), layer(x))


@pytest.mark.skipif(not at_least("2.13"), reason="torch 2.13 is the first whose scan was tried")
@for_each("name", STEPWISE, share=0.5)
def test_so_does_one_that_runs_step_by_step(name: str) -> None:
    check_pair(name)


def test_older_torch_refuses_unknown_numbers_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.attn.mechanisms.recurrent.at_least", lambda version: False)
    with pytest.raises(ValueError, match="can be dynamic from torch 2.13 on; export a fixed number, or the step"):
        check_pair("monotonic")


TERMS: dict[str, Callable[[], dict[str, object]]] = {
    "causal": lambda: {"mask": regard.Causal()},
    "window": lambda: {"mask": regard.Window(5, 0)},
    "prefix": lambda: {"mask": regard.Prefix(LENGTHS)},
    "lengths": lambda: {"mask": regard.Lengths(LENGTHS) & regard.Causal()},
    "joined": lambda: {"mask": regard.Window(2, 0) | ~regard.Causal()},
    "null": lambda: {"mask": regard.Causal(), "normalize": regard.normalizers.WithNullSlot()},
    "topk": lambda: {"mask": regard.Causal(), "normalize": regard.normalizers.TopK(5)},
    "alibi": lambda: {"mask": regard.Causal(), "bias": regard.ALiBi(H)},
    "t5": lambda: {"mask": regard.Causal(), "bias": regard.biases.T5Buckets(H)},
    "linear": lambda: {
        "mask": regard.Causal(),
        "score": regard.scores.Kernel(),
        "normalize": regard.normalizers.Sum(),
    },
    "padded linear": lambda: {
        "mask": regard.Lengths(LENGTHS),
        "score": regard.scores.Kernel(),
        "normalize": regard.normalizers.Sum(),
    },
}


# torch 2.6 warns of every constant that a program holds
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node", "ignore:Node lifted_tensor")
@for_each("name", TERMS, share=0.25)
def test_layers_with_masks_take_any_length(name: str) -> None:
    layer = MultiHead(D, H, rotate=regard.Rotary(D // H), attention=Attention(**TERMS[name]())).eval()
    exported = export(layer, {"q": torch.randn(B, 6, D)})
    for n in (3, 9, 64, 100, 128):
        x = torch.randn(B, n, D)
        with torch.no_grad():
            torch.testing.assert_close(exported(x), layer(x), rtol=1e-4, atol=1e-5, msg=name)
