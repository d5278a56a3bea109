"""What every responder keeps: steps are the whole, hypotheses are answers of their own, absent turns change nothing."""

import copy
import re
from collections.abc import Callable

import pytest
import torch
from tests.for_each import for_each
from tests.models.cases import HEADS
from torch import Tensor

from regard.attn.call import Need
from regard.layers.query_pooling import POSITIONAL
from regard.models import GPT2, HRAN, FlatResponder, Llama, TransformerXL
from regard.models.responding.responder import History, Responder

pytestmark = pytest.mark.usefixtures("float64")

# sizes that share no factor
B, M, W, T, V = 3, 4, 5, 7, 19
LENGTHS = torch.tensor([[0, 2, 0, 5], [3, 1, 4, 2], [0, 0, 0, 1]])
BOS, EOS = 1, 2


def flat(**choices: object) -> Callable[[], Responder]:
    sizes = {"width": 12, "heads": 3, "layers": 2, "feed": 10, "longest": 41, "dropout": 0.0}
    options = {name: choices.pop(name) for name in ("history", "output", "turn_window") if name in choices}
    return lambda: FlatResponder(GPT2(V, **{**sizes, **choices}), **options)  # type: ignore[arg-type]


def llama() -> Responder:
    return FlatResponder(Llama(V, width=12, heads=3, layers=1, feed=10, dropout=0.0))


def hran(**choices: object) -> Callable[[], Responder]:
    return lambda: HRAN(V, **{"width": 6, "hidden": 10, "dropout": 0.0, **choices})  # type: ignore[arg-type]


READS = [name for name in HEADS if name not in POSITIONAL and name not in ("hard", "hard-argmax")]
FLAT = {f"flat, {name}": flat(positions=name) for name in ("learned", "rotary", "transformer-xl", "none")}
FLAT |= {"flat, entmax": flat(attention="entmax"), "flat, additive": flat(attention="additive"), "llama": llama}
FLAT |= {
    "pointer": flat(positions="alibi", output="pointer-generator"),
    "pointer, window": flat(positions="rotary", output="pointer-generator", turn_window=1),
    "window": flat(positions="learned", turn_window=2),
}
BOTH = {f"both, {name}": flat(positions=name, history="bidirectional") for name in ("rotary", "alibi", "learned")}
BOTH |= {"both, pointer": flat(output="pointer-generator", history="bidirectional", turn_window=1)}
ALL = {
    **FLAT,
    **BOTH,
    "hran": hran(),
    "hran, lstm": hran(cell="lstm"),
    "hran, multi-head": hran(attention="multi-head"),
}
ALL |= {f"hran, {name}": hran(attention=name) for name in READS}
every = for_each("name", ALL, share=0.5)
some = for_each(
    "name",
    [
        "flat, learned",
        "pointer, window",
        "window",
        "both, rotary",
        "both, pointer",
        "flat, entmax",
        "llama",
        "hran",
        "hran, multi-head",
    ],
)


def built(name: str) -> Responder:
    """With weights that are not zero: what is lost must be missed."""
    torch.manual_seed(1)
    model = ALL[name]()
    for key, p in model.named_parameters():
        if key.endswith("bias") or "speakers" in key or "embedding" in key:
            torch.nn.init.normal_(p, std=0.4)
    return model.eval()


def given() -> tuple[History, Tensor]:
    torch.manual_seed(2)
    inside = torch.arange(W) < LENGTHS.unsqueeze(-1)
    tokens = torch.randint(3, V, (B, M, W)).masked_fill(~inside, 0)
    return History(tokens, LENGTHS, torch.tensor([[0, 1, 0, 1]]).expand(B, -1)), torch.randint(3, V, (B, T))


def row(history: History, n: int) -> History:
    return History(*(part[n : n + 1] for part in history))


