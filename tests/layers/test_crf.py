"""The conditional random field against all paths, one by one."""

import copy
import itertools
import re

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

import regard
from regard.common.tag_schemes import TaggedSpan
from regard.layers.crf import Constraints

SCHEMES = {
    "IOB1": ["O", "B-X", "I-X"],
    "IOB2": ["I-X", "O", "B-X", "B-Y"],
    "BIOES": ["O", "B-X", "E-X", "S-X"],
    "BILOU": ["U-X", "B-X", "I-X", "L-X"],
}


class AllPaths:
    """Scores and probabilities of every path over one sequence without a mask."""

    def __init__(self, crf: regard.CRF, emissions: Tensor) -> None:
        transitions, start, end = (x.detach() for x in crf.potentials(emissions))
        n, k = emissions.shape
        self.paths = [list(path) for path in itertools.product(range(k), repeat=n)]
        index = torch.tensor(self.paths)  # p n
        self.scores = emissions[torch.arange(n), index].sum(1) + transitions[index[:, :-1], index[:, 1:]].sum(1)
        self.scores = self.scores + start[index[:, 0]] + end[index[:, -1]]
        self.shares = self.scores.softmax(0)
        self.index = index

    def marginals(self, k: int) -> Tensor:
        hot = torch.nn.functional.one_hot(self.index, k).double()
        return (hot * self.shares.view(-1, 1, 1)).sum(0)


def every_mask(t: int) -> Tensor:
    return torch.tensor(list(itertools.product([True, False], repeat=t)))


@for_each(("name", "tags", "t"), [(None, 4, 6), (None, 1, 4), *[(s, 0, 5) for s in SCHEMES]])
def test_every_result_against_all_paths(name: str | None, tags: int, t: int) -> None:
    scheme = None if name is None else regard.layers.TagScheme(name, SCHEMES[name])
    k = tags if scheme is None else len(scheme.tags)
    crf = regard.CRF(k, constraints=scheme).double()
    mask = every_mask(t)
    emissions = torch.randn(len(mask), t, k, dtype=torch.float64)
    best, several = crf.decode(emissions, mask), crf.decode(emissions, mask, k=5)
    marginals = crf.marginals(emissions, mask).detach()
    gold = torch.full(mask.shape, -1)
    for row, path in enumerate(several):
        gold[row, mask[row]] = torch.tensor(path[-1].tags, dtype=torch.int64)
    loss = crf.loss(emissions, gold, mask).detach()
    assert (marginals[~mask] == 0).all()
    labels = [] if scheme is None else sorted({tag.partition("-")[2] for tag in scheme.tags} - {""})
    spans = [
        [TaggedSpan(i, j, label) for label in labels for i, j in itertools.combinations(range(int(keep.sum()) + 1), 2)]
        for keep in mask
    ]
    span_shares = [] if scheme is None else crf.span_marginals(emissions, spans, mask)
    for row, keep in enumerate(mask):
        if not keep.any():
            assert (best[row], several[row], float(loss[row])) == ([], [regard.layers.TagPath([], 1.0)], 0.0)
            continue
        every = AllPaths(crf, emissions[row][keep])
        order = every.scores.argsort(descending=True)[:5].tolist()
        order = [place for place in order if every.scores[place] > -torch.inf]
        assert best[row] == every.paths[order[0]]
        assert [path.tags for path in several[row]] == [every.paths[place] for place in order]
        shares = torch.tensor([path.probability for path in several[row]], dtype=torch.float64)
        torch.testing.assert_close(shares, every.shares[order].detach(), rtol=0, atol=1e-9)
        torch.testing.assert_close(loss[row], -every.shares[order[-1]].log(), rtol=0, atol=1e-9)
        torch.testing.assert_close(marginals[row][keep], every.marginals(k), rtol=0, atol=1e-9)
        if scheme is not None:
            found = [set(scheme.spans([scheme.tags[tag] for tag in path])) for path in every.paths]
            shares = every.shares.tolist()
            want = [sum(s for s, own in zip(shares, found, strict=True) if span in own) for span in spans[row]]
            assert span_shares[row] == pytest.approx(want, abs=1e-9)
            none = scheme.tags.index("O") if "O" in scheme.tags else -1
            share = sum(s for s, path in zip(shares, every.paths, strict=True) if path[-2:] == [none] * len(path[-2:]))
            if none >= 0:
                n = int(keep.sum())
                own = crf.span_marginals(emissions[row : row + 1], [[(max(n - 2, 0), n, "O")]], mask[row : row + 1])
                assert own[0][0] == pytest.approx(share, abs=1e-9)


