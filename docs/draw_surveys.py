"""Pictures of mechanisms that surveys name: pairs of texts, channels, patterns, latents and approximations."""

import torch
import torch.nn.functional as F
from draw_letters import LETTERS, train
from draw_words import CONTEXT, DIM, QUESTION, about, manual, topic_lines, words
from torch import Tensor, nn

import regard
from regard.layers import (
    CrossCovariance,
    Hopfield,
    InducedAttention,
    InteractiveCoAttention,
    MultiDimensional,
    Pool,
    SlotAttention,
    WordByWord,
)
from regard.viz import Panel

# pictures that are drawn here
NAMES = ("pairs", "multi-dimensional", "hopfield", "cross-covariance", "latents", "performer", "recipes")
WEIGHTS = regard.Need(weights=True)


@torch.no_grad()
def pairs() -> list[Panel]:
    """The matrices are the identity, so that words are read by what resembles the other text."""
    q, k = (F.normalize(words(*text), dim=-1) * 3 for text in (QUESTION, CONTEXT))
    layer, reader = InteractiveCoAttention(DIM, DIM), WordByWord(DIM, DIM, DIM)
    for linear in (layer.to_k.score.score.key, layer.to_q.score.score.key):
        linear.weight.copy_(torch.eye(DIM))
    nn.init.eye_(reader.score.query.weight)
    nn.init.eye_(reader.score.key.weight)
    nn.init.constant_(reader.score.energy, -1.0)
    reader.score.key.weight.mul_(-1.0)
    nn.init.zeros_(reader.carry.weight)
    nn.init.zeros_(reader.state.weight)
    summary = layer.attend(q, k, need=WEIGHTS)
    return [
        Panel(summary.of_q.weights.unsqueeze(-1), "question", QUESTION, ["weight"]),
        Panel(summary.of_k.weights.unsqueeze(-1), "text", CONTEXT, ["weight"]),
        Panel(reader.attend(q, k, need=WEIGHTS).weights, "word by word, untrained", QUESTION, CONTEXT),
    ]


class _Channels(nn.Module):
    """Channel c reads the value of the letter c places further on."""

    def __init__(self) -> None:
        super().__init__()
        self.letter = nn.Embedding(len(LETTERS), DIM)
        self.attention = MultiDimensional(DIM, DIM, 64, 4)

    def attend(self, values: Tensor) -> regard.Attended:  # "b n 4"
        x = self.letter.weight.expand(len(values), -1, -1)
        return self.attention.attend(x, x, values, need=WEIGHTS)

    def fit(self) -> None:
        generator = torch.Generator().manual_seed(1)

        def batch() -> tuple[Tensor, list[Tensor]]:
            values = torch.randn(32, len(LETTERS), 4, generator=generator)
            want = torch.stack([values[..., c].roll(-c, 1) for c in range(4)], -1)
            loss = (self.attend(values).out - want).square().mean()
            return loss, [loss.detach()]

        train(self, 1e-2, 800, batch)


def multi_dimensional() -> list[Panel]:
    torch.manual_seed(0)
    model = _Channels()
    model.fit()
    with torch.no_grad():
        maps = model.attend(torch.zeros(1, len(LETTERS), 4)).weights[0]
    return [Panel(w, f"channel {c}", list(LETTERS), list(LETTERS)) for c, w in enumerate(maps)]


@torch.no_grad()
def hopfield() -> list[Panel]:
    torch.manual_seed(0)
    patterns = F.normalize(torch.randn(8, 24), dim=-1) * 24**0.5
    noisy = patterns[:5] + 1.7 * torch.randn(5, 24)
    panels = []
    for steps, scale in ((1, 0.3), (5, 0.3), (5, 0.1)):
        got = Hopfield(steps, scale=scale).attend(noisy, patterns, need=WEIGHTS)
        rows, columns = [f"state {n}" for n in range(5)], [str(n) for n in range(8)]
        panels.append(Panel(got.weights, f"β = {scale:g}, {steps} step{'s' * (steps > 1)}", rows, columns))
    return panels