@every
@torch.no_grad()
def test_one_step_at_a_time_is_all_at_once(name: str) -> None:
    model, (history, target) = built(name), given()
    output = model.teacher_force(history, target, Need(weights=True))
    logits = model(history, target)
    assert logits.shape == (B, T, V)
    if getattr(model, "pointer", None) is None:
        torch.testing.assert_close(model.output(output.states), logits)
    state = model.init_state(history)
    for t in range(T):
        step = model.step(target[:, t : t + 1], state)
        state = step.state
        torch.testing.assert_close(step.logits, logits[:, t : t + 1])
    # no attention to padding and to absent turns
    assert output.weights.shape == (B, T, M * W)
    assert not output.weights.masked_select(~history.is_inside.flatten(1).unsqueeze(1)).any()
    assert output.weights.sum(-1).max() > 0


@every
@torch.no_grad()
def test_a_batch_is_one_by_one_and_absent_turns_and_padding_change_nothing(name: str) -> None:
    model, (history, target) = built(name), given()
    whole = model(history, target)
    for n in range(B):
        kept = [i for i in range(M) if LENGTHS[n, i]]
        longest = int(LENGTHS[n].max())
        tokens = history.tokens[n : n + 1, kept, :longest]
        alone = History(tokens, LENGTHS[n : n + 1, kept], history.speakers[n : n + 1, kept])
        torch.testing.assert_close(model(alone, target[n : n + 1]), whole[n : n + 1])
    other = history._replace(tokens=history.tokens.masked_fill(~history.is_inside, 7))
    torch.testing.assert_close(model(other, target), whole)
    wider = History(
        torch.cat([torch.full((B, 2, W + 3), 9), torch.nn.functional.pad(history.tokens, (0, 3), value=8)], 1),
        torch.nn.functional.pad(LENGTHS, (2, 0)),
        torch.nn.functional.pad(history.speakers, (2, 0)),
    )
    torch.testing.assert_close(model(wider, target), whole)


@every
@torch.no_grad()
def test_every_part_of_the_history_counts(name: str) -> None:
    model, (history, target) = built(name), given()
    whole = model(history, target)
    changed = history.tokens.clone()
    changed[1, 0, 0] = 3 + (changed[1, 0, 0] - 2) % (V - 3)
    if not name.endswith(("relu", "relu-squared", "softpick")):  # scores below 0 have no weight
        assert not torch.allclose(model(history._replace(tokens=changed), target)[1], whole[1], atol=1e-9)
    speakers = history._replace(speakers=1 - history.speakers)
    assert not torch.allclose(model(speakers, target), whole, atol=1e-9)
    # and nothing that follows
    later = target.clone()
    later[:, 4:] = 5
    torch.testing.assert_close(model(history, later)[:, :4], whole[:, :4])


@some
@torch.no_grad()
def test_hypotheses_are_answers_of_their_own(name: str) -> None:
    """One hypothesis becomes many, many one, dialogues leave."""
    model, (history, _) = built(name), given()
    state, tokens = model.init_state(history), torch.full((B, 1), BOS)
    numbers, answers = [0, 1, 2], [[[BOS]], [[BOS]], [[BOS]]]
    chance = torch.Generator().manual_seed(3)
    for slots, stay in (([0], [0, 1, 2]), ([0, 0, 0], [0, 1, 2]), ([2, 0], [2, 0]), ([1], [0, 1]), ([0, 0], [1])):
        step = model.step(tokens, state)
        for place, number in enumerate(numbers):
            for slot, answer in enumerate(answers[place]):
                expected = model(row(history, number), torch.tensor([answer]))[0, -1]
                torch.testing.assert_close(step.logits[place, slot], expected)
        state = step.state.reorder(torch.tensor([slots] * len(numbers))).select_sentences(torch.tensor(stay))
        numbers = [numbers[place] for place in stay]
        tokens = torch.randint(3, V, (len(stay), len(slots)), generator=chance)
        answers = [
            [[*answers[place][slot], int(tokens[r, s])] for s, slot in enumerate(slots)] for r, place in enumerate(stay)
        ]


