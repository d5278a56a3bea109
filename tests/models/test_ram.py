"""RAM: the paper in a plain loop, gradients where they belong, a policy gradient without bias, a path to see."""

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.for_each import for_each
from torch import Tensor
from torch.distributions import Normal

import regard
from regard.losses import reinforce
from regard.models.ram import RAM

SMALL: dict[str, Any] = {"glimpses": 3, "patch": 2, "scales": 2, "what": 5, "where": 7, "glimpse": 11, "hidden": 13}
B, C, H, W, K = 3, 2, 9, 7, 5


def built(seed: int = 0, **options: Any) -> RAM:
    torch.manual_seed(seed)
    return RAM(C, K, **{**SMALL, **options}).double()


def pictures(seed: int = 1) -> Tensor:
    return torch.rand(B, C, H, W, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("core", ["rnn", "lstm"])
def test_it_is_the_paper_in_a_plain_loop(core: str) -> None:
    model, x = built(core=core).eval(), pictures()
    own = dict(model.named_parameters())

    def linear(name: str, t: Tensor) -> Tensor:
        return t @ own[f"{name}.weight"].T + own.get(f"{name}.bias", torch.zeros(()))

    h = c = torch.zeros(B, 13, dtype=torch.float64)
    places = []
    for _ in range(3):
        place = torch.tanh(linear("locate", h))
        seen = model.retina(x, place).flatten(1)
        what, where = linear("glimpse.what", seen).relu(), linear("glimpse.where", place).relu()
        g = (linear("glimpse.what_out", what) + linear("glimpse.where_out", where)).relu()
        if core == "rnn":
            h = (linear("core.present", g) + linear("core.past", h)).relu()
        else:
            gates = (
                g @ own["core.cell.weight_ih"].T
                + own["core.cell.bias_ih"]
                + h @ own["core.cell.weight_hh"].T
                + own["core.cell.bias_hh"]
            )
            i, f, new, o = gates.chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * new.tanh()
            h = o.sigmoid() * c.tanh()
        places.append(place)
    got = model.look(x)
    torch.testing.assert_close(got.logits, linear("head", h))
    torch.testing.assert_close(got.places, torch.stack(places, 1))
    assert torch.equal(model(x), got.logits)
    assert not got.log_prob.any()


def test_laws() -> None:
    model, x = built().eval(), pictures()
    kept, whole = x.clone(), model.look(x)
    assert [tuple(t.shape) for t in whole] == [(B, K), (B, 3, 2), (B, 3), (B, 3)]
    assert torch.equal(x, kept)
    for n in range(B):
        for one, all_ in zip(model.look(x[n : n + 1]), whole, strict=True):
            torch.testing.assert_close(one, all_[n : n + 1])
    other = built(7).eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), whole.logits)
    assert torch.equal(copy.deepcopy(model)(x), whole.logits)
    assert model.float()(x.float()).dtype == torch.float32
    assert model(x.float()[:0]).shape == (0, K)
    # another size of picture needs no other model
    assert model(torch.rand(1, C, 4, 30)).shape == (1, K)


def test_training_draws_and_evaluation_does_not() -> None:
    model, x = built(std=0.2), pictures()
    torch.manual_seed(0)
    a, b = model.look(x), model.look(x)
    assert not torch.equal(a.places, b.places)
    model.eval()
    assert torch.equal(model.look(x).places, model.look(x).places)
    torch.manual_seed(0)
    assert torch.equal(model.look(x, draw=True).places, a.places)
    assert torch.equal(model.train().look(x, draw=False).places, model.eval().look(x).places)


def test_log_prob_is_that_of_the_draw_not_of_where_it_was_moved() -> None:
    model, x = built(std=0.8), pictures()
    with torch.no_grad():
        model.locate.bias.copy_(torch.tensor([1.5, -1.0]))
    torch.manual_seed(5)
    looked = model.look(x)
    torch.manual_seed(5)
    mean = torch.tanh(model.locate.bias).expand(B, 2)
    drawn = mean + 0.8 * torch.randn(B, 2, dtype=torch.float64)
    assert (drawn.abs() > 1).any()
    torch.testing.assert_close(looked.places[:, 0], drawn.clamp(-1, 1))
    torch.testing.assert_close(looked.log_prob[:, 0], Normal(mean, 0.8).log_prob(drawn).sum(-1))


