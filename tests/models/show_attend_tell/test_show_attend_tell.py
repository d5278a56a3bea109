"""Show, Attend and Tell: the paper in a plain loop, soft and hard, step by step and all at once, any encoder."""

import copy
import itertools
from dataclasses import dataclass

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn

import regard
from regard.attn.call import Need
from regard.attn.layer import Attention
from regard.attn.terms.read import Read, Sample
from regard.attn.terms.score import Additive
from regard.decoding.beam import beam
from regard.decoding.greedy import greedy
from regard.models.show_attend_tell.encoder import AnnotationEncoder
from regard.models.show_attend_tell.model import ShowAttendTell
from regard.tasks.shared.text_generation import TokenLoss, hard_attention_loss

# sizes that share no factor: a swapped axis must fail
B, D, W, V, H, T = 3, 7, 5, 13, 11, 4
BOTH = pytest.mark.parametrize("attention", ["soft", "hard"])


class Map(nn.Module):
    """An encoder that says its width: "b 2 3·p 5·p" -> "b d 3 5"."""

    def __init__(self, out_channels: int = D) -> None:
        super().__init__()
        self.out_channels = out_channels
        self.inner = nn.Conv2d(2, out_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(nn.functional.avg_pool2d(self.inner(x), 3))


class Rows(nn.Module):
    """One that says nothing: "b n 2" -> "b n d"."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.inner = nn.Linear(2, D)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.inner(x))


def built(attention: str = "soft", **options: object) -> ShowAttendTell:
    """With biases that are not zero: one that is lost must be missed."""
    torch.manual_seed(1)
    model = ShowAttendTell(Map(), V, width=W, hidden=H, attention=attention, **options).double()  # type: ignore[arg-type]
    for key, p in model.named_parameters():
        if key.endswith("bias"):
            nn.init.normal_(p, std=0.3)
    return model


def seen(b: int = B) -> Tensor:
    torch.manual_seed(2)
    return torch.randn(b, 2, 9, 15, dtype=torch.float64)


def target(b: int = B) -> Tensor:
    torch.manual_seed(3)
    return torch.cat([torch.ones(b, 1, dtype=torch.long), torch.randint(4, V, (b, T - 1))], 1)


@BOTH
def test_it_is_the_paper_in_a_plain_loop(attention: str) -> None:
    """Equations 1 to 7, one picture and one word at a time, with torch's own cell."""
    model = built(attention).eval()
    cell = nn.LSTMCell(W + D, H).double()
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in model.decoder.stack.rnn.state_dict().items()})
    d, score = model.decoder, model.decoder.attention.score
    x, y = seen(), target()
    got = model.teacher_force(x, y, Need(weights=True))
    for n in range(B):
        places = model.encoder(x[n : n + 1])[0].flatten(1).T  # "15 d"
        h, c = torch.tanh(d.bridge.linear(places.mean(0))).chunk(2)
        for t in range(T):
            e = torch.stack([score.energy @ torch.tanh(score.query(h) + score.key(a)) for a in places])
            alpha = torch.softmax(e, 0)
            z = sum(w * a for w, a in zip(alpha, places, strict=True))
            if attention == "hard":
                z = places[int(alpha.argmax())]
            z = torch.sigmoid(d.gate(h)) * z
            word = model.embedding(y[n, t])
            h, c = cell(torch.cat([word, z])[None], (h[None], c[None]))
            h, c = h[0], c[0]
            logits = model.output(word + d.of_state(h) + d.of_context(z))
            torch.testing.assert_close(got.weights[n, t], alpha)
            torch.testing.assert_close(model.output(got.states[n, t]), logits)


@BOTH
def test_steps_are_the_whole(attention: str) -> None:
    model = built(attention).eval()
    x, y = seen(), target()
    whole, looked = model(x, y), model.teacher_force(x, y, Need(weights=True)).weights
    state = model.init_state(x)
    for t in range(T):
        made = model.step(y[:, t : t + 1], state, weights=True)
        state = made.state
        torch.testing.assert_close(made.logits[:, 0], whole[:, t])
        torch.testing.assert_close(made.weights[:, 0], looked[:, t])


@BOTH
def test_searches_of_a_batch_are_those_of_its_images(attention: str) -> None:
    model = built(attention).eval()
    x, limits = seen(), torch.full((B,), 6)
    by = {"bos": 1, "eos": 2, "limits": limits, "forbidden": (0, 1, 3)}
    first = greedy(model, model.init_state(x), **by)
    alike = [one[0] for one in beam(model, model.init_state(x), size=1, **by)]
    assert [one.tokens for one in first] == [one.tokens for one in alike]
    several = beam(model, model.init_state(x), size=4, nbest=3, coverage=0.2, source_lengths=torch.full((B,), 15), **by)
    for n in range(B):
        one, lengths = dict(by, limits=limits[:1]), torch.tensor([15])
        state = model.init_state(x[n : n + 1])
        (found,) = beam(model, state, size=4, nbest=3, coverage=0.2, source_lengths=lengths, **one)
        assert [f.tokens for f in found] == [f.tokens for f in several[n]]


