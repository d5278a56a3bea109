"""What every language model keeps: steps and segments are the whole, hypotheses and prompts are texts of their own."""

import copy
import itertools

import pytest
import torch
from tests.for_each import for_each
from tests.models.language_model_cases import ALL, RECURRENT, WITH_MEMORY, B, T, V, built, gpt2, llama, texts, xl
from torch import Tensor

import regard
from regard.attn.call import Need
from regard.decoding.greedy import greedy
from regard.decoding.prompts import prompt_batch
from regard.models import Gemma3, GPTNeoX

pytestmark = pytest.mark.usefixtures("float64")

every = for_each("name", ALL, share=0.5)
with_memory = for_each("name", WITH_MEMORY)
some = pytest.mark.parametrize(
    "name", ["gpt2, learned", "gpt2, memory, rotary", "llama, grouped", "xl, clamp, same length", "xl, adaptive"]
)

PROMPTS = [[3, 5, 1], [6], [1, 3, 3, 0, 4, 2, 7]]
EOS = 8


@every
@torch.no_grad()
def test_one_step_at_a_time_is_all_at_once(name: str) -> None:
    model, tokens = built(ALL[name]).eval(), texts()
    logits = model(tokens)
    assert logits.shape == (B, T, V)
    for read in (0, 3):
        state = model.init_state(tokens[:, :read])
        for t in range(read, T):
            step = model.step(tokens[:, t : t + 1], state)
            state = step.state
            torch.testing.assert_close(step.logits[:, 0], logits[:, t])


@every
@torch.no_grad()
def test_nothing_sees_what_follows_and_a_batch_is_one_by_one(name: str) -> None:
    model, tokens = built(ALL[name]).eval(), texts()
    logits, later = model(tokens), tokens.clone()
    later[:, 4:] = 5
    torch.testing.assert_close(model(later)[:, :4], logits[:, :4])
    for n in range(B):
        torch.testing.assert_close(model(tokens[n : n + 1]), logits[n : n + 1])


@every
@torch.no_grad()
def test_hypotheses_of_ragged_prompts_are_texts_of_their_own(name: str) -> None:
    """Prompts differ in length, one hypothesis becomes many, many one, sentences leave."""
    model = built(ALL[name]).eval()
    prompts = prompt_batch(PROMPTS)
    state = model.init_state(prompts.tokens, prompts.lengths)
    said = [[prompt] for prompt in PROMPTS]  # of each row, the text of every hypothesis
    tokens, chance = prompts.last.unsqueeze(1), torch.Generator().manual_seed(3)
    for slots, stay in (([0], [0, 1, 2]), ([0, 0, 0], [0, 1, 2]), ([2, 0], [2, 0]), ([1], [0, 1]), ([0, 0], [1])):
        step = model.step(tokens, state)
        for row, hypotheses in enumerate(said):
            for slot, text in enumerate(hypotheses):
                torch.testing.assert_close(step.logits[row, slot], model(torch.tensor([text]))[0, -1])
        index = torch.tensor([slots] * len(said))
        state = step.state.reorder(index).select_sentences(torch.tensor(stay))
        said = [[list(said[row][slot]) for slot in slots] for row in stay]
        tokens = torch.randint(0, V, (len(stay), len(slots)), generator=chance)
        said = [[[*text, int(tokens[r, s])] for s, text in enumerate(texts)] for r, texts in enumerate(said)]


@with_memory
@torch.no_grad()
def test_segments_with_a_memory_are_the_whole(name: str) -> None:
    """As long as the memory holds all tokens before."""
    model, tokens = built(ALL[name]).eval(), texts()
    whole = model.hidden_states(tokens, need=Need(weights=True))
    assert [part.shape for part in whole.weights] == [(B, 3, T, T)] * 2
    memory, states = None, []
    for segment in tokens.split([2, 1, 4], dim=1):
        output = model.hidden_states(segment, memory)
        memory = output.memory
        states.append(output.states)
    torch.testing.assert_close(torch.cat(states, 1), whole.states)
    assert [segment.states.shape for segment in memory] == [(B, T, 12)] * 2