@pytest.mark.parametrize("core", ["rnn", "lstm"])
def test_places_are_exact_where_products_are_narrow(core: str) -> None:
    model, x = built(core=core).float(), pictures().float()
    with torch.autocast("cpu", torch.bfloat16):
        looked = model.look(x)
    assert {t.dtype for t in looked[1:]} == {torch.float32}
    (looked.logits.float().sum() + looked.log_prob.sum() + looked.baseline.sum()).backward()
    half = model.to(torch.bfloat16).look(x.bfloat16())
    assert (half.logits.dtype, half.places.dtype) == (torch.bfloat16, torch.float32)


def learns(model: RAM, loss: Tensor) -> set[str]:
    """Whose parameters get a gradient that is not 0."""
    model.zero_grad()
    loss.backward(retain_graph=True)
    return {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}


@pytest.mark.parametrize("core", ["rnn", "lstm"])
def test_every_gradient_stays_where_it_belongs(core: str) -> None:
    model, x = built(core=core, std=0.3), pictures()
    looked = model.look(x)
    reward = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)[:, None].expand(B, 3)
    answer = F.cross_entropy(looked.logits, torch.arange(B))
    policy = reinforce(looked.log_prob, reward, looked.baseline)
    expected = F.mse_loss(looked.baseline, reward)
    # the answer does not reach places through what was seen there, though the retina could tell them
    assert learns(model, answer) == {"glimpse", "core", "head"}
    assert learns(model, policy) == {"locate"}
    assert learns(model, expected) == {"expect"}
    assert not looked.places.requires_grad
    model.zero_grad()
    (answer + policy + expected).backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())


def test_the_baseline_does_not_know_the_draw_it_is_for() -> None:
    model, x = built(std=0.5), pictures()
    torch.manual_seed(0)
    a = model.look(x)
    torch.manual_seed(1)
    b = model.look(x)
    torch.testing.assert_close(a.baseline[:, 0], b.baseline[:, 0])
    assert not torch.equal(a.baseline[:, 1], b.baseline[:, 1])


def test_it_learns_where_to_look() -> None:
    """The class stands in a corner that the first glimpse, in the middle, seldom reaches."""
    torch.manual_seed(0)
    model = RAM(1, 2, glimpses=1, patch=4, what=16, where=8, glimpse=16, hidden=16, std=0.3)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(400):
        y = torch.randint(2, (64,))
        x = torch.zeros(64, 1, 16, 16)
        x[torch.arange(64), 0, 12 + 2 * y, 12] = 3.0
        looked = model.look(x)
        reward = (looked.logits.argmax(-1) == y).float()[:, None]
        loss = F.cross_entropy(looked.logits, y) + F.mse_loss(looked.baseline, reward)
        optimizer.zero_grad()
        (loss + reinforce(looked.log_prob, reward, looked.baseline)).backward()
        optimizer.step()
    looked = model.eval().look(x)
    assert (looked.logits.argmax(-1) == y).float().mean() > 0.95
    assert (looked.places > 0.3).all()


def test_its_path_is_recorded() -> None:
    model, x = built().float().eval(), pictures().float()
    want = model.look(x)
    with regard.record(model) as tape:
        assert torch.equal(model(x), want.logits)
    (path,) = tape
    assert (path.name, path.kind, path.shape, path.grid) == ("retina", "glimpse", (B, 1, 3, H * W), (H, W))
    assert path.verified
    for t in range(3):
        weights = model.retina.weights(want.places[:, t], H, W)
        torch.testing.assert_close(path.weights.dense()[:, 0, t], weights.flatten(1))
    with regard.record(model, rows=[2]) as tape:
        model(x)
    assert tape[0].shape == (B, 1, 1, H * W)


@for_each(
    ("options", "error", "said"),
    [
        ({"core": "lsmt"}, ValueError, "unknown core 'lsmt'; did you mean 'lstm'"),
        ({"std": 0.0}, ValueError, "std must be positive for RAM, got 0.0"),
        ({"outside": "black"}, ValueError, "unknown outside 'black'; .*known are: zeros, edge"),
    ],
)
def test_bad_input(options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        RAM(1, 2, **options)


def test_a_picture_of_other_channels_is_refused() -> None:
    said = r"x must be \(images, 1 channels, height, width\), got \(2, 8, 8\); grey images have one channel"
    with pytest.raises(ValueError, match=said):
        RAM(1, 2)(torch.zeros(2, 8, 8))
