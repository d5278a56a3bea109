"""Pictures of words, whose vectors come from the Python manual in the standard library."""

import collections
import functools
import re
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.viz import Panel

QUERIES = ["int", "tuple", "class", "module", "method"]
KEYS = ["float", "list", "the", "import", "def", "call", "type"]
CONTEXT = ["the", "list", "is", "a", "mutable", "type", "and", "an", "int", "is", "not"]
QUESTION = ["is", "a", "tuple", "mutable"]
DIM = 32


@functools.cache
def manual() -> tuple[dict[str, int], Tensor]:
    """Words of the Python manual and their vectors: positive pointwise mutual information, 32 singular directions."""
    text = re.findall("[a-z]+", " ".join(topics.values()).lower())
    index = {word: n for n, (word, _) in enumerate(collections.Counter(text).most_common(1500))}
    ids = torch.tensor([index.get(word, -1) for word in text])
    counts = torch.zeros(1500, 1500, dtype=torch.float64)
    for gap in range(1, 5):
        left, right = ids[:-gap], ids[gap:]
        both = (left >= 0) & (right >= 0)
        ones = torch.full((int(both.sum()),), 1.0 / gap, dtype=torch.float64)
        counts.index_put_((left[both], right[both]), ones, accumulate=True)
    counts = counts + counts.T
    share = counts.sum(0) / counts.sum()
    information = (counts / counts.sum() / (share * share[:, None])).clamp_min(1.0).log()
    torch.manual_seed(0)
    u, s, _ = torch.svd_lowrank(information, q=64, niter=6)
    vectors = u[:, :DIM] * s[:DIM].sqrt()
    vectors = vectors - vectors.mean(0)
    return index, (vectors / vectors.std()).float()


def words(*names: str) -> Tensor:  # "n d"
    index, vectors = manual()
    return vectors[[index[name] for name in names]]


def weights(q: Tensor, k: Tensor, **terms: object) -> Tensor:  # "q d", "k d" -> "q k"
    got = regard.attend(q, k, need=regard.Need(weights=True), **terms)  # type: ignore[arg-type]
    assert got.weights is not None
    return got.weights.detach()


def about(choices: dict[str, dict[str, object]]) -> list[Panel]:
    """The same words under different terms."""
    q, k = words(*QUERIES), words(*KEYS)
    return [Panel(weights(q, k, **terms), title, QUERIES, KEYS) for title, terms in choices.items()]


def set_distance() -> list[Panel]:
    """The same words by the sum of their distances from all of them; every query has the same weights."""
    q, k = words(*QUERIES), words(*KEYS)
    panels = []
    for sign, title in ((-1, "−Σ‖k − l‖ / n"), (1, "Σ‖k − l‖ / n")):
        layer = regard.layers.SetDistance(sign, scale=1 / len(KEYS))
        panels.append(Panel(layer(q, k, torch.eye(len(KEYS))), title, QUERIES, KEYS))
    return panels


def hard() -> list[Panel]:
    q, k = words(*QUERIES), words(*KEYS)
    soft = weights(q, k)
    torch.manual_seed(0)
    many = [regard.attention(q, k, torch.eye(len(KEYS)), read=regard.Sample()) for _ in range(200)]
    shown = {"the weights": soft, "one sample": many[0], "mean of 200 samples": torch.stack(many).mean(0)}
    shown["argmax"] = regard.attention(q, k, torch.eye(len(KEYS)), read=regard.Argmax())
    return [Panel(w, title, QUERIES, KEYS) for title, w in shown.items()]


def gumbel() -> list[Panel]:
    q, k, each = words(*QUERIES), words(*KEYS), torch.eye(len(KEYS))
    shown = {"the weights": weights(q, k)}
    for temperature in (1.0, 0.2):
        torch.manual_seed(0)
        shown[f"Gumbel, T = {temperature:g}"] = regard.attention(q, k, each, read=regard.Gumbel(temperature))
    shown["straight-through"] = regard.attention(q, k, each, read=regard.reads.StraightThrough())
    return [Panel(w, title, QUERIES, KEYS) for title, w in shown.items()]


def topic_lines() -> tuple[Tensor, regard.Lengths, Tensor]:
    """Lines of the manual, "n w", padded, and whether each is about classes, 0, or about numbers, 1."""
    index, _ = manual()
    common = set(re.findall("[a-z]+", "the a an of to is are and or in it if be as for this that"))
    lines: list[tuple[Tensor, int]] = []
    for label, names in enumerate(
        (("class", "customization", "attribute-access"), ("numeric-types", "formatstrings", "numbers"))
    ):
        text = " ".join(topics[name] for name in names).lower()
        found = [[index[w] for w in re.findall("[a-z]+", s) if w in index and w not in common] for s in text.split(".")]
        lines += [(torch.tensor(ids[:12]), label) for ids in found if len(ids) >= 4]
    ids = nn.utils.rnn.pad_sequence([ids for ids, _ in lines], batch_first=True)
    mask = regard.Lengths(torch.tensor([len(ids) for ids, _ in lines]))
    return ids, mask, torch.tensor([label for _, label in lines])


def pooling() -> list[Panel]:
    """The weights of one learned query that separates lines about classes from lines about numbers."""
    _, vectors = manual()
    ids, mask, labels = topic_lines()
    torch.manual_seed(0)
    pool = regard.layers.Pool(regard.Attention(regard.Additive(DIM, DIM, DIM)), DIM)
    out = nn.Linear(DIM, 2)
    optimizer = torch.optim.AdamW([*pool.parameters(), *out.parameters()], lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        F.cross_entropy(out(pool(vectors[ids], mask=mask)), labels).backward()
        optimizer.step()
    panels = []
    for text in ("called when an instance is created", "the value of the integer number", "digits of a decimal number"):
        got = pool.attend(words(*text.split()), need=regard.Need(weights=True))
        assert got.weights is not None
        topic = ("classes", "numbers")[int(out(got.out).argmax())]
        panels.append(Panel(got.weights.detach().unsqueeze(-1), f"about {topic}", text.split(), ["weight"]))
    return panels


def co_attention() -> list[Panel]:
    q, k = words(*CONTEXT), words(*QUESTION)
    got = regard.layers.CoAttention(regard.Cosine(8.0)).attend(q, k, need=regard.Need(weights=True))
    assert got.of_q.weights is not None
    assert got.of_k.weights is not None
    return [
        Panel(got.of_q.weights, "normalize(S): text over question", CONTEXT, QUESTION),
        Panel(got.of_k.weights.T, "normalize(Sᵀ)ᵀ: question over text", CONTEXT, QUESTION),
    ]


@torch.no_grad()
def bidaf() -> list[Panel]:
    q, k = (F.normalize(words(*text), dim=-1) for text in (CONTEXT, QUESTION))
    layer = regard.layers.AttentionFlow(DIM)
    for part, value in ((layer.score.query, 0.0), (layer.score.key, 0.0), (layer.score.both, 8.0)):
        part.fill_(value)
    flow = layer.flow(q, k)
    return [
        Panel(flow.weights, "the text over the question", CONTEXT, QUESTION),
        Panel(flow.back.unsqueeze(-1), "the question over the text", CONTEXT, ["weight"]),
    ]