def test_a_scheme_is_read_without_constraints() -> None:
    scheme = regard.layers.TagScheme("IOB2", SCHEMES["IOB2"])
    crf = regard.CRF(4).double()
    emissions = torch.randn(1, 4, 4, dtype=torch.float64)
    every = AllPaths(crf, emissions[0])
    span = TaggedSpan(1, 3, "X")
    want = sum(
        float(share)
        for path, share in zip(every.paths, every.shares, strict=True)
        if span in scheme.spans([scheme.tags[tag] for tag in path])
    )
    assert crf.span_marginals(emissions, [[span]], scheme=scheme)[0][0] == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    crf = regard.CRF(3).to(dtype)
    emissions, tags = torch.randn(2, 5, 3).to(dtype).requires_grad_(), torch.randint(3, (2, 5))
    loss = crf.loss(emissions, tags)
    assert loss.dtype == torch.float32
    full = regard.CRF(3)
    full.load_state_dict({name: value.float() for name, value in crf.state_dict().items()})
    torch.testing.assert_close(loss, full.loss(emissions.float(), tags))
    loss.sum().backward()
    assert emissions.grad.dtype == dtype
    assert crf.marginals(emissions).dtype == torch.float32


def test_autocast_changes_nothing() -> None:
    crf = regard.CRF(3)
    emissions, tags = torch.randn(2, 5, 3), torch.randint(3, (2, 5))
    want = crf.loss(emissions, tags)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(crf.loss(emissions, tags), want)


def test_every_parameter_receives_a_gradient_but_not_where_forbidden() -> None:
    crf = regard.CRF(3, regard.layers.TagScheme("IOB2", SCHEMES["IOB1"]))
    crf.loss(torch.randn(4, 6, 3), torch.zeros(4, 6, dtype=torch.int64)).sum().backward()
    for name, parameter in crf.named_parameters():
        allowed = getattr(crf, f"allowed_{name}")
        assert (parameter.grad[~allowed] == 0).all()
        assert (parameter.grad[allowed] != 0).all()


def test_marginals_are_differentiable() -> None:
    crf = regard.CRF(3).double()
    emissions = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(crf.marginals, [emissions])
    with torch.no_grad():
        assert not crf.marginals(emissions).requires_grad


def test_a_window_may_begin_inside_a_span() -> None:
    scheme = regard.layers.TagScheme("BIOES", ["O", "B-X", "I-X", "E-X", "S-X"])
    emissions = torch.tensor([[[0.0, 0, 9, 0, 0], [0, 0, 9, 0, 0]]])
    assert regard.CRF(5, regard.layers.Constraints.from_scheme(scheme, window=True)).decode(emissions) == [[2, 2]]
    assert regard.CRF(5, scheme).decode(emissions) != [[2, 2]]


def test_a_checkpoint_holds_the_parameters_only() -> None:
    assert sorted(regard.CRF(3, regard.layers.TagScheme("IOB2", SCHEMES["IOB1"])).state_dict()) == [
        "end",
        "start",
        "transitions",
    ]


