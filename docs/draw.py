"""Draws every picture of docs/mechanisms: python docs/draw.py [names] [--out docs/images].

Word vectors come from the Python manual that every CPython carries; what has to be learned is learned here, on letters,
in seconds. The same torch and matplotlib give the same pictures.
"""

import collections
import functools
import re
from collections.abc import Callable, Sequence
from pydoc_data.topics import topics

import drawing
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.view import Panel

ASKED = ["int", "tuple", "class", "module", "method"]
SEEN = ["float", "list", "the", "import", "def", "call", "type"]
LETTERS = "abcdefghijkl"
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
    q, k = words(*ASKED), words(*SEEN)
    return [Panel(weights(q, k, **terms), title, ASKED, SEEN) for title, terms in choices.items()]


def normalizers(**choices: regard.Normalizer) -> list[Panel]:
    return about({title.replace("_", " "): {"normalize": n} for title, n in choices.items()})


def allowed(mask: regard.Mask, n: int = 12) -> Tensor:
    """Who may look where, as a picture."""
    i = torch.arange(n)
    return mask.dense(i, i).expand(1, n, n)[0].float()


class Neighbours(nn.Module):
    """Which digit stands beside the next letter of the ring (abc, def, …)?  (and beside the one before, if `both`)

    A symmetric score cannot find it everywhere: a must prefer b to c, b prefer c to a, c prefer a to b.
    """

    def __init__(self, attention: nn.Module, both: bool = False) -> None:
        super().__init__()
        self.letter, self.digit = nn.Embedding(len(LETTERS), DIM), nn.Embedding(10, DIM)
        nn.init.normal_(self.letter.weight, std=0.5)
        self.attention = attention
        self.out = nn.Linear(DIM, 20 if both else 10)
        self.both = both

    def attend(self, letters: Tensor, digits: Tensor) -> regard.Attended:  # "b n" both
        x = self.letter(letters)
        return self.attention.attend(x, x, self.digit(digits), need=regard.Need(weights=True))

    def fit(self, steps: int = 500) -> float:
        """Trains on fresh rows; the share of right digits among the last 20 batches."""
        generator = torch.Generator().manual_seed(1)
        optimizer = torch.optim.AdamW(self.parameters(), lr=5e-3)
        right, n = [], len(LETTERS)
        for step in range(steps):
            letters = torch.stack([torch.randperm(n, generator=generator) for _ in range(32)])
            digits = torch.randint(10, letters.shape, generator=generator)
            at = letters.argsort(-1)  # the place of every letter
            ring, place = letters // 3 * 3, letters % 3
            sides = (1, 2) if self.both else (1,)
            targets = [digits.gather(1, at.gather(1, ring + (place + side) % 3)) for side in sides]
            logits = self.out(self.attend(letters, digits).out).chunk(len(targets), -1)
            loss = torch.stack(
                [F.cross_entropy(x.flatten(0, 1), t.flatten()) for x, t in zip(logits, targets, strict=True)]
            )
            optimizer.zero_grad()
            loss.sum().backward()
            optimizer.step()
            if step >= steps - 20:
                right += [(x.argmax(-1) == t).float().mean() for x, t in zip(logits, targets, strict=True)]
        return float(torch.stack(right).mean())

    @torch.no_grad()
    def look(self) -> Tensor:
        letters = torch.arange(len(LETTERS)).unsqueeze(0)
        got = self.eval().attend(letters, torch.zeros_like(letters))
        assert got.weights is not None
        return got.weights[0]


@functools.cache
def neighbour(name: str) -> Panel:
    """A score that was to find the next letter."""
    torch.manual_seed(0)
    model = Neighbours(regard.mechanism(name, DIM))
    right = model.fit()
    return Panel(model.look(), f"{name}: {right:.0%} right", list(LETTERS), list(LETTERS))


