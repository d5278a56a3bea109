"""Pictures of letters: small models that learn in seconds to find them, to transcribe them and to reverse them."""

import functools
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from draw_words import DIM, KEYS, QUERIES, words
from torch import Tensor, nn

import regard
from regard.viz import Panel

LETTERS = "abcdefghijkl"


def train(model: nn.Module, lr: float, steps: int, batch: Callable[[], tuple[Tensor, Sequence[Tensor]]]) -> float:
    """Trains on fresh batches, each a loss and accuracies; returns the mean accuracy of the last 20 steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    right: list[Tensor] = []
    for step in range(steps):
        loss, shares = batch()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= steps - 20:
            right += shares
    return float(torch.stack(right).mean())


class Neighbours(nn.Module):
    """Finds the digit beside the next letter of the ring (abc, def, …), and, if `both`, beside the previous one.

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
        """Trains on fresh rows; returns the share of correct digits."""
        generator = torch.Generator().manual_seed(1)

        def batch() -> tuple[Tensor, list[Tensor]]:
            letters = torch.stack([torch.randperm(len(LETTERS), generator=generator) for _ in range(32)])
            digits = torch.randint(10, letters.shape, generator=generator)
            at = letters.argsort(-1)  # the position of every letter
            ring, place = letters // 3 * 3, letters % 3
            sides = (1, 2) if self.both else (1,)
            targets = [digits.gather(1, at.gather(1, ring + (place + side) % 3)) for side in sides]
            logits = self.out(self.attend(letters, digits).out).chunk(len(targets), -1)
            each = list(zip(logits, targets, strict=True))
            loss = torch.stack([F.cross_entropy(x.flatten(0, 1), t.flatten()) for x, t in each]).sum()
            return loss, [(x.argmax(-1) == t).float().mean() for x, t in each]

        return train(self, 5e-3, steps, batch)

    @torch.no_grad()
    def weights(self) -> Tensor:
        letters = torch.arange(len(LETTERS)).unsqueeze(0)
        got = self.eval().attend(letters, torch.zeros_like(letters))
        assert got.weights is not None
        return got.weights[0]


@functools.cache
def neighbour(name: str) -> Panel:
    """The weights of a score that was trained to find the next letter."""
    torch.manual_seed(0)
    model = Neighbours(regard.mechanism(name, DIM))
    right = model.fit()
    return Panel(model.weights(), f"{name}: {right:.0%} right", list(LETTERS), list(LETTERS))


def multi_head() -> list[Panel]:
    torch.manual_seed(0)
    model = Neighbours(regard.MultiHead(DIM, 4), both=True)
    model.fit(1000)
    return [Panel(w, f"head {n}", list(LETTERS), list(LETTERS)) for n, w in enumerate(model.weights())]


class Stretched(nn.Module):
    """Transcribes a word from frames, two to four per letter, without positions."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.letter = nn.Embedding(4, DIM)
        self.encoder = nn.Conv1d(DIM, DIM, 3, padding=1)
        self.decoder = nn.GRU(DIM, DIM, batch_first=True)
        self.attention = attention
        self.out = nn.Linear(DIM, 4)

    def keys(self, frames: Tensor) -> Tensor:  # "b f" -> "b f d"
        return torch.tanh(self.encoder(self.letter(frames).transpose(1, 2))).transpose(1, 2)

    def queries(self, written: Tensor) -> Tensor:  # "b n" -> "b n d", from the letters before each
        return self.decoder(F.pad(self.letter(written)[:, :-1], (0, 0, 1, 0)))[0]

    def attend(self, frames: Tensor, lengths: Tensor, written: Tensor) -> regard.Attended:
        mask, need = regard.Lengths(lengths), regard.Need(weights=True)
        return self.attention.attend(self.queries(written), self.keys(frames), mask=mask, need=need)

    def fit(self, steps: int) -> float:
        generator = torch.Generator().manual_seed(2)

        def batch() -> tuple[Tensor, list[Tensor]]:
            frames, lengths, written = sample_frames(32, generator)
            logits = self.out(self.attend(frames, lengths, written).out)
            loss = F.cross_entropy(logits.flatten(0, 1), written.flatten())
            return loss, [(logits.argmax(-1) == written).float().mean()]

        return train(self, 1e-2, steps, batch)


def sample_frames(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Frames "b f", their lengths, and the words "b 8"; neighbouring letters differ."""
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
    return model, alignment_panel(model, f"{title}: {right:.0%}")


@torch.no_grad()
def alignment_panel(model: Stretched, title: str) -> Panel:
    """The weights over the frames of one word."""
    got = model.eval().attend(*one_word())
    assert got.weights is not None
    return Panel(got.weights[0], title, *frame_labels())


