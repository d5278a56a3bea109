"""Small predictors of texts to attack: bags of words with random weights, and texts that they get right."""

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor, nn

from regard.attacks import HotFlip
from regard.attacks.attack import attack
from regard.attacks.text.base import TextAttackResult
from regard.attacks.text.victim import TextVictim
from regard.common.word_splitting import split_words
from regard.inference.edited_text import EditedText
from regard.inference.token_places import TokenPlace, VocabularyTexts
from regard.inference.token_predictor import TextScores, class_numbers, margin_scores

PAD, UNK = 0, 1
CLASSES = ["x", "y", "z"]


class Bag(nn.Module):
    """W f(Σ_i (1 + i/10) E[x_i]), f the identity or tanh: linear, or not; PAD counts nothing."""

    def __init__(self, size: int, is_linear: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, 5)
        self.dropout = nn.Dropout(0.5)
        self.output = nn.Linear(5, len(CLASSES))
        self.is_linear = is_linear

    def forward(self, tokens: Tensor) -> Tensor:  # "b t" -> "b k"
        places = 1 + torch.arange(tokens.shape[1]) / 10
        inside = (tokens != PAD).to(self.output.weight) * places
        total = self.dropout(self.embedding(tokens) * inside[..., None]).sum(1)
        return self.output(total if self.is_linear else torch.tanh(total))


class BagPredictor:
    """Words of a vocabulary, split at punctuation; the shorter texts of a batch are padded."""

    def __init__(self, words: str = "a b c d e f g", is_linear: bool = False, seed: int = 0) -> None:
        self.words = words.split()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = Bag(2 + len(self.words), is_linear).double()
        self.model.train()
        self.device = torch.device("cpu")
        self.batches: list[int] = []
        self.longest = 99

    @property
    def embedding(self) -> nn.Module | None:
        return self.model.embedding

    def token_texts(self) -> VocabularyTexts:
        return VocabularyTexts((None, None, *self.words), (False,) * (2 + len(self.words)))

    def token_places(self, text: str) -> list[TokenPlace]:
        rows = zip(*split_words(text), strict=True)
        return [TokenPlace(*span, 2 + self.words.index(w) if w in self.words else UNK) for w, span in rows]

    def can_read(self, text: str) -> bool:
        return len(text.split()) <= self.longest

    def attack_targets(self, texts: Sequence[str], targets: Sequence[str] | None) -> list[int]:
        return self.logits(texts).argmax(1).tolist() if targets is None else class_numbers(targets, CLASSES)

    def target_group(self, target: int) -> int:
        return target

    def attack_scores(self, texts: Sequence[EditedText], targets: Sequence[int]) -> TextScores:
        return margin_scores(self.logits([each.text for each in texts]), targets)

    def logits(self, texts: Sequence[str]) -> Tensor:
        self.batches.append(len(texts))
        ids = [[place.token for place in self.token_places(text)] for text in texts]
        longest = max(map(len, ids))
        return self.model(torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in ids]))


TEXTS = ["a b c", "d d", "g f e d", "b", "c a f", "e e a", "f b", "g g c a", "a a a a a", "e e e e e"]


def exhaustive(predictor: BagPredictor, text: str, flips: int) -> bool:
    """Whether any text of the same length with at most this many other words has another class."""
    words = text.split()
    (label,) = predictor.attack_targets([text], None)
    others = [
        " ".join(new)
        for new in product(predictor.words, repeat=len(words))
        if sum(a != b for a, b in zip(words, new, strict=True)) <= flips
    ]
    return bool((predictor.logits(others).argmax(1) != label).any())


def flipped(predictor: BagPredictor, texts: Sequence[str] = TEXTS, **options: object) -> TextAttackResult:
    return attack(predictor, texts, None, HotFlip(**options))  # type: ignore[arg-type]


def victim(predictor: BagPredictor) -> TextVictim:
    return TextVictim(predictor, 256)