class Stretched(nn.Module):
    """Writes the letters of a word that is heard in frames, two to four of them a letter; no positions are given."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.letter = nn.Embedding(4, DIM)
        self.ear = nn.Conv1d(DIM, DIM, 3, padding=1)
        self.hand = nn.GRU(DIM, DIM, batch_first=True)
        self.attention = attention
        self.out = nn.Linear(DIM, 4)

    def keys(self, frames: Tensor) -> Tensor:  # "b f" -> "b f d"
        return torch.tanh(self.ear(self.letter(frames).transpose(1, 2))).transpose(1, 2)

    def queries(self, written: Tensor) -> Tensor:  # "b n" -> "b n d", each knows the letters before it
        return self.hand(F.pad(self.letter(written)[:, :-1], (0, 0, 1, 0)))[0]

    def attend(self, frames: Tensor, lengths: Tensor, written: Tensor) -> regard.Attended:
        mask, need = regard.Lengths(lengths), regard.Need(weights=True)
        return self.attention.attend(self.queries(written), self.keys(frames), mask=mask, need=need)

    def fit(self, steps: int) -> float:
        generator = torch.Generator().manual_seed(2)
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        right = []
        for step in range(steps):
            frames, lengths, written = heard(32, generator)
            logits = self.out(self.attend(frames, lengths, written).out)
            loss = F.cross_entropy(logits.flatten(0, 1), written.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step >= steps - 20:
                right.append((logits.argmax(-1) == written).float().mean())
        return float(torch.stack(right).mean())


def heard(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Frames "b f", how many are real, and the words "b 8"; no letter stands beside itself."""
    written = (
        torch.randint(4, (count, 1), generator=generator)
        + torch.randint(1, 4, (count, 8), generator=generator).cumsum(1)
    ) % 4
    lasts = torch.randint(2, 5, (count, 8), generator=generator)
    frames = nn.utils.rnn.pad_sequence(
        [w.repeat_interleave(n) for w, n in zip(written, lasts, strict=True)], batch_first=True
    )
    return frames, lasts.sum(1), written


def stretched(make: Callable[[], nn.Module], title: str, steps: int = 400) -> tuple[Stretched, Panel]:
    torch.manual_seed(0)
    model = Stretched(make())
    right = model.fit(steps)
    with torch.no_grad():
        got = model.eval().attend(*one_word())
    assert got.weights is not None
    return model, Panel(got.weights[0], f"{title}: {right:.0%}", *heard_labels())


def one_word() -> tuple[Tensor, Tensor, Tensor]:
    written = torch.tensor([[0, 1, 0, 1, 0, 2, 0, 1]])
    frames = written.repeat_interleave(torch.tensor([2, 4, 3, 2, 4, 2, 3, 3]), dim=1)
    return frames, torch.tensor([frames.shape[1]]), written


def heard_labels() -> tuple[list[str], list[str]]:
    frames, _, written = one_word()
    return ["abcd"[n] for n in written[0]], ["abcd"[n] for n in frames[0]]


def monotonic() -> list[Panel]:
    def layer(chunk: regard.Chunk | None = None) -> regard.Monotonic:
        return regard.Monotonic(regard.NormedAdditive(DIM, DIM, DIM), chunk=chunk, offset=0.0, noise=2.0)

    model, soft = stretched(layer, "monotonic, expected", 600)
    mono, (frames, _, written) = model.attention, one_word()
    assert isinstance(mono, regard.Monotonic)
    with torch.no_grad():
        queries, memory = model.queries(written), mono.remember(model.keys(frames))
        state, rows = mono.start(memory), []
        for t in range(written.shape[1]):
            got, state = mono.decode(queries[:, t : t + 1], memory, state, need=regard.Need(weights=True))
            rows.append(got.weights[0])
    hard = Panel(torch.cat(rows), "the same, decoded", *heard_labels())
    wide = stretched(lambda: layer(regard.Chunk(regard.Additive(DIM, DIM, DIM), width=3)), "mocha, width 3", 600)[1]
    return [soft, hard, wide]