@some
def test_gradcheck_of_the_embeddings_and_every_parameter_has_a_gradient(name: str) -> None:
    model, (history, target) = built(name).train(), given()
    history, target = row(history, 1), target[1:2, :3]
    table = next(p for key, p in model.named_parameters() if key.endswith("embedding.weight"))
    weight = table.detach()[:, :2].clone().requires_grad_()

    def loss(columns: Tensor) -> Tensor:
        full = torch.cat([columns, table.detach()[:, 2:]], 1)
        names = {key for key, p in model.named_parameters(remove_duplicate=False) if p is table}
        output = torch.func.functional_call(model, dict.fromkeys(names, full), (history, target))
        return output.log_softmax(-1)[..., 5].sum()

    assert torch.autograd.gradcheck(loss, (weight,))
    model(history, target).square().sum().backward()
    assert not [key for key, p in model.named_parameters() if p.grad is None or not p.grad.any()]


@some
@torch.no_grad()
def test_copies_and_inputs(name: str) -> None:
    model, (history, target) = built(name), given()
    before = [part.clone() for part in (*history, target)]
    whole = model(history, target)
    assert all(torch.equal(a, b) for a, b in zip(before, (*history, target), strict=True))
    torch.testing.assert_close(copy.deepcopy(model)(history, target), whole)
    other = ALL[name]().eval()
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(history, target), whole)
    assert model.float()(history, target).dtype == torch.float32


@torch.no_grad()
def test_hran_is_its_formulas_in_plain_loops() -> None:
    """Word by word, turn by turn, step by step, with torch's GRU and no mask."""
    model, (history, target) = built("hran"), given()

    def attend(layer: torch.nn.Module, query: Tensor, keys: list[Tensor]) -> Tensor:
        score = layer.score
        energies = [score.energy @ torch.tanh(score.query.weight @ query + score.key.weight @ key) for key in keys]
        weights = torch.stack(energies).softmax(0)
        return sum((weight * key for weight, key in zip(weights, keys, strict=True)), torch.zeros_like(keys[0]))

    for n in range(B):
        turns, first = [], torch.zeros(0)
        for i in reversed(range(M)):
            if LENGTHS[n, i]:
                words = model.embedding(history.tokens[n, i, : LENGTHS[n, i]]) + model.speakers(history.speakers[n, i])
                states, last = model.word_encoder.rnn(words)
                first = last.flatten() if not turns else first
                turns.append(list(states))
        s = torch.tanh(model.bridge.linear(first))
        for t in range(T):
            y, l, rows = model.embedding(target[n, t]), torch.zeros(10), []
            for words in turns:
                r = attend(model.word_attention, s, words)
                l = model.turn_encoder.rnn(r[None], l[None])[1][0]
                rows.append(l)
            c = attend(model.turn_attention, s, rows)
            s = model.stack.rnn(torch.cat([y, c])[None], s[None])[1][0]
            out = torch.tanh(model.readout(torch.cat([s, y, c])))
            torch.testing.assert_close(model.output(out), model(history, target)[n, t])


@torch.no_grad()
def test_flat_is_a_language_model_on_the_joined_turns() -> None:
    """With one token for both marks and no speakers, the logits of the answer are those of the model itself."""
    decoder = GPT2(V, width=12, heads=3, layers=2, longest=41, dropout=0.0).eval()
    model, (history, target) = FlatResponder(decoder).eval(), given()
    target[:, 0] = EOS
    for n in range(B):
        turns = [history.tokens[n, i, : LENGTHS[n, i]].tolist() for i in range(M) if LENGTHS[n, i]]
        text = [token for turn in turns for token in turn][:-1]
        alone = decoder(torch.tensor([[*text, *target[n].tolist()]]))[0, len(text) :]
        torch.testing.assert_close(model(history, target)[n], alone)


REFUSED = {
    "hard": "samples a key, which this model does not learn by",
    "window": "weighs keys by their distance from the query, which has no position among the words of other turns",
    "location-sensitive": "carries a state from step to step, and the turns change with every step",
    "co-attention": "needs all queries together, but a decoder has one at a time",
}


