"""A text as a stream of characters, for small language models: the Python manual, or a file."""

import gzip
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.claims.claim import Settings
from benchmarks.claims.training import minimise
from regard.data.embedded import manual
from regard.data.text.running_text import hold_out_end
from regard.models.language_model import LanguageModel

# of the text, at its end
_TEST_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Characters:
    """The characters to train on and those to test on."""

    train: Tensor  # "n"
    test: Tensor  # "m"
    vocabulary: int

    @staticmethod
    def read() -> "Characters":
        """Those of the Python manual."""
        return Characters._of(*map("".join, hold_out_end(manual.documents(), _TEST_SHARE)))

    @staticmethod
    def of_file(path: str) -> "Characters":
        """Those of a file packed by gzip."""
        if not Path(path).exists():
            raise SystemExit(f"there is no {path}; put the text that the claim names into this folder")
        text = gzip.decompress(Path(path).read_bytes()).decode("utf-8")
        end = round(len(text) * (1 - _TEST_SHARE))
        return Characters._of(text[:end], text[end:])

    @staticmethod
    def _of(train: str, test: str) -> "Characters":
        numbers = {character: n for n, character in enumerate(sorted(set(train + test)))}
        streams = (torch.tensor([numbers[character] for character in part]) for part in (train, test))
        return Characters(*streams, len(numbers))

    def fit(self, model: LanguageModel, segment: int, settings: Settings, seed: int) -> None:
        """Trains the model on random segments."""
        offsets = torch.arange(segment + 1)

        def loss(starts: Tensor) -> Tensor:
            tokens = self.train[starts.unsqueeze(-1) + offsets]
            states = model.hidden_states(tokens[:, :-1]).states
            return model.token_loss(states.flatten(0, 1), tokens[:, 1:].flatten())[0] / tokens[:, 1:].numel()

        sizes = {name: settings[name] for name in ("steps", "batch", "lr")}
        minimise(model, loss, examples=len(self.train) - segment, seed=seed, **sizes)

    def test_windows(self, length: int, count: int) -> Tensor:  # -> "n length+1"
        """Windows of the held-out text that all end at the same characters, whatever their length."""
        ends = torch.linspace(len(self.test) // 2, len(self.test) - 1, count).long()
        return self.test[ends.unsqueeze(-1) - torch.arange(length, -1, -1)]


@torch.no_grad()
def last_loss(model: LanguageModel, windows: Tensor, scored: int) -> float:  # "n t+1"
    """The mean −log p of the last `scored` tokens of every window."""
    total, count = 0.0, 0
    for part in windows.split(25):
        states = model.hidden_states(part[:, :-1]).states[:, -scored:]
        _, nll = model.token_loss(states.flatten(0, 1), part[:, -scored:].flatten())
        total, count = total + float(nll.sum()), count + len(nll)
    return total / count