def location_sensitive() -> list[Panel]:
    names = ("additive", "location-sensitive", "location-smooth")
    return [stretched(functools.partial(regard.mechanism, name, DIM), name)[1] for name in names]


class Backwards(nn.Module):
    """Writes a word backwards; a query knows its place and the word's length."""

    def __init__(self, attention: nn.Module, places: int = 12) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(26, DIM), regard.Learned(places, DIM)
        self.ask = nn.Sequential(nn.Embedding(places * (places + 1), DIM), nn.Linear(DIM, DIM), nn.Tanh())
        self.attention, self.out = attention, nn.Linear(DIM, 26)

    def attend(self, letters: Tensor, lengths: Tensor) -> regard.Attended:
        n = letters.shape[1]
        q = self.ask(lengths[:, None] * n + torch.arange(n))
        x = self.letter(letters)
        mask, need = regard.Lengths(lengths), regard.Need(weights=True)
        return self.attention.attend(q, self.place(x), x, mask=mask, need=need)

    def fit(self, steps: int) -> float:
        generator = torch.Generator().manual_seed(3)
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        right = []
        for step in range(steps):
            lengths = torch.randint(4, 13, (64,), generator=generator)
            letters = torch.randint(26, (64, 12), generator=generator)
            real = torch.arange(12) < lengths[:, None]
            target = letters.gather(1, (lengths[:, None] - 1 - torch.arange(12)).clamp_min(0))
            logits = self.out(self.attend(letters, lengths).out)
            loss = F.cross_entropy(logits[real], target[real])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step >= steps - 20:
                right.append((logits.argmax(-1) == target)[real].float().mean())
        return float(torch.stack(right).mean())


@functools.cache
def backwards(name: str, make: Callable[[], nn.Module], steps: int = 500) -> Panel:
    torch.manual_seed(0)
    model = Backwards(make())
    right, word = model.fit(steps), "attention"
    letters = torch.tensor([[ord(c) - 97 for c in word] + [0] * (12 - len(word))])
    with torch.no_grad():
        got = model.eval().attend(letters, torch.tensor([len(word)]))
    assert got.weights is not None
    return Panel(got.weights[0, : len(word), : len(word)], f"{name}: {right:.0%} right", list(word[::-1]), list(word))


def local() -> list[Panel]:
    q = words(*ASKED, *SEEN)
    labels = [w[:2] for w in (*ASKED, *SEEN)]
    layer = regard.Local(regard.Cosine(2.0), regard.Diagonal(2))
    got = layer.attend(q, q, need=regard.Need(weights=True))
    assert got.weights is not None
    predicted = backwards(
        "local-p, D = 6", lambda: regard.Local(regard.Bilinear(DIM, DIM), regard.LocalGaussian(DIM, DIM, 6.0)), 800
    )
    return [Panel(got.weights, "local-m, D = 2", labels, labels), predicted]


def hard() -> list[Panel]:
    q, k = words(*ASKED), words(*SEEN)
    soft = weights(q, k)
    torch.manual_seed(0)
    many = [regard.attention(q, k, torch.eye(len(SEEN)), read=regard.Sample()) for _ in range(200)]
    shown = {"the weights": soft, "one draw": many[0], "the mean of 200 draws": torch.stack(many).mean(0)}
    shown["argmax"] = regard.attention(q, k, torch.eye(len(SEEN)), read=regard.Argmax())
    return [Panel(w, title, ASKED, SEEN) for title, w in shown.items()]


def gumbel() -> list[Panel]:
    q, k, each = words(*ASKED), words(*SEEN), torch.eye(len(SEEN))
    shown = {"the weights": weights(q, k)}
    for temperature in (1.0, 0.2):
        torch.manual_seed(0)
        shown[f"Gumbel, T = {temperature:g}"] = regard.attention(q, k, each, read=regard.Gumbel(temperature))
    shown["straight-through"] = regard.attention(q, k, each, read=regard.StraightThrough())
    return [Panel(w, title, ASKED, SEEN) for title, w in shown.items()]


