"""What every translator keeps: steps are the whole, hypotheses are decodings of their own, padding is not there."""

import copy

import pytest
import torch
from tests.for_each import for_each
from tests.models.cases import (
    ALL,
    CONV,
    LENGTHS,
    NTMS,
    POINTERS,
    SEQ2SEQ,
    SOURCE,
    TARGET,
    TRANSFORMERS,
    UNIVERSAL,
    B,
    S,
    T,
    built,
    given,
)
from torch import Tensor

from regard.attn.call import Need
from regard.models import TRANSLATORS
from regard.models.encoder_decoder import EncoderDecoder

pytestmark = pytest.mark.usefixtures("float64")

every = for_each("name", ALL, share=0.5)
# a pointer network has one vocabulary, and no matrix of its words
WORDED = [name for name in TRANSLATORS if name != "pointer"]
blind = {"fixed", "initial", "per-position", "rnn, initial", *NTMS}


def taught(model: EncoderDecoder, *args: Tensor, weights: bool) -> tuple[Tensor, Tensor | None]:
    got = model.teacher_force(*args, Need(weights=weights))
    return model.logits(got.states), got.weights


@every
@torch.no_grad()
def test_one_step_at_a_time_is_all_at_once(name: str) -> None:
    model, (source, lengths, target) = built(ALL[name]).eval(), given()
    see = name not in blind
    logits, weights = taught(model, source, lengths, target, weights=see)
    assert logits.shape == (B, T, TARGET)
    torch.testing.assert_close(model(source, lengths, target), logits)
    state = model.init_state(source, lengths)
    for t in range(T):
        got = model.step(target[:, t : t + 1], state, weights=see)
        state = got.state
        torch.testing.assert_close(got.logits, logits[:, t : t + 1])
        if see:
            assert weights.shape == (B, T, S)
            torch.testing.assert_close(got.weights, weights[:, t : t + 1])
            assert not got.weights.masked_select((torch.arange(S) >= lengths[:, None])[:, None]).any()
        else:
            assert got.weights is None


@every
@torch.no_grad()
def test_padding_changes_nothing_and_a_batch_is_one_by_one(name: str) -> None:
    model, (source, lengths, target) = built(ALL[name]).eval(), given()
    whole = model(source, lengths, target)
    for n, length in enumerate(LENGTHS.tolist()):
        one = slice(n, n + 1)
        torch.testing.assert_close(model(source[one, :length], lengths[one], target[one]), whole[one])
    # what stands in the padding is not seen, nor what comes after a step
    noise = source.masked_fill(torch.arange(S) >= lengths[:, None], 5)
    torch.testing.assert_close(model(noise, lengths, target), whole)
    later = target.clone()
    later[:, 3:] = 4
    torch.testing.assert_close(model(source, lengths, later)[:, :3], whole[:, :3])


# which slots the next hypotheses of a sentence continue, and which sentences stay; none: all
MOVES: list[tuple[list[int], list[int]]]
MOVES = [([0], []), ([0, 0, 0], []), ([2, 0], [2, 0]), ([1], []), ([0, 0, 0], [1]), ([3, 1, 0], [])]


@every
@torch.no_grad()
def test_hypotheses_are_decodings_of_their_own(name: str) -> None:
    """Many become one, one becomes many, sentences leave: every hypothesis is what teaching it alone gives."""
    model, (source, lengths, _) = built(ALL[name]).eval(), given()
    chance, see = torch.Generator().manual_seed(3), name not in blind
    state, rows, said = model.init_state(source, lengths), torch.arange(B), torch.zeros(B, 1, 0, dtype=torch.long)
    for slots, kept in MOVES:
        # another choice for each sentence
        index = (torch.tensor(slots) + torch.arange(len(rows)).unsqueeze(-1)) % said.shape[1]
        state, said = state.reorder(index), said[torch.arange(len(rows)).unsqueeze(-1), index]
        stay = torch.tensor(list(dict.fromkeys(n % len(rows) for n in kept)))
        if len(stay):
            state, said, rows = state.select_sentences(stay), said[stay], rows[stay]
        tokens = torch.randint(3, TARGET, said.shape[:2], generator=chance)
        got = model.step(tokens, state, weights=see)
        state, said = got.state, torch.cat([said, tokens.unsqueeze(-1)], dim=-1)
        n = said.shape[1]
        each = rows.repeat_interleave(n)
        logits, weights = taught(model, source[each], lengths[each], said.flatten(0, 1), weights=see)
        torch.testing.assert_close(got.logits, logits[:, -1].unflatten(0, (-1, n)))
        if weights is not None:
            torch.testing.assert_close(got.weights, weights[:, -1].unflatten(0, (-1, n)))


