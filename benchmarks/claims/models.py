"""Models that read a string and answer its question: those of the package, and plain references beside them."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.claims.strings import CLASSES, VOCABULARY
from regard import Attention
from regard.models import GPT2, RecurrentLanguageModel
from regard.models.language_model import LanguageModel


class Convolutional(nn.Module):
    """x += GLU(conv(x)) over a token and those before it  (Dauphin et al. 2017): a layer adds kernel − 1 tokens.

    Initial weights are torch's: those of the package's GatedConvolution keep the variance of states, and so learn less
    of these strings in as many steps.
    """

    def __init__(self, vocabulary: int, width: int, layers: int, kernel: int = 3) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, 2 * width, kernel) for _ in range(layers))
        self.kernel = kernel

    def forward(self, tokens: Tensor) -> Tensor:  # "b t" -> "b t d"
        x = self.embedding(tokens).mT
        for convolution in self.convolutions:
            before = nn.functional.pad(x, (self.kernel - 1, 0))
            x = x + nn.functional.glu(convolution(before), dim=1)
        return x.mT


class States(nn.Module):
    """The states of one of the package's language models."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.model = model

    @property
    def embedding(self) -> nn.Embedding:
        return self.model.embedding  # type: ignore[return-value]

    def forward(self, tokens: Tensor) -> Tensor:  # "b t" -> "b t d"
        return self.model.hidden_states(tokens).states


def gpt2(vocabulary: int, width: int, *, layers: int = 2, positions: str = "rotary", longest: int = 256) -> GPT2:
    heads = 4 if width % 8 == 0 else 2
    return GPT2(vocabulary, width=width, layers=layers, heads=heads, longest=longest, positions=positions, dropout=0.0)


def recurrent(vocabulary: int, width: int, cell: str, attention: str | None) -> RecurrentLanguageModel:
    """A recurrent network of this width; None attends to all states before by the additive score, "none" does not."""
    hidden = width if attention == "none" else 3 * (width // 3)
    sizes = {"width": width, "hidden": hidden, "cell": cell, "attention": attention, "dropout": 0.0}
    return RecurrentLanguageModel(vocabulary, memory=512, **sizes)  # type: ignore[arg-type]


# models that turn tokens into states, of the vocabulary and the width
ENCODERS: dict[str, Callable[[int, int], nn.Module]] = {
    "RNN": lambda vocabulary, width: States(recurrent(vocabulary, width, "rnn", "none")),
    "GRU": lambda vocabulary, width: States(recurrent(vocabulary, width, "gru", "none")),
    "LSTM": lambda vocabulary, width: States(recurrent(vocabulary, width, "lstm", "none")),
    "2 convolutions": lambda vocabulary, width: Convolutional(vocabulary, width, 2),
    "4 convolutions": lambda vocabulary, width: Convolutional(vocabulary, width, 4),
    "8 convolutions": lambda vocabulary, width: Convolutional(vocabulary, width, 8),
    "self-attention": lambda vocabulary, width: States(gpt2(vocabulary, width)),
    "GRU with attention": lambda vocabulary, width: States(recurrent(vocabulary, width, "gru", None)),
}


class Reader(nn.Module):
    """The answer, of the state of the last token."""

    def __init__(self, encoder: nn.Module, width: int, classes: int = CLASSES) -> None:
        super().__init__()
        self.encoder = encoder
        self.output = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:  # "b t" -> "b k"
        return self.output(self.encoder(tokens)[:, -1])


def reader(name: str, width: int) -> Reader:
    """One of ENCODERS with an answer."""
    return Reader(ENCODERS[name](VOCABULARY, width), width)


class Lookup(nn.Module):
    """The last token attends once to all before it; every token also knows the token before it.

    So the key of the question can find the value behind the same key, in one step, by content alone.
    """

    def __init__(self, width: int, attention: Attention) -> None:
        super().__init__()
        self.token, self.previous = nn.Embedding(VOCABULARY, width), nn.Embedding(VOCABULARY, width)
        self.query, self.key, self.value = (nn.Linear(width, width, bias=False) for _ in range(3))
        for linear in (self.query, self.key, self.value):
            nn.init.normal_(linear.weight, std=width**-0.5)
        self.attention = attention
        self.output = nn.Linear(width, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:  # "b t" -> "b k"
        return self.output(self.attention(*self.projected(tokens)).squeeze(1))

    def projected(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries "b 1 d", keys and values "b t−1 d", whose numbers have a variance of about one."""
        past = tokens[:, :-1]
        before = torch.cat([past[:, :1], past[:, :-1]], 1)
        states = (self.token(past) + self.previous(before)) / 2**0.5
        return self.query(self.token(tokens[:, -1:])), self.key(states), self.value(states)