@with_memory
@torch.no_grad()
def test_a_step_is_a_segment_of_one_token(name: str) -> None:
    """Also when the text has outgrown the memory, and the cache with its keys is cut."""
    model = built(ALL[name]).eval()
    tokens = torch.randint(0, V, (2, 41), generator=torch.Generator().manual_seed(3))
    memory, state, cached = None, model.init_state(tokens[:, :5]), []
    for t in range(41):
        output = model.hidden_states(tokens[:, t : t + 1], memory)
        memory = output.memory
        assert all(len(segment.states[0]) <= model.stack.memory for segment in memory)
        if t >= 5:
            step = model.step(tokens[:, t : t + 1], state)
            state = step.state
            cached.append(len(state.pasts[0]))
            # angles of a rotation are in float32
            torch.testing.assert_close(step.logits, model.logits(output.states), rtol=1e-5, atol=1e-5)
    assert max(cached) < 2 * model.stack.memory + 2


@pytest.mark.parametrize("lengths", [[1] * 23, [5, 2, 16], [23], [13, 10]], ids=str)
@torch.no_grad()
def test_with_same_length_segments_may_begin_anywhere(lengths: list[int]) -> None:
    model = built(xl(memory=6, same_length=True, clamp=4)).eval()
    tokens = torch.randint(0, V, (2, 23), generator=torch.Generator().manual_seed(3))
    want = []
    for t in range(23):
        # what a token sees reaches back by a window a layer
        want.append(model.hidden_states(tokens[:, max(t - 11, 0) : t + 1]).states[:, -1:])
    memory, states = None, []
    for segment in tokens.split(lengths, dim=1):
        output = model.hidden_states(segment, memory, Need(weights=True))
        memory = output.memory
        states.append(output.states)
        assert all(int((weights > 0).sum(-1).max()) <= 6 for weights in output.weights)
    torch.testing.assert_close(torch.cat(states, 1), torch.cat(want, 1))


@with_memory
def test_memory_has_no_gradient_and_is_a_value(name: str) -> None:
    model, tokens = built(ALL[name]), texts()
    memory = model.hidden_states(tokens).memory
    assert not any(segment.states.requires_grad for segment in memory)
    before = [segment.states.clone() for segment in memory]
    first = model.hidden_states(tokens, memory).states
    assert torch.equal(first, model.hidden_states(tokens, memory).states)
    assert all(torch.equal(segment.states, old) for segment, old in zip(memory, before, strict=True))
    longer = model.init_memory(keep=100)
    for _ in range(3):
        longer = model.hidden_states(tokens, longer).memory
    assert len(longer[0].states[0]) == 3 * T


@some
def test_the_loss_is_that_of_the_logits(name: str) -> None:
    model, tokens = built(ALL[name]).eval(), texts()
    states, targets = model.hidden_states(tokens[:, :-1]).states.flatten(0, 1), tokens[:, 1:].flatten()
    want = torch.nn.functional.cross_entropy(model.logits(states), targets, reduction="none")
    total, nll = model.token_loss(states, targets)
    torch.testing.assert_close(nll, want.detach())
    parameters = [p for p in model.parameters() if p.requires_grad]
    ours = torch.autograd.grad(total, parameters, allow_unused=True, retain_graph=True)
    theirs = torch.autograd.grad(want.sum(), parameters, allow_unused=True)
    for one, other in zip(ours, theirs, strict=True):
        if one is not None and other is not None:
            torch.testing.assert_close(one, other)


def silent(name: str, key: str) -> bool:
    """A softmax does not feel what is added to a whole row; the greatest weight and uniform weights have no slope."""
    if name in ("gpt2, hard-argmax heads", "gpt2, uniform heads"):
        return "attention.query" in key or "attention.key" in key or "score" in key
    if name == "gpt2, trilinear heads":
        return key.endswith(("score.query", "key.bias"))
    # the last bias of FIRE adds one number to all scores of a head
    return key.endswith(("key.bias", "bias.outer.bias"))


@every
def test_every_parameter_receives_a_gradient(name: str) -> None:
    model, tokens = built(ALL[name]), texts()
    model(tokens).square().mul(torch.rand(T, V)).sum().backward()
    for key, p in model.named_parameters():
        if not silent(name, key) and key != "place.table.weight":
            assert p.grad is not None, key
            assert p.grad.abs().max() > 1e-12, key