def key_value() -> list[Panel]:
    torch.manual_seed(0)
    letter, digit = torch.randn(26, DIM), torch.randn(10, DIM)
    pairs = ["k3", "a7", "q1", "m4", "c9", "x2"]
    states = torch.cat(
        [torch.stack([letter[ord(p[0]) - 97] for p in pairs]), torch.stack([digit[int(p[1])] for p in pairs])], -1
    )
    asked = "acmq"
    q = torch.stack([letter[ord(c) - 97] for c in asked])
    layer = regard.KeyValue(regard.Attention(regard.Dot()))
    got = layer.attend(q, states, need=regard.Need(weights=True))
    assert got.weights is not None
    read = [f"{c} is {(got.out[n] @ digit.T).argmax()}" for n, c in enumerate(asked)]
    return [Panel(got.weights, "found by the letter, read as a digit", read, pairs)]


def pooling() -> list[Panel]:
    """One learned query tells lines about classes from lines about numbers; what does it look at?"""
    index, vectors = manual()
    common = {
        "the",
        "a",
        "an",
        "of",
        "to",
        "is",
        "are",
        "and",
        "or",
        "in",
        "it",
        "if",
        "be",
        "as",
        "for",
        "this",
        "that",
    }
    lines: list[tuple[Tensor, int]] = []
    for label, names in enumerate(
        (("class", "customization", "attribute-access"), ("numeric-types", "formatstrings", "numbers"))
    ):
        text = " ".join(topics[name] for name in names).lower()
        found = [[index[w] for w in re.findall("[a-z]+", s) if w in index and w not in common] for s in text.split(".")]
        lines += [(torch.tensor(ids[:12]), label) for ids in found if len(ids) >= 4]
    torch.manual_seed(0)
    pool = regard.Pool(regard.Attention(regard.Additive(DIM, DIM, DIM)), DIM)
    out = nn.Linear(DIM, 2)
    ids = nn.utils.rnn.pad_sequence([one for one, _ in lines], batch_first=True)
    mask = regard.Lengths(torch.tensor([len(one) for one, _ in lines]))
    labels = torch.tensor([label for _, label in lines])
    optimizer = torch.optim.AdamW([*pool.parameters(), *out.parameters()], lr=1e-2)
    for _ in range(30):
        optimizer.zero_grad()
        F.cross_entropy(out(pool(vectors[ids], mask=mask)), labels).backward()
        optimizer.step()
    panels = []
    for text in ("called when an instance is created", "the value of the integer number", "digits of a decimal number"):
        got = pool.attend(words(*text.split()), need=regard.Need(weights=True))
        assert got.weights is not None
        said = ("classes", "numbers")[int(out(got.out).argmax())]
        panels.append(Panel(got.weights.detach().unsqueeze(-1), f"about {said}", text.split(), ["weight"]))
    return panels


CONTEXT = ["the", "list", "is", "a", "mutable", "type", "and", "an", "int", "is", "not"]
QUESTION = ["is", "a", "tuple", "mutable"]


def co_attention() -> list[Panel]:
    q, k = words(*CONTEXT), words(*QUESTION)
    got = regard.CoAttention(regard.Cosine(8.0)).attend(q, k, need=regard.Need(weights=True))
    assert got.of_q.weights is not None
    assert got.of_k.weights is not None
    return [
        Panel(got.of_q.weights, "normalize(S): the text asks", CONTEXT, QUESTION),
        Panel(got.of_k.weights.T, "normalize(Sᵀ)ᵀ: the question asks", CONTEXT, QUESTION),
    ]