@for_each("name", FLAT)
def test_one_pass_learns_all_replies_of_a_dialogue(name: str) -> None:
    """The same tokens and losses as one pass per reply, each with the turns before it."""
    model, generator = built(name), torch.Generator().manual_seed(5)
    turns = [torch.randint(4, V, (n,), generator=generator).tolist() for n in (3, 2, 4, 1, 2, 3)]
    ended = [[*turn, (BOS, EOS)[n % 2]] for n, turn in enumerate(turns)]

    def batch(count: int, width: int = 7) -> tuple[History, Tensor]:
        rows = torch.zeros(1, count, width, dtype=torch.long)
        for n, turn in enumerate(ended[:count]):
            rows[0, n, : len(turn)] = torch.tensor(turn)
        lengths = torch.tensor([[len(turn) for turn in ended[:count]]])
        return History(rows, lengths, (torch.arange(count) % 2 == 0).long()[None]), torch.tensor([[BOS, *ended[count]]])

    logs = []
    for count in (1, 3, 5):
        history, target = batch(count)
        log_p = model(history, target[:, :-1]).log_softmax(-1)
        logs.append(log_p.gather(-1, target[:, 1:, None]).flatten())
    # a second dialogue beside it, shorter, with padding in its target
    (long, target), (short, other) = batch(5), batch(1)
    pads = [torch.nn.functional.pad(part, (0, 0, 4, 0) if part.ndim == 3 else (4, 0)) for part in short]
    both = History(*(torch.cat(pair) for pair in zip(long, pads, strict=True)))
    targets = torch.cat([target, torch.nn.functional.pad(other, (0, target.shape[1] - other.shape[1]))])
    lengths = torch.tensor([target.shape[1] - 1, other.shape[1] - 1])
    # in the second row four turns are absent
    total, nll = model.token_loss(both, targets, lengths, torch.tensor([1, 5]))
    torch.testing.assert_close(-nll, torch.cat([*logs, logs[0]]))
    torch.testing.assert_close(total, nll.sum())
    # from the second reply on
    _, nll = model.token_loss(both, targets, lengths, torch.tensor([3, 5]))
    torch.testing.assert_close(-nll, torch.cat([*logs[1:], logs[0]]))


@torch.no_grad()
def test_a_bidirectional_pass_learns_the_reply_that_it_is_read_for() -> None:
    """The first learned reply as it is written alone, those behind it from turns that are read in part as a past."""
    model, (history, target) = built("both, rotary"), given()
    history, target = row(history, 1), target[1:2]
    target[0, 0] = BOS
    # the second turn is a reply: after one turn, whose end begins it
    history.tokens[0, 0, int(LENGTHS[1, 0]) - 1] = BOS
    speakers = torch.tensor([[1, 0, 1, 0]])
    length = torch.tensor([T - 1])
    history = history._replace(speakers=speakers)

    def losses(first: int) -> Tensor:
        return -model.token_loss(history, target, length, torch.tensor([first]))[1]

    whole = model(history, target[:, :-1]).log_softmax(-1).gather(-1, target[:, 1:, None]).flatten()
    torch.testing.assert_close(losses(4), whole)
    before = History(history.tokens[:, :1], LENGTHS[1:2, :1], speakers[:, :1])
    reply = torch.cat([torch.tensor([[BOS]]), history.tokens[:, 1, : int(LENGTHS[1, 1])]], 1)
    alone = model(before, reply[:, :-1]).log_softmax(-1).gather(-1, reply[:, 1:, None]).flatten()
    together = losses(1)
    torch.testing.assert_close(together[: len(alone)], alone)
    assert not torch.allclose(together[-len(whole) :], whole, rtol=0, atol=1e-9)