@for_each("name", [name for name in ALL if "heads" not in name])
def test_state_dict_deepcopy_and_dtype_round_trip(name: str) -> None:
    model, tokens = built(ALL[name]).eval(), texts()
    want = model(tokens)
    assert torch.equal(copy.deepcopy(model)(tokens), want)
    fresh = ALL[name]().eval()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(tokens), want)
    torch.testing.assert_close(model.float()(tokens), want.float(), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("make", [gpt2(dropout=0.5), xl(dropout=0.5)], ids=["gpt2", "xl"])
def test_training_drops_and_evaluation_does_not(make: object) -> None:
    model, tokens = built(make), texts()
    assert not torch.equal(model(tokens), model(tokens))
    model.eval()
    assert torch.equal(model(tokens), model(tokens))


@some
def test_narrow_numbers(name: str) -> None:
    torch.set_default_dtype(torch.float32)
    model, tokens = ALL[name](), texts()
    want = model(tokens)
    with torch.autocast("cpu", torch.bfloat16):
        got = model(tokens)
    torch.testing.assert_close(got.float(), want, rtol=0.1, atol=0.2)
    got.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize("name", ["gpt2, learned", "xl"])
def test_gradients_are_those_of_the_output(name: str) -> None:
    model, tokens = built(ALL[name]).eval(), texts()[:1, :3]
    x = model.embed(tokens, torch.arange(3)).detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: model.stack(x).states, (x,))


DOCUMENTS = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2], [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1]])


@every
@torch.no_grad()
def test_a_document_does_not_depend_on_the_one_before(name: str) -> None:
    """Rows of eleven tokens in one, two and four segments, in which documents begin at different places."""
    model = built(ALL[name]).eval()
    has_memory = name in WITH_MEMORY or name in RECURRENT
    tokens = torch.randint(0, V, DOCUMENTS.shape, generator=torch.Generator().manual_seed(5))
    others = torch.where(DOCUMENTS == 1, tokens, (tokens + 3) % V)

    def run(tokens: Tensor, cuts: list[int]) -> Tensor:
        numbers, memory, states = torch.cat([torch.full((2, 40), -1), DOCUMENTS], 1), None, []
        for start, end in itertools.pairwise([0, *cuts, 11]):
            output = model.hidden_states(tokens[:, start:end], memory, documents=numbers[:, : 40 + end])
            memory = output.memory if has_memory else None
            states.append(output.states)
        return torch.cat(states, 1)

    is_kept = DOCUMENTS == 1
    for cuts in ([], [5], [2, 3, 8]):
        got, other = run(tokens, cuts), run(others, cuts)
        torch.testing.assert_close(got[is_kept], other[is_kept])
        assert not torch.allclose(got[~is_kept], other[~is_kept])
    # as a text of its own
    alone = model.hidden_states(tokens[:1, 3:8]).states
    torch.testing.assert_close(run(tokens, [])[:1, 3:8], alone, rtol=1e-5, atol=1e-6)


def test_a_prompt_may_not_outgrow_learned_positions() -> None:
    model = gpt2(longest=5)().eval()
    told = (
        "the text has 7 tokens, but GPT2 has 5 learned positions; shorten it to 5 tokens, "
        "or build the model with longest=7 or other positions"
    )
    for run in (model, model.init_state):
        with pytest.raises(ValueError, match=told):
            run(texts())
    with pytest.raises(ValueError, match="the text has 6 tokens, but GPT2 has 5 learned positions"):
        greedy(model, model.init_state(texts()[:, :2]), bos=1, eos=V - 1, limits=torch.full((B,), 9), forbidden=[])
    assert gpt2(longest=5, positions="rotary")()(texts()).shape == (B, T, V)


