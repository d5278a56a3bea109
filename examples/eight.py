"""Eight attentions learn to read a word backwards; the picture shows where each looks.

The task: given a word, write its letters in reverse order. Each output position asks the input with a query that knows
only its own position, so whatever is written right was looked at in the right place. One layer, one attention, half a
minute in all.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.viz import Panel, figure

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LONGEST = 12
DIM = 48


def words(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Random words "b n", their lengths "b", and the words reversed."""
    lengths = torch.randint(4, LONGEST + 1, (count,), generator=generator)
    letters = torch.randint(len(LETTERS), (count, LONGEST), generator=generator)
    places = torch.arange(LONGEST)
    back = (lengths[:, None] - 1 - places).clamp_min(0)
    return letters, lengths, letters.gather(1, back)


class Reverser(nn.Module):
    """letter_t = W attention(position_t and the length, letters with positions)."""

    def __init__(self, attention: regard.Attention) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), DIM)
        self.places = regard.positions.LearnedPositions(LONGEST, DIM)
        self.length = nn.Embedding(LONGEST + 1, DIM)
        self.query = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.ReLU(), nn.Linear(2 * DIM, DIM))
        self.attention = attention
        self.out = nn.Linear(DIM, len(LETTERS))

    def forward(self, letters: Tensor, lengths: Tensor, need: regard.Need) -> tuple[Tensor, regard.Attended]:
        values = self.letters(letters)
        asked = self.length(lengths).unsqueeze(1).expand(-1, LONGEST, -1)
        queries = self.query(self.places(asked))
        got = self.attention.attend(queries, self.places(values), values, mask=regard.Lengths(lengths), need=need)
        return self.out(got.out), got


ATTENTIONS: dict[str, Callable[[], regard.Attention]] = {
    "scaled dot": lambda: regard.Attention(regard.Dot()),
    "additive (Bahdanau)": lambda: regard.Attention(regard.Additive(DIM, DIM, DIM)),
    "general (Luong)": lambda: regard.Attention(regard.Bilinear(DIM, DIM)),
    "cosine": lambda: regard.Attention(regard.Cosine(regard.Learnable(10.0))),
    "sparsemax": lambda: regard.Attention(regard.Additive(DIM, DIM, DIM), normalize=regard.Sparsemax()),
    "entmax 1.5": lambda: regard.Attention(regard.Dot(), normalize=regard.Entmax(1.5)),
    "Gumbel": lambda: regard.Attention(regard.Dot(), read=regard.Gumbel()),
    "hard (REINFORCE)": lambda: regard.Attention(regard.Dot(), read=regard.Sample()),
}


def train(model: Reverser, steps: int, seed: int = 0) -> float:
    """Trains on fresh words; the share of letters that are right on words never seen."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    hard = isinstance(model.attention.read, regard.Sample)
    need = regard.Need(log_prob=hard, entropy=hard)
    baseline = regard.losses.Baseline()
    for step in range(steps):
        letters, lengths, target = words(128, generator)
        real = torch.arange(LONGEST) < lengths[:, None]
        logits, got = model(letters, lengths, need)
        each = F.cross_entropy(logits.transpose(1, 2), target, reduction="none")
        loss = each[real].mean()
        if got.log_prob is not None and got.entropy is not None:
            reward = -each.detach()[real]
            loss = loss + regard.losses.reinforce(
                got.log_prob[real],
                reward,
                baseline,
                entropy=got.entropy[real],
                entropy_weight=0.3 * (1 - step / steps),
            )
            baseline = baseline.updated(reward)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    letters, lengths, target = words(500, torch.Generator().manual_seed(seed + 1))
    real = torch.arange(LONGEST) < lengths[:, None]
    with torch.no_grad():
        logits, _ = model.eval()(letters, lengths, regard.Need())
    return float((logits.argmax(-1) == target)[real].float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=250, help="training steps for each attention (default: 250)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("demo-output/reverse.png"),
        help="the picture: .png, .svg or .pdf; its folder is made",
    )
    options = parser.parse_args()
    if options.out.suffix not in (".png", ".svg", ".pdf"):
        parser.error(f"--out must end in .png, .svg or .pdf, got {str(options.out)!r}")
    if options.steps < 1:
        parser.error(f"--steps must be 1 or more, got {options.steps}")
    torch.set_num_threads(1)  # a model this small waits longer for a second thread than it gains
    options.out.parent.mkdir(parents=True, exist_ok=True)
    word = "attention"
    letters = torch.tensor([[LETTERS.index(c) for c in word] + [0] * (LONGEST - len(word))])
    lengths = torch.tensor([len(word)])
    print(f"Reading words backwards with {len(ATTENTIONS)} attentions, {options.steps} steps each.\n")
    panels = []
    for name, make in ATTENTIONS.items():
        torch.manual_seed(0)
        model = Reverser(make())
        started = time.perf_counter()
        # a draw tells the gradient less than a mixture: hard attention gets more steps
        right = train(model, options.steps * (4 if isinstance(model.attention.read, regard.Sample) else 1))
        logits, got = model(letters, lengths, regard.Need(weights=True))
        written = "".join(LETTERS[n] for n in logits[0, : len(word)].argmax(-1).tolist())
        print(
            f"{name:20} {right:6.1%} of letters right   {word} -> {written}   {time.perf_counter() - started:4.1f} s",
            flush=True,
        )
        panels.append(
            Panel(got.weights[0, : len(word), : len(word)], f"{name}: {right:.0%}", list(written), list(word))
        )
    queries, keys = torch.randn(1, LONGEST, DIM), torch.randn(1, LONGEST, DIM)
    print("\nHow the additive one is computed:")
    print(ATTENTIONS["additive (Bahdanau)"]().explain(queries, keys))
    print(f"\nThe picture: {figure(panels, options.out)}")


if __name__ == "__main__":
    sys.exit(main())