def one_word() -> tuple[Tensor, Tensor, Tensor]:
    written = torch.tensor([[0, 1, 0, 1, 0, 2, 0, 1]])
    frames = written.repeat_interleave(torch.tensor([2, 4, 3, 2, 4, 2, 3, 3]), dim=1)
    return frames, torch.tensor([frames.shape[1]]), written


def frame_labels() -> tuple[list[str], list[str]]:
    frames, _, written = one_word()
    return ["abcd"[n] for n in written[0]], ["abcd"[n] for n in frames[0]]


def monotonic() -> list[Panel]:
    def layer(chunk: regard.layers.ChunkwiseSoftmax | None = None) -> regard.layers.Monotonic:
        score = regard.scores.NormedAdditive(DIM, DIM, DIM)
        return regard.layers.Monotonic(score, chunk=chunk, offset=0.0, noise=2.0, stop=regard.layers.ExpectedStop())

    model, soft = stretched(layer, "monotonic, expected", 600)
    assert isinstance(model.attention, regard.layers.Monotonic)
    model.attention.stop = regard.layers.FirstStop()
    hard = alignment_panel(model, "the same, decoded")
    wide = stretched(
        lambda: layer(regard.layers.ChunkwiseSoftmax(regard.Additive(DIM, DIM, DIM), width=3)), "mocha, width 3", 600
    )[1]
    return [soft, hard, wide]


def location_sensitive() -> list[Panel]:
    names = ("additive", "location-sensitive", "location-smooth")
    return [stretched(functools.partial(regard.mechanism, name, DIM), name)[1] for name in names]


class Backwards(nn.Module):
    """Writes a word backwards; a query encodes its position and the length of the word."""

    def __init__(self, attention: nn.Module, places: int = 12) -> None:
        super().__init__()
        self.letter, self.place = nn.Embedding(26, DIM), regard.positions.LearnedPositions(places, DIM)
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

        def batch() -> tuple[Tensor, list[Tensor]]:
            lengths = torch.randint(4, 13, (64,), generator=generator)
            letters = torch.randint(26, (64, 12), generator=generator)
            real = torch.arange(12) < lengths[:, None]
            target = letters.gather(1, (lengths[:, None] - 1 - torch.arange(12)).clamp_min(0))
            logits = self.out(self.attend(letters, lengths).out)
            loss = F.cross_entropy(logits[real], target[real])
            return loss, [(logits.argmax(-1) == target)[real].float().mean()]

        return train(self, 1e-2, steps, batch)


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
    q = words(*QUERIES, *KEYS)
    labels = [w[:2] for w in (*QUERIES, *KEYS)]
    layer = regard.layers.Local(regard.Cosine(2.0), regard.layers.Diagonal(2))
    got = layer.attend(q, q, need=regard.Need(weights=True))
    assert got.weights is not None
    predicted = backwards(
        "local-p, D = 6",
        lambda: regard.layers.Local(regard.Bilinear(DIM, DIM), regard.biases.LocalGaussian(DIM, DIM, 6.0)),
        800,
    )
    return [Panel(got.weights, "local-m, D = 2", labels, labels), predicted]


def key_value() -> list[Panel]:
    torch.manual_seed(0)
    letter, digit = torch.randn(26, DIM), torch.randn(10, DIM)
    pairs = ["k3", "a7", "q1", "m4", "c9", "x2"]
    states = torch.cat(
        [torch.stack([letter[ord(p[0]) - 97] for p in pairs]), torch.stack([digit[int(p[1])] for p in pairs])], -1
    )
    queried = "acmq"
    q = torch.stack([letter[ord(c) - 97] for c in queried])
    layer = regard.layers.KeyValue(regard.Attention(regard.Dot()))
    got = layer.attend(q, states, need=regard.Need(weights=True))
    assert got.weights is not None
    read = [f"{c} is {(got.out[n] @ digit.T).argmax()}" for n, c in enumerate(queried)]
    return [Panel(got.weights, "found by the letter, read as a digit", read, pairs)]


def memory_hop() -> list[Panel]:
    torch.manual_seed(0)
    names = "abcdef"
    vectors = F.normalize(torch.randn(6, DIM), dim=-1) * 3
    facts = ["c→e", "a→c", "f→b", "e→f", "b→d"]
    k, v = (torch.stack([vectors[names.index(f[side])] for f in facts]) for side in (0, 2))
    forget = nn.Linear(DIM, DIM, bias=False)
    nn.init.zeros_(forget.weight)
    hop, u, rows = regard.layers.MemoryHop(carry=forget), vectors[:1], []
    with torch.no_grad():
        for _ in range(4):
            got = hop.attend(u, k, v, need=regard.Need(weights=True))
            rows.append(got.weights)
            u = got.out
    return [Panel(torch.cat(rows), "from a, four hops", ["hop 1", "hop 2", "hop 3", "hop 4"], facts)]
