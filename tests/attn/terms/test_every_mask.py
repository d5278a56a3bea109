"""Laws of every public mask: a new one is tested when it is listed, and must be listed."""

from unittest import mock

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

import regard
from regard import Causal, Mask, masks
from regard.attn.backends import blocked

N = 60
GRID = (4, 15)
CASES: dict[str, Mask] = {
    "Axial": masks.Axial(GRID, axis=0),
    "BooleanMask": masks.BooleanMask(torch.rand(N, N, generator=torch.Generator().manual_seed(0)) < 0.3),
    "Causal": Causal(),
    "CrissCross": masks.CrissCross((3, 4, 5)),
    "Dilated": masks.Dilated(3, 4),
    "Documents": masks.Documents(torch.arange(N) // 17),
    "Edges": masks.Edges(torch.stack([torch.arange(3 * N) * 7 % N, torch.arange(3 * N) // 3])),
    "Fixed": masks.Fixed(7, 2),
    "Global": masks.Global([3, 41]) | masks.Window(2, 2),
    "Lengths": masks.Lengths([N, 23]),
    "Neighbourhood": masks.Neighbourhood(GRID, 3, (1, 2)),
    "Prefix": masks.Prefix(torch.tensor([5, 0])),
    "RandomBlocks": masks.RandomBlocks(N, 7, 2),
    "SelectedBlocks": masks.SelectedBlocks(torch.rand(N, 6, generator=torch.Generator().manual_seed(0)) < 0.3, 10),
    "Strided": masks.Strided(7),
    "TopBlocks": masks.TopBlocks(4, 2),
    "Window": masks.Window(4, 2),
    "Windows": masks.Windows(GRID, (2, 4), (1, 3)),
}
# masks that name the keys of one call, by their index
BY_INDEX = {"BooleanMask", "Documents", "SelectedBlocks"}
# masks that select by the blocks of keys as they stand
BY_BLOCK = BY_INDEX | {"TopBlocks"}


def inputs() -> list[Tensor]:
    draw = torch.Generator().manual_seed(1)
    return [torch.randn(2, 2, N, d, dtype=torch.float64, generator=draw).requires_grad_() for d in (4, 4, 3)]


def test_every_public_mask_is_here() -> None:
    assert set(CASES) == {name for name in dir(masks) if isinstance(getattr(masks, name), type)} - {"Mask"}


@for_each("name", CASES)
def test_blocks_equal_the_whole_matrix_with_gradients(name: str) -> None:
    """Alone, hidden behind another one, and with padding, which leaves rows without keys."""
    qkv = inputs()
    weights = torch.arange(1.0, 4.0, dtype=torch.float64)
    for mask in (CASES[name], ~CASES[name] & Causal(), CASES[name] & regard.Lengths([41, 0])):
        results = []
        for backend in ("eager", "blocked"):
            with mock.patch.object(blocked, "_WEIGHTS", 1 << 12):
                out = regard.attention(*qkv, mask=mask, normalize=regard.Sparsemax(), backend=backend)
                results.append([out, *torch.autograd.grad((out * weights).sin().sum(), qkv)])
        torch.testing.assert_close(*results)
        assert all(t.isfinite().all() for t in results[0])


@for_each("name", sorted(set(CASES) - BY_INDEX))
def test_steps_are_the_whole(name: str) -> None:
    q, k, v = (t.detach() for t in inputs())
    # a list of lengths, and edges, name keys that are not there yet: positions say that these are some of them
    mask, is_named = CASES[name] & Causal(), name in ("Edges", "Lengths")
    whole = regard.attention(q, k, v, mask=mask)
    for t in (0, 1, 22, 23, 41, N - 1):
        positions = (torch.tensor([t]), torch.arange(t + 1)) if is_named else None
        step = regard.attention(q[:, :, t : t + 1], k[:, :, : t + 1], v[:, :, : t + 1], mask=mask, positions=positions)
        torch.testing.assert_close(step, whole[:, :, t : t + 1])


@for_each("name", sorted(set(CASES) - BY_BLOCK))
def test_positions_decide_and_not_the_order_of_keys(name: str) -> None:
    q, k, v = (t.detach() for t in inputs())
    whole = regard.attention(q, k, v, mask=CASES[name])
    rows, columns = (torch.randperm(N, generator=torch.Generator().manual_seed(seed)) for seed in (2, 3))
    got = regard.attention(
        q[:, :, rows], k[:, :, columns], v[:, :, columns], mask=CASES[name], positions=(rows, columns)
    )
    torch.testing.assert_close(got, whole[:, :, rows])


def test_edges_of_nodes_that_are_not_there_yet_are_refused() -> None:
    q, k, v = (t.detach() for t in inputs())
    with pytest.raises(ValueError, match="index of Edges has node 59, and there are 10 keys, one per node"):
        regard.attention(q[:, :, 9:10], k[:, :, :10], v[:, :, :10], mask=CASES["Edges"] & Causal())