@torch.no_grad()
def test_a_bidirectional_history_is_that_of_the_prefix_in_plain_loops() -> None:
    """The words of the history attend to all of it, those of the reply to the past; the causal model to the past."""
    model, (history, target) = built("both, learned"), given()
    history, target = row(history, 1), target[1:2]
    joined = [int(token) for turn, length in zip(history.tokens[0], LENGTHS[1], strict=True) for token in turn[:length]]
    speakers = [s for s, n in zip(history.speakers[0].tolist(), LENGTHS[1].tolist(), strict=True) for s in [s] * n]
    # the end of a turn belongs to the next speaker, and that of the last turn is the begin of the reply
    ends = LENGTHS[1].cumsum(0).tolist()
    speakers = [1 - s if n + 1 in ends else s for n, s in enumerate(speakers)][:-1] + [0] * T
    tokens = torch.tensor([*joined[:-1], *target[0].tolist()])
    count, total = len(joined) - 1, len(joined) - 1 + T
    x = model.decoder.embed(tokens[None], torch.arange(total))[0] + model.speakers(torch.tensor(speakers))
    for layer in model.decoder.stack.layers:
        normed, heads, width = layer.around_attention.enter(x), 3, 4
        own = layer.attention
        q, k, v = (part(normed).unflatten(-1, (heads, width)) for part in (own.query, own.key, own.value))
        read = torch.zeros_like(q)
        for i in range(total):
            seen = [j for j in range(total) if j <= i or j < count]
            for h in range(heads):
                alpha = torch.stack([q[i, h] @ k[j, h] / width**0.5 for j in seen]).softmax(0)
                read[i, h] = sum(a * v[j, h] for a, j in zip(alpha, seen, strict=True))
        x = x + own.out(read.flatten(1))
        x = x + layer.feed(layer.around_feed.enter(x))
    expected = model.output(model.decoder.stack.norm(x[count:]))
    torch.testing.assert_close(model(history, target)[0], expected)
    causal = FlatResponder(model.decoder).eval()
    causal.speakers.load_state_dict(model.speakers.state_dict())
    assert not torch.allclose(causal(history, target)[0], expected)


@pytest.mark.parametrize("name", REFUSED)
def test_the_reasons(name: str) -> None:
    with pytest.raises(ValueError, match=r"cannot read a dialogue") as error:
        HRAN(V, width=6, hidden=10, attention=name)
    assert str(error.value) == (
        f"attention={name!r} cannot read a dialogue: it {REFUSED[name]}; try attention='additive'"
    )


def test_wrong_arguments_are_one_sentence() -> None:
    history, target = given()
    model = built("hran")
    cases: list[tuple[Callable[[], object], str]] = [
        (
            lambda: HRAN(V, hidden=7),
            "hidden must be even to be halved over two directions, got 7; try 8",
        ),
        (
            lambda: FlatResponder(TransformerXL(V, width=12, heads=3, layers=1, memory=4)),
            "decoder must read a dialogue at once, and this one has a memory of 4 tokens between segments; train it "
            "with memory=0",
        ),
        (
            lambda: FlatResponder(TransformerXL(V, width=12, heads=3, layers=1, memory=0, cutoffs=[5])),
            "decoder must have a linear vocabulary layer, got AdaptiveSoftmax; build it without cutoffs",
        ),
        (
            lambda: model(history._replace(lengths=LENGTHS[:, :2]), target),
            "history must be tokens (dialogues, turns, words) with lengths and speakers (dialogues, turns), got "
            "(3, 4, 5), (3, 2) and (3, 4); pad dialogues with turns of length 0",
        ),
        (
            lambda: model(history._replace(lengths=LENGTHS + 1), target),
            "the turns have room for 5 tokens, and lengths are from 1 to 6; count the tokens of each turn",
        ),
        (
            lambda: model(history._replace(lengths=LENGTHS * torch.tensor([[1], [0], [1]])), target),
            "dialogue 1 has no words: all its lengths are 0; leave out empty dialogues",
        ),
        (
            lambda: model.token_loss(history, target, torch.tensor([6, 6, 6]), torch.tensor([4, 2, 4])),
            "HRAN learns the target alone, got first=[4, 2, 4]; give the number of turns",
        ),
        (
            lambda: built("pointer").token_loss(
                history, target, torch.tensor([6, 6, 6]), torch.tensor([4, 4, 4]), smoothing=0.1
            ),
            "smoothing must be 0 for a pointer, got 0.1; build the model without one",
        ),
    ]
    for call, sentence in cases:
        with pytest.raises(ValueError, match=re.escape(sentence)) as error:
            call()
        assert str(error.value) == sentence