@torch.no_grad()
def bidaf() -> list[Panel]:
    q, k = (F.normalize(words(*text), dim=-1) for text in (CONTEXT, QUESTION))
    layer = regard.AttentionFlow(DIM)
    for part, value in ((layer.score.query, 0.0), (layer.score.key, 0.0), (layer.score.both, 8.0)):
        part.fill_(value)
    flow = layer.flow(q, k)
    return [
        Panel(flow.weights, "the text over the question", CONTEXT, QUESTION),
        Panel(flow.back.unsqueeze(-1), "the question over the text", CONTEXT, ["weight"]),
    ]


def memory_hop() -> list[Panel]:
    torch.manual_seed(0)
    names = "abcdef"
    vectors = F.normalize(torch.randn(6, DIM), dim=-1) * 3
    facts = ["c→e", "a→c", "f→b", "e→f", "b→d"]
    k, v = (torch.stack([vectors[names.index(f[side])] for f in facts]) for side in (0, 2))
    forget = nn.Linear(DIM, DIM, bias=False)
    nn.init.zeros_(forget.weight)
    hop, u, rows = regard.Hop(carry=forget), vectors[:1], []
    with torch.no_grad():
        for _ in range(4):
            got = hop.attend(u, k, v, need=regard.Need(weights=True))
            rows.append(got.weights)
            u = got.out
    return [Panel(torch.cat(rows), "from a, four hops", ["hop 1", "hop 2", "hop 3", "hop 4"], facts)]


def multi_head() -> list[Panel]:
    torch.manual_seed(0)
    model = Neighbours(regard.MultiHead(DIM, 4), both=True)
    model.fit(1000)
    return [Panel(w, f"head {n}", list(LETTERS), list(LETTERS)) for n, w in enumerate(model.look())]


def rotary() -> list[Panel]:
    same = torch.ones(24, DIM) * 0.5
    panels = []
    for title, base, start in (("base 10000", 1e4, 0), ("base 100", 1e2, 0), ("base 100, 1000 places on", 1e2, 1000)):
        x = regard.Rotary(DIM, base=base)(same, start=start)
        w = weights(x, x, score=regard.Dot(scale=1.0))
        panels.append(Panel(w / w.amax(-1, keepdim=True), title))
    return panels


@torch.no_grad()
def biased(bias: regard.Bias, heads: int, titles: Sequence[str], q: float = 0.0, **terms: object) -> list[Panel]:
    """What a bias alone makes of equal keys; every row is divided by its greatest weight, to be seen."""
    torch.manual_seed(0)
    x = torch.randn(heads, 24, DIM) * q
    w = weights(x, torch.zeros(heads, 24, DIM), bias=bias, **terms)
    return [Panel(w[h] / w[h].amax(-1, keepdim=True), title) for h, title in enumerate(titles)]


@torch.no_grad()
def t5() -> list[Panel]:
    ahead = torch.arange(64) - torch.arange(64)[:, None]
    both = regard.T5Buckets(1)
    back = regard.T5Buckets(1, bidirectional=False)
    return [
        Panel(both.bucket(ahead) / 31, "bucket / 31, both sides"),
        Panel(back.bucket(ahead) / 31, "bucket / 31, looking back"),
    ]


@torch.no_grad()
def transformer_xl() -> list[Panel]:
    torch.manual_seed(1)
    bias = regard.RelativeXL(2 * DIM, 2, DIM)
    bias.v.mul_(200)
    return biased(bias, 2, ["head 0", "head 1"]) + biased(bias, 2, ["head 0, causal"], mask=regard.Causal())


def masks() -> list[Panel]:
    ids = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2])
    shown = {
        "Causal()": regard.Causal(),
        "Lengths([8])": regard.Lengths(torch.tensor([8])),
        "Documents(ids)": regard.Documents(ids),
        "Documents(ids) & Causal()": regard.Documents(ids) & regard.Causal(),
    }
    return [Panel(allowed(mask), title) for title, mask in shown.items()]