def test_what_is_wrong_is_told() -> None:
    told = {
        "unknown positions 'rotari'; did you mean 'rotary'": gpt2(positions="rotari"),
        "positions='learned' cannot be used with memory=4: .*; try positions='transformer-xl'": gpt2(
            positions="learned", memory=4
        ),
        "width must split evenly over heads, got width=13 and heads=3; try width=12, or another number of heads": gpt2(
            width=13
        ),
        "same_length=True counts the keys of a memory, got memory=0; give memory=128": gpt2(same_length=True),
        "memory must be 0 or more tokens, got -3; try 3": xl(memory=-3),
        "cannot be used with RelativeXL.*which serves all heads of one attention": gpt2(
            attention=["dot"] * 3, positions="transformer-xl"
        ),
        "unknown norm 'before'": xl(norm="before"),
        r"cutoffs must increase from 1 to below the vocabulary of 19 words for TransformerXL, got \[9, 4\]; "
        r"try cutoffs=\[1\]": xl(cutoffs=[9, 4]),
        "window must be a whole number, 1 or more, for Llama, got 0": llama(window=0),
        r"windows must have one entry per layer, 4, got 1; give as many": lambda: Gemma3(V, layers=4, windows=[3]),
        "unknown residual 'post'": lambda: GPTNeoX(V, residual="post"),
        "attention='monotonic' cannot be used in the heads of a Transformer": gpt2(attention="monotonic"),
    }
    for message, make in told.items():
        with pytest.raises(ValueError, match=message):
            make()
    model = xl()()
    with pytest.raises(ValueError, match="memory must hold one Segment per layer, 2, got 1; pass the memory of"):
        model.hidden_states(texts(), model.init_memory()[:1])
    with pytest.raises(ValueError, match="positions are for texts without a memory; build the model with memory=0"):
        model.stack(torch.zeros(B, T, 12), positions=torch.arange(T))
    with pytest.raises(ValueError, match="^a prefix is for texts without a memory; build the model with memory=0$"):
        model.stack(torch.zeros(B, T, 12), prefix=torch.full((B,), 2))
    memory = model.hidden_states(texts()).memory
    with pytest.raises(ValueError, match="documents must name those of 7 tokens and of 7 in the memory, got 7 numbers"):
        model.hidden_states(texts(), memory, documents=torch.zeros(B, T, dtype=torch.long))
    with pytest.raises(ValueError, match="documents must also name that of the token before the 7 tokens, got 7 num"):
        built(ALL[next(iter(RECURRENT))]).hidden_states(texts(), documents=torch.zeros(B, T, dtype=torch.long))
    with pytest.raises(ValueError, match="smoothing must be 0 for an adaptive softmax, got 0.1; build it without"):
        xl(cutoffs=[5])().token_loss(torch.zeros(2, 12), torch.tensor([1, 2]), smoothing=0.1)
    with pytest.raises(ValueError, match="prompt 2 has no tokens; begin it with the token that starts a text"):
        prompt_batch([[1], []])


def test_tied_tables_are_one_parameter() -> None:
    def matrices(model: torch.nn.Module) -> list[Tensor]:
        return [p for p in model.parameters() if p.ndim == 2 and V in p.shape]

    assert len(matrices(gpt2()())) == len(matrices(xl()())) == 1
    model = xl(cutoffs=[5, 11], div=2)()
    assert sum(p.numel() for p in model.embedding.parameters()) + 12 * 2 + 2 + V == sum(
        p.numel() for p in {*model.embedding.parameters(), *model.output.parameters()}
    )
    names = [key for key, _ in model.named_parameters() if key.endswith((".u", ".v"))]
    assert len(names) == 2  # one pair for all layers


@torch.no_grad()
def test_the_length_of_a_text_is_its_own() -> None:
    """Frequencies that depend on it are not those of a longer text beside it, and packed texts are refused."""
    rotate = regard.Rotary(4, scaling=regard.positions.DynamicNTKScaling(4.0, 3))
    model = built(llama(rotate=rotate)).eval()
    prompts = prompt_batch(PROMPTS)
    state = model.init_state(prompts.tokens, prompts.lengths)
    together = model.step(prompts.last.unsqueeze(1), state).logits
    for n, prompt in enumerate(PROMPTS):
        alone = model.init_state(torch.tensor([prompt[:-1]]).long())
        torch.testing.assert_close(model.step(torch.tensor([prompt[-1:]]), alone).logits, together[n : n + 1])
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * B)
    with pytest.raises(
        ValueError, match=r"frequencies of Rotary\(4.* depend on the length .*; give its scaling a length"
    ):
        model.hidden_states(texts(), documents=documents)