@torch.no_grad()
def cross_covariance() -> list[Panel]:
    """Projections of two heads that pass the word vectors, so that the map is that of their dimensions."""
    torch.manual_seed(0)
    layer = CrossCovariance(24, 2)
    for linear in (layer.query, layer.key):
        nn.init.eye_(linear.weight)
        nn.init.zeros_(linear.bias)
    layer.attention.score.log_scale.fill_(1.0)
    # some channels are copies of others: they attend to each other
    x = torch.randn(200, 24)
    x[:, 6:12] = x[:, :6] + 0.5 * x[:, 6:12]
    x[:, 18:24] = x[:, [12]] + 0.5 * x[:, 18:24]
    maps = layer.attend(x, need=WEIGHTS).weights
    return [Panel(w, f"channels of head {h}") for h, w in enumerate(maps)]


def latents() -> list[Panel]:
    """Slots learn to rebuild clouds of points; their weights over inputs are those of the last round."""
    torch.manual_seed(0)
    slots, embed, out = SlotAttention(DIM, DIM), nn.Linear(2, DIM), nn.Linear(DIM, 2)
    first = nn.Parameter(torch.randn(3, DIM))
    model = nn.ModuleList([slots, embed, out])
    model.register_parameter("first", first)
    generator = torch.Generator().manual_seed(1)

    def clouds(count: int) -> Tensor:  # "b 18 2", six points of each of three clouds
        centres = 3 * torch.randn(count, 3, 1, 2, generator=generator)
        return (centres + 0.2 * torch.randn(count, 3, 6, 2, generator=generator)).flatten(1, 2)

    def attend(points: Tensor) -> regard.Attended:
        q = first + 0.3 * torch.randn(len(points), 3, DIM, generator=generator)
        return slots.attend(q, embed(points), need=WEIGHTS)

    def batch() -> tuple[Tensor, list[Tensor]]:
        points = clouds(64)
        distances = (points.unsqueeze(-2) - out(attend(points).out).unsqueeze(-3)).square().sum(-1)
        loss = distances.amin(-1).mean()
        return loss, [loss.detach()]

    train(model, 2e-3, 1500, batch)
    with torch.no_grad():
        points = clouds(1)
        shares = attend(points).weights[0]
        induced = InducedAttention(DIM, 3, 1)
        nn.init.normal_(induced.points)
        of_points = induced.attend(embed(points)[0], need=WEIGHTS).points.weights[0]
    names = [f"{cloud} {n}" if n == 0 else "" for cloud in "ABC" for n in range(6)]
    rows = [f"slot {n}" for n in range(3)], [f"point {n}" for n in range(3)]
    return [Panel(shares.T, "slots", names, rows[0]), Panel(of_points.T, "induced points, untrained", names, rows[1])]


def performer() -> list[Panel]:
    torch.manual_seed(0)
    choices: dict[str, dict[str, object]] = {"softmax": {}}
    for features in (16, 256, 4096):
        score = regard.scores.Kernel(regard.scores.RandomFeatures(DIM, features))
        choices[f"{features:,} features"] = {"score": score, "normalize": regard.normalizers.Sum()}
    return about(choices)


def recipes() -> list[Panel]:
    """A capsule per topic: a learned query that reads a line, and the probability of what it read."""
    _, vectors = manual()
    ids, mask, labels = topic_lines()
    torch.manual_seed(0)
    pool, out = Pool(regard.Attention(regard.Dot()), DIM, queries=2), nn.Linear(DIM, 2)

    def probabilities(vectors_read: Tensor) -> Tensor:  # "*b 2 d" -> "*b 2"
        return (vectors_read * out.weight).sum(-1) + out.bias

    optimizer = torch.optim.AdamW([*pool.parameters(), *out.parameters()], lr=1e-2)
    for _ in range(200):
        optimizer.zero_grad()
        target = F.one_hot(labels, 2).float()
        F.binary_cross_entropy_with_logits(probabilities(pool(vectors[ids], mask=mask)), target).backward()
        optimizer.step()
    panels = []
    for text in ("called when an instance is created", "the value of the integer number"):
        with torch.no_grad():
            got = pool.attend(words(*text.split()), need=WEIGHTS)
            shares = torch.sigmoid(probabilities(got.out))
        columns = [f"{name}: {share:.2f}" for name, share in zip(("classes", "numbers"), shares.tolist(), strict=True)]
        panels.append(Panel(got.weights.T, "weights", text.split(), columns))
    return panels