def test_bad_input_is_explained() -> None:
    crf = regard.CRF(3, regard.layers.TagScheme("IOB2", SCHEMES["IOB1"]))
    emissions, tags = torch.randn(2, 4, 3), torch.zeros(2, 4, dtype=torch.int64)
    tags[1, 2] = 2
    with pytest.raises(ValueError, match=r"tags\[1, 2\] is 2, which the constraints forbid after tag 0"):
        crf.loss(emissions, tags)
    with pytest.raises(ValueError, match=r"tags\[1, 2\] is 2, which the constraints forbid at the start"):
        crf.loss(emissions, tags, torch.tensor([[True] * 4, [False, False, True, True]]))
    with pytest.raises(ValueError, match=r"tags must be from 0 to 2: tags\[0, 1\] is 7; mask the position"):
        crf.loss(emissions, torch.tensor([[0, 7, 0, 0]] * 2))
    with pytest.raises(ValueError, match="tags must be whole numbers of shape"):
        crf.loss(emissions, tags[:1])
    with pytest.raises(
        ValueError, match=r"constraints must be for 4 tags, transitions a boolean tensor of shape \(4, 4\)"
    ):
        regard.CRF(4, regard.layers.TagScheme("IOB2", SCHEMES["IOB1"]))
    never = torch.zeros(2, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match="no path of tags is allowed for sequence 0"):
        regard.CRF(2, regard.layers.Constraints(never, ~never[0], ~never[0])).decode(torch.randn(1, 3, 2))
    with pytest.raises(ValueError, match="scheme must be a TagScheme of 3 tags, got none; pass scheme="):
        regard.CRF(3).span_marginals(emissions, [[], []])
    with pytest.raises(ValueError, match=r"the span \(1, 9, 'X'\) lies outside sequence 1, which has 4 positions"):
        crf.span_marginals(emissions, [[], [(1, 9, "X")]])
    with pytest.raises(ValueError, match="no tag of the scheme has the label 'Q'; its labels: O, X"):
        crf.span_marginals(emissions, [[], [(1, 2, "Q")]])
    with pytest.raises(ValueError, match="spans must be one list per sequence: got 1 for 2 sequences"):
        crf.span_marginals(emissions, [[]])


@pytest.mark.parametrize("method", ["loss", "decode", "marginals", "span_marginals"])
@pytest.mark.parametrize(
    ("emissions", "mask", "error"),
    [
        ((2, 4, 5), None, "emissions must be (b, t, k) with k = 3 tags, got (2, 4, 5); project them to 3 scores"),
        (
            (4, 3),
            None,
            "emissions must be (b, t, k) with k = 3 tags, got (4, 3); project them to 3 scores per position",
        ),
        (
            (2, 4, 3),
            torch.ones(2, 4),
            "mask must be boolean of shape (b, t) = (2, 4), True where a position counts; got torch.float32 of shape "
            "(2, 4); try mask.bool()",
        ),
        (
            (2, 4, 3),
            torch.ones(2, 5, dtype=torch.bool),
            "mask must be boolean of shape (b, t) = (2, 4), True where a position counts; got torch.bool of shape "
            "(2, 5)",
        ),
    ],
    ids=["tags", "one sequence", "numbers", "length"],
)
def test_bad_shapes_are_explained(method: str, emissions: tuple[int, ...], mask: Tensor | None, error: str) -> None:
    crf = regard.CRF(3, regard.layers.TagScheme("IOB2", SCHEMES["IOB1"]))
    beside = {"loss": [torch.zeros(2, 4, dtype=torch.int64)], "span_marginals": [[[], []]]}.get(method, [])
    with pytest.raises(ValueError, match=re.escape(error)):
        getattr(crf, method)(torch.randn(emissions), *beside, mask)


def test_compiled_whole() -> None:
    crf = regard.CRF(3, regard.layers.TagScheme("IOB2", SCHEMES["IOB1"]))
    emissions, tags = torch.randn(2, 4, 3, requires_grad=True), torch.zeros(2, 4, dtype=torch.int64)
    torch.compiler.reset()
    compiled = torch.compile(crf.loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(emissions, tags), crf.loss(emissions, tags))