def test_hard_with_one_place_is_soft() -> None:
    soft, hard = built("soft"), built("hard", expected=0.0)
    hard.load_state_dict(soft.state_dict())
    x, y = torch.randn(B, 2, 3, 3, dtype=torch.float64), target()
    got = hard.train().teacher_force(x, y)
    torch.testing.assert_close(got.states, soft.teacher_force(x, y).states)
    torch.testing.assert_close(got.log_prob, torch.zeros(B, T, dtype=torch.float64))


def test_the_expectation_of_draws_is_soft() -> None:
    soft, hard = built("soft"), built("hard", expected=1.0)
    hard.load_state_dict(soft.state_dict())
    x, y = seen(), target()
    got = hard.train().teacher_force(x, y)
    torch.testing.assert_close(got.states, soft.teacher_force(x, y).states)
    assert not got.log_prob.any()
    half = built("hard", expected=0.5).train().teacher_force(seen(64), target(64)).log_prob
    drew = (half != 0).any(1)
    assert 10 < int(drew.sum()) < 54
    assert (half[drew] != 0).all()


@dataclass(frozen=True)
class Forced(Sample):
    """Goes where it is told, as if it had drawn that."""

    places: "itertools.cycle[int]"

    def select(self, weights: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor | None]:
        # the probe of its width has one place
        at = next(self.places) if weights.shape[-1] > 1 else 0
        return torch.full(weights.shape[:-1], at), None

    def in_eval(self) -> Read:
        return self


def test_reinforce_is_unbiased() -> None:
    """Over all paths, by their probability, its gradient is that of E[log p(y | s)], whatever the baseline."""
    x, y = torch.randn(1, 2, 3, 6, dtype=torch.float64), target(1)[:, :3]  # two places, two words
    plain = built("hard", expected=0.0)
    exact = {name: torch.zeros_like(p) for name, p in plain.named_parameters()}
    mean = copy.deepcopy(exact)
    for path in itertools.product(range(2), repeat=2):
        model = built("hard", expected=0.0)

        def forced(q: int, k: int, path: tuple[int, ...] = path) -> Attention:
            return Attention(Additive(q, k, k), read=Forced(itertools.cycle(path)))

        made = ShowAttendTell(Map(), V, width=W, hidden=H, attention=forced, expected=0.0).double()
        made.load_state_dict(model.state_dict())
        names = dict(made.named_parameters())
        keep = torch.ones(1, 2, dtype=torch.bool)
        taught = made.teacher_force(x, y[:, :-1])
        log_p = made.output(taught.states).log_softmax(-1).gather(-1, y[:, 1:, None]).squeeze(-1)  # "1 2"
        chance = taught.log_prob.sum().exp()
        truth = torch.autograd.grad(chance * log_p.sum(), list(names.values()), retain_graph=True, allow_unused=True)
        base = torch.tensor(-3.0, dtype=torch.float64)
        tokens = TokenLoss(-log_p.sum(), -log_p.detach().flatten(), keep, taught)
        loss = tokens.total + hard_attention_loss(tokens, base, 0.0)
        guess = torch.autograd.grad(-loss, list(names.values()), allow_unused=True)
        for name, a, b in zip(names, truth, guess, strict=True):
            exact[name] += 0 if a is None else a
            mean[name] += 0 if b is None else b * chance.detach()
    for name, want in exact.items():
        torch.testing.assert_close(mean[name], want)
    assert exact["decoder.attention.score.energy"].abs().sum() > 0


def test_gradients_are_right() -> None:
    model = built("soft")
    y = target(2)[:, :2]
    x = torch.randn(2, 2, 3, 6, dtype=torch.float64, requires_grad=True)

    def out(x: Tensor) -> tuple[Tensor, Tensor]:
        taught = model.teacher_force(x, y, Need(weights=True))
        assert taught.weights is not None
        return model.output(taught.states), taught.weights

    torch.autograd.gradcheck(out, x)
    sum(t.square().sum() for t in out(x)).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_any_encoder() -> None:
    state = torch.get_rng_state()
    encoder = Rows()
    encoder.inner.eval()
    torch.set_rng_state(state)
    model = ShowAttendTell(encoder, V, width=W, hidden=H, example=torch.zeros(1, 4, 2))
    assert encoder.training
    assert encoder.dropout.training
    assert not encoder.inner.training
    assert model.decoder.bridge.linear.in_features == D
    telling = model.init_state(torch.randn(B, 6, 2))
    assert telling.grid is None
    assert telling.state.lengths.tolist() == [6] * B
    assert ShowAttendTell(Map(), V, width=W, hidden=H, example=torch.zeros(1, 2, 3, 3))(
        torch.zeros(B, 2, 6, 9), target()
    ).shape == (B, T, V)