@pytest.mark.parametrize(
    "name", ["bahdanau", "luong-feeding", "pre, sinusoidal", "pre, rotary", "conv", "ntm", "pointer", "universal"]
)
@pytest.mark.parametrize("graph", [True, False], ids=["gradients", "no gradients"])
def test_a_step_leaves_its_state_as_it_was(name: str, graph: bool) -> None:
    """A state is a value: two ways may go on from it."""
    model, (source, lengths, target) = built(ALL[name]).eval(), given()
    with torch.set_grad_enabled(graph):
        state = model.step(target[:, :1], model.init_state(source, lengths)).state
        one = model.step(target[:, 1:2], state)
        other = model.step(target[:, 2:3], state)
        again = model.step(target[:, 1:2], state)
        assert torch.equal(one.logits, again.logits)
        # and each goes on from where it went
        for made, token in ((one, target[:, 1:2]), (other, target[:, 2:3])):
            said = torch.cat([target[:, :1], token, target[:, 3:4]], dim=1)
            torch.testing.assert_close(
                model.step(target[:, 3:4], made.state).logits, model(source, lengths, said)[:, -1:]
            )


def silent(name: str, key: str) -> bool:
    """A softmax does not feel what is added to a whole row; the greatest weight and uniform weights have no slope."""
    if name in ("hard-argmax heads", "uniform heads"):
        return "around_cross" in key or ("attention" in key and (".key." in key or ".query." in key))
    if name == "trilinear heads":
        return key.endswith(("score.query", "key.bias"))
    return key.endswith("key.bias") and (name in TRANSFORMERS or name in UNIVERSAL or name in ("heads", "conv, heads"))


@every
def test_every_parameter_receives_a_gradient(name: str) -> None:
    model, (source, lengths, target) = built(ALL[name]), given()
    model(source, lengths, target).square().mul(torch.rand(T, TARGET)).sum().backward()
    for key, p in model.named_parameters():
        if not silent(name, key):
            assert p.grad is not None, key
            assert p.grad.abs().max() > 1e-12, key


@every
def test_state_dict_and_deepcopy_round_trip(name: str) -> None:
    model, args = built(ALL[name]).eval(), given()
    want = model(*args)
    assert torch.equal(copy.deepcopy(model)(*args), want)
    fresh = ALL[name]().eval()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(*args), want)
    torch.testing.assert_close(model.float()(*args), want.float(), rtol=1e-3, atol=1e-4)


@for_each(
    "name", [*SEQ2SEQ, *CONV, *NTMS, *POINTERS, *UNIVERSAL, *(name for name in TRANSFORMERS if "heads" not in name)]
)
def test_training_drops_and_evaluation_does_not(name: str) -> None:
    make = ALL[name]
    torch.manual_seed(1)
    model, args = type(make())(*make.args, **{**make.keywords, "dropout": 0.5}), given()
    assert not torch.equal(model(*args), model(*args))
    model.eval()
    assert torch.equal(model(*args), model(*args))


@for_each(
    "name",
    [
        *SEQ2SEQ,
        *CONV,
        *NTMS,
        *POINTERS,
        *UNIVERSAL,
        "pre, sinusoidal",
        "post, learned",
        "pre, rotary",
        "a list",
        "entmax heads",
    ],
)
def test_narrow_numbers(name: str) -> None:
    """Under autocast, as `precision="bfloat16"` trains."""
    torch.set_default_dtype(torch.float32)
    model, args = built(ALL[name]), given()
    want = model(*args)
    with torch.autocast("cpu", torch.bfloat16):
        got = model(*args)
    torch.testing.assert_close(got.float(), want, rtol=0.1, atol=0.2)
    got.float().square().sum().backward()
    for key, p in model.named_parameters():
        assert p.grad is not None, key
        assert p.grad.dtype == torch.float32
        assert p.grad.isfinite().all()


@pytest.mark.parametrize("tied", ["none", "target", "all"])
@pytest.mark.parametrize("name", WORDED)
def test_tied_matrices_are_one(name: str, tied: str) -> None:
    make = TRANSLATORS[name]
    size = SOURCE if tied == "all" else TARGET
    model = make(SOURCE, size, width=4, tied=tied)
    assert (model.output.weight is model.target.weight) == (tied != "none")
    assert (model.source is model.target) == (tied == "all")
    matrices = {"none": 3, "target": 2, "all": 1}[tied]
    assert sum(p.shape in ((SOURCE, 4), (size, 4)) for p in model.parameters()) == matrices
    # padding is nothing, and stays nothing in the source
    assert not model.source.weight[0].any()
    assert not model.target.weight[0].any()
    torch.testing.assert_close(model.target.weight[1:].std(), torch.tensor(0.5), rtol=0.3, atol=0)
    assert not model.output.bias.any()


@pytest.mark.parametrize("name", WORDED)
def test_what_is_wrong_is_told(name: str) -> None:
    make = TRANSLATORS[name]
    with pytest.raises(ValueError, match="unknown tied 'al'; did you mean 'all'"):
        make(SOURCE, TARGET, tied="al")
    with pytest.raises(
        ValueError, match="tied='all' shares one vocabulary, got 17 words .* and 19 .*or use tied='target'"
    ):
        make(SOURCE, TARGET, tied="all")
    if name != "ntm":
        with pytest.raises(ValueError, match="unknown attention 'adaptive'; did you mean"):
            make(SOURCE, TARGET, attention="adaptive")
    with pytest.raises(ValueError, match="dropout must be 0 or more and below 1, got 1.5"):
        make(SOURCE, TARGET, dropout=1.5)
    for size in ("source_size", "target_size"):
        with pytest.raises(ValueError, match=f"{size} must be a whole number, 1 or more, for {make.__name__}, got 0"):
            make(**{"source_size": 3, "target_size": 3, size: 0})