@pytest.mark.parametrize("size", [1.0, 30.0, 3000.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("share", [0.9, 0.4, 0.0])
def test_holes_in_scores_and_masks_against_all_paths(share: float, dtype: torch.dtype, size: float) -> None:
    """Emissions of minus infinity, constraints that forbid most or all, NaN below the mask, scores of any size."""
    torch.manual_seed(int(size))
    for k, t in [(1, 1), (2, 3), (3, 2), (3, 4)]:
        constraints = Constraints(torch.rand(k, k) < share, torch.rand(k) < share, torch.rand(k) < share)
        crf = regard.CRF(k, constraints)
        crf = crf.double() if dtype == torch.float64 else crf
        mask = every_mask(t)
        emissions = (size * torch.randn(len(mask), t, k)).to(dtype)
        emissions[torch.rand(emissions.shape) < 0.1] = -torch.inf
        emissions[~mask] = torch.nan
        marginals = crf.marginals(emissions.transpose(0, 1).contiguous().transpose(0, 1), mask).double()
        for row, keep in enumerate(mask):
            some, few = emissions[row : row + 1], emissions[row, keep].double()
            if not len(few):
                assert crf.decode(some, keep.unsqueeze(0), k=3) == [[([], 1.0)]]
                continue
            paths = AllPaths(copy.deepcopy(crf).double(), few)
            want = paths.marginals(k) if paths.scores.max() > -torch.inf else torch.zeros(len(few), k)
            torch.testing.assert_close(marginals[row, keep], want.double(), rtol=0.0, atol=2e-3)
            assert (marginals[row, ~keep] == 0).all()
            possible = int((paths.scores > -torch.inf).sum())
            if not possible:
                with pytest.raises(ValueError, match="no path of tags is allowed for sequence 0"):
                    crf.decode(some, keep.unsqueeze(0), k=7)
                continue
            (found,) = crf.decode(some, keep.unsqueeze(0), k=7)
            assert len({tuple(path.tags) for path in found}) == len(found) == min(7, possible)
            ranked = paths.shares.sort(descending=True).values[: len(found)]
            torch.testing.assert_close(
                torch.tensor([path.probability for path in found], dtype=torch.float64), ranked, rtol=0.0, atol=1e-6
            )


def test_improbable_paths_are_paths() -> None:
    """A probability below the smallest number is 0, and its path is one of the best all the same."""
    crf = regard.CRF(2)
    (paths,) = crf.decode(torch.tensor([[[0.0, 5000.0], [0.0, 5000.0]]]), k=9)
    assert [path.tags for path in paths[:1]] == [[1, 1]]
    assert [path.probability for path in paths] == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_tags_of_any_integers(dtype: torch.dtype) -> None:
    crf, emissions = regard.CRF(3, regard.layers.TagScheme("IOB2", ["O", "B-X", "I-X"])), torch.randn(2, 4, 3)
    tags = torch.tensor(crf.decode(emissions))
    assert torch.equal(crf.loss(emissions, tags.to(dtype)), crf.loss(emissions, tags))


def test_inference_mode() -> None:
    crf, emissions = regard.CRF(3, regard.layers.TagScheme("IOB2", ["O", "B-X", "I-X"])), torch.randn(2, 4, 3)
    with torch.inference_mode():
        mask = torch.tensor([[True, True, False, True], [False, True, True, False]])
        got = crf.marginals(emissions * 1.0, mask)
    torch.testing.assert_close(got, crf.marginals(emissions, mask.clone()).detach())


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 0, 3), (0, 0, 3)])
def test_nothing(shape: tuple[int, int, int], grad: bool) -> None:
    crf, emissions = regard.CRF(3), torch.randn(shape)
    with torch.set_grad_enabled(grad):
        assert crf.marginals(emissions).shape == shape
        assert crf.decode(emissions) == [[]] * shape[0]
        assert crf.decode(emissions, k=2) == [[([], 1.0)]] * shape[0]
        assert crf.loss(emissions, torch.zeros(shape[:2], dtype=torch.int64)).tolist() == [0.0] * shape[0]


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_emissions_without_a_best_path_are_refused(number: float) -> None:
    scheme = regard.layers.TagScheme("IOB2", ["O", "B-X", "I-X"])
    crf, emissions = regard.CRF(3, scheme), torch.randn(2, 4, 3)
    emissions[1, 2, 0] = number
    sentence = re.escape("emissions[1, 2] has NaN or infinity; look for NaN in the model's parameters, or mask the")
    with pytest.raises(ValueError, match=sentence):
        crf.decode(emissions)
    with pytest.raises(ValueError, match=sentence):
        crf.decode(emissions, k=2)
    with pytest.raises(ValueError, match=sentence):
        crf.span_marginals(emissions, [[], [(0, 1, "X")]])
    mask = torch.ones(2, 4, dtype=torch.bool)
    mask[1, 2] = False
    assert len(crf.decode(emissions, mask)[1]) == 3


def test_spans_of_a_sequence_without_a_path() -> None:
    scheme = regard.layers.TagScheme("IOB2", ["O", "B-X", "I-X"])
    emissions = torch.randn(2, 3, 3)
    emissions[0, 1] = -torch.inf
    first, second = regard.CRF(3, scheme).span_marginals(emissions, [[(0, 1, "X"), (0, 3, "O")], [(0, 1, "X")]])
    assert first == [0.0, 0.0]
    assert 0 < second[0] < 1