def window() -> list[Panel]:
    shown = {
        "Window(3, 3)": regard.Window(3, 3),
        "Window(3, 0)": regard.Window(3, 0),
        "Window(2, 0), two sinks": (regard.Window(2, 0) | regard.Lengths(torch.tensor([2]))) & regard.Causal(),
        "Window(2, 2) & Causal()": regard.Window(2, 2) & regard.Causal(),
    }
    return [Panel(allowed(mask), title) for title, mask in shown.items()]


# of a picture
COLOURS = 64

PICTURES: dict[str, Callable[[], list[Panel]]] = {
    "dot": lambda: about({"q·k": {"score": regard.Dot(scale=1.0)}, "q·k / √d": {}}),
    "general": lambda: [neighbour("scaled-dot"), neighbour("general")],
    "additive": lambda: [neighbour("scaled-dot"), neighbour("additive"), neighbour("concat")],
    "cosine": lambda: about(
        {"q·k / √d": {}, "cosine · 3": {"score": regard.Cosine(3.0)}, "cosine · 10": {"score": regard.Cosine(10.0)}}
    ),
    "distance": lambda: about(
        {
            "q·k / √d": {},
            "−‖q − k‖² / 2√d": {"score": regard.Distance(scale=0.5 * DIM**-0.5)},
            "−‖q − k‖": {"score": regard.Distance(power=1)},
        }
    ),
    "trilinear": lambda: [neighbour("general"), neighbour("trilinear")],
    "location": lambda: [backwards("location", lambda: regard.Attention(regard.Location(DIM, 12)))],
    "location-sensitive": location_sensitive,
    "local": local,
    "linear": lambda: about(
        {
            "softmax": {},
            "elu": {"score": regard.Kernel("elu"), "normalize": regard.Sum()},
            "taylor": {"score": regard.Kernel("taylor"), "normalize": regard.Sum()},
        }
    ),
    "temperature": lambda: about({f"T = {t:g}": {"normalize": regard.Softmax(t)} for t in (3.0, 1.0, 0.3)}),
    "sparsemax": lambda: normalizers(softmax=regard.Softmax(), sparsemax=regard.Sparsemax()),
    "entmax": lambda: about(
        {"α = 1 (softmax)": {}}
        | {f"α = {a:g}": {"normalize": regard.Entmax(a)} for a in (1.25, 1.5)}
        | {"α = 2 (sparsemax)": {"normalize": regard.Entmax(2.0)}}
    ),
    "sigmoid": lambda: about(
        {
            "softmax": {},
            "σ(s)": {"normalize": regard.Sigmoid()},
            "σ(s − log k)": {"normalize": regard.Sigmoid(-torch.tensor(len(SEEN)).log().item())},
        }
    ),
    "topk": lambda: about({"softmax": {}} | {f"TopK({k})": {"normalize": regard.TopK(k)} for k in (3, 1)}),
    "null": lambda: about(
        {"softmax": {"score": regard.Cosine(4.0)}}
        | {f"null score {n:g}": {"score": regard.Cosine(4.0), "normalize": regard.Null(score=n)} for n in (1.0, 3.0)}
    ),
    "hard": hard,
    "gumbel": gumbel,
    "monotonic": monotonic,
    "key-value": key_value,
    "pooling": pooling,
    "co-attention": co_attention,
    "bidaf": bidaf,
    "memory-hop": memory_hop,
    "multi-head": multi_head,
    "rotary": rotary,
    "alibi": lambda: biased(regard.ALiBi(4), 4, [f"head {h}: slope 2^-{2 * h + 2}" for h in range(4)]),
    "t5": t5,
    "shaw": lambda: (
        biased(regard.Shaw(DIM, 4), 1, ["clip 4"], q=6.0) + biased(regard.Shaw(DIM, 12), 1, ["clip 12"], q=6.0)
    ),
    "transformer-xl": transformer_xl,
    "window": window,
    "masks": masks,
}


if __name__ == "__main__":
    drawing.main(PICTURES, "Draws the pictures of docs/mechanisms.", colours=COLOURS)