def test_it_is_recorded_a_map_a_word() -> None:
    for attention in ("soft", "hard"):
        model = built(attention).eval()
        x, y = seen(1), target(1)
        with regard.record(model) as tape:
            model.teacher_force(x, y)
        (one,) = tape
        assert (one.kind, one.grid, one.name) == ("alignment", (3, 5), "decoder.attention")
        assert one.verified
        want = model.teacher_force(x, y, Need(weights=True)).weights
        torch.testing.assert_close(one.weights.dense().reshape(T, 15), want[0])
        with regard.record(model) as steps:
            state = model.init_state(x)
            for t in range(T):
                state = model.step(y[:, t : t + 1], state).state
        (joined,) = steps.stitch()
        torch.testing.assert_close(joined.weights.dense().reshape(T, 15), want[0])
        assert joined.grid == (3, 5)


@pytest.mark.parametrize("size", [(32, 32), (4, 4), (13, 22)])
def test_a_place_sees_what_is_there(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    net = AnnotationEncoder(2, D, channels=4).double()
    x = torch.randn(1, 2, *size, dtype=torch.float64)
    made = net(x)
    assert made.shape == (1, D, size[0] // 4, size[1] // 4)
    at = (made.shape[2] // 2, made.shape[3] // 2)
    middle = [4 * n + 2 for n in at]
    changed = torch.ones(size, dtype=torch.bool)
    changed[max(middle[0] - 6, 0) : middle[0] + 6, max(middle[1] - 6, 0) : middle[1] + 6] = False
    far = net(x.masked_fill(changed, 9.0))
    torch.testing.assert_close(far[0, :, at[0], at[1]], made[0, :, at[0], at[1]])


def test_places_differ_by_where_they_lie() -> None:
    torch.manual_seed(0)
    made = AnnotationEncoder(1, 16, channels=4)(torch.zeros(1, 1, 32, 32))[0].flatten(1).T
    assert len(torch.unique(made.detach(), dim=0)) == 64


@for_each(
    ("act", "said"),
    [
        (
            lambda: ShowAttendTell(Rows(), V),
            "encoder Rows does not declare its width .*; give example, a batch of images to call it with",
        ),
        (
            lambda: ShowAttendTell(len, V),  # type: ignore[arg-type]
            "encoder must be a module, got builtin_function_or_method; try AnnotationEncoder",
        ),
        (lambda: ShowAttendTell(Map(), V, attention="softer"), "unknown attention 'softer'; did you mean 'soft'"),
        (lambda: ShowAttendTell(Map(), V, expected=2.0), "a chance from 0 to 1, got 2.0; the paper has expected=0.5"),
        (
            lambda: ShowAttendTell(nn.Flatten(), V, example=torch.zeros(2, 3, 4)),
            r'encoder must return a map "b d h w" or rows "b n d", got \(2, 12\); wrap it',
        ),
        (
            lambda: AnnotationEncoder(1, 4)(torch.zeros(2, 3, 8, 8)),
            r"images must be \(images, 1 channels, height, width\)",
        ),
        (lambda: AnnotationEncoder(1, 4)(torch.zeros(2, 1, 3, 8)), "images must be 4 × 4 pixels or more"),
    ],
)
def test_what_cannot_be_is_said(act: object, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        act()  # type: ignore[operator]


def test_a_width_that_is_none_is_told() -> None:
    liar = Map()
    liar.out_channels = D + 1
    with pytest.raises(ValueError, match=r"gave annotation vectors of \(1, 7, 1, 1\), but its declared width is 8"):
        ShowAttendTell(liar, V).encode(torch.zeros(1, 2, 3, 3))


def test_what_learns_slowly_is_what_looks() -> None:
    """Training multiplies its rate by these, which begin the names of parameters that are there."""
    assert built().lr_multipliers == {"decoder.gate": 0.1, "decoder.attention": 0.1}
    # the mechanism may have nothing to learn
    plain = ShowAttendTell(Map(), V, width=W, hidden=D, attention=lambda query, key: Attention())
    assert plain.lr_multipliers == {"decoder.gate": 0.1}
