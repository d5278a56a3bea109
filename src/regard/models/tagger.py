"""Taggers: words and their characters to the scores of tags, by recurrence, self-attention or a window."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.catalogue import MECHANISMS, width
from regard.attn.mechanisms.bidaf import AttentionFlow
from regard.attn.mechanisms.coattention import DynamicCoAttention
from regard.attn.terms.mask import Mask
from regard.attn.terms.read import Argmax, Sample
from regard.attn.terms.sequence_masks import Lengths
from regard.common import checks
from regard.common.tag_schemes import TagScheme
from regard.data.text.words import WordInputs
from regard.kernels.crf import Potentials
from regard.layers.character_convolution import CharacterConvolution
from regard.layers.crf import CRF
from regard.layers.dropout import Dropout
from regard.layers.lengths import inside_lengths
from regard.layers.position_choices import PositionChoice
from regard.layers.rnn.encoder import Encoder
from regard.layers.text_pooling import pool_texts
from regard.layers.transformer import EncoderLayer


class TaggerSizes(NamedTuple):
    """The numbers that data decides."""

    words: int
    characters: int
    tags: int
    intents: int = 0  # classes of whole sentences; 0: none


class TaggerOutput(NamedTuple):
    """The scores of tags, and of intents if the model has them."""

    emissions: Tensor  # "b t k"
    intents: Tensor | None  # "b i"


class Tagger(nn.Module, ABC):
    """e_t = W h_t + b, h_t the state of word t; p(y | e) by a CRF, or by a softmax per word.

    `output` "crf" adds transitions between tags, with the constraints of `scheme` if there is one (Lample et al. 2016),
    and "softmax" leaves tags independent. Intents are read from the maximum of the states over the words.
    """

    attends: ClassVar[bool] = True

    def __init__(self, sizes: TaggerSizes, *, output: str, scheme: TagScheme | None, dropout: float) -> None:
        super().__init__()
        checks.known("output", output, ("crf", "softmax"))
        self.crf = CRF(sizes.tags, scheme) if output == "crf" else None
        self.sizes = sizes
        self.dropout = Dropout(dropout)

    def _finish(self, dim: int) -> None:
        """The layers above states of this width."""
        self.emission = nn.Linear(dim, self.sizes.tags)
        self.intent = nn.Linear(dim, self.sizes.intents) if self.sizes.intents else None

    @property
    @abstractmethod
    def embedding(self) -> nn.Embedding:
        """The vectors of the words or sub-words that the model reads."""

    @abstractmethod
    def forward(self, inputs: Any) -> TaggerOutput: ...

    def score(self, states: Tensor, lengths: Tensor) -> TaggerOutput:  # "b t d", "b"
        """The scores of tags and intents from the states of the words."""
        states = self.dropout(states)
        intents = None
        if self.intent is not None:
            intents = self.intent(pool_texts(states, lengths, "max"))
        return TaggerOutput(self.emission(states), intents)

    def potentials(self, emissions: Tensor) -> Potentials:
        """The scores of pairs, starts and ends of tags: zeros without a CRF, which makes the tags independent."""
        if self.crf is not None:
            return self.crf.potentials(emissions)
        zeros = emissions.new_zeros(self.sizes.tags, self.sizes.tags)
        return Potentials(zeros, zeros[0], zeros[0])


class WordTagger(Tagger):
    """A tagger with h = states([word; characters]): a vector per word, and a convolution over its characters."""

    def __init__(
        self,
        sizes: TaggerSizes,
        *,
        embedding: int,
        characters: int,
        output: str,
        scheme: TagScheme | None,
        dropout: float,
    ) -> None:
        super().__init__(sizes, output=output, scheme=scheme, dropout=dropout)
        self.words = nn.Embedding(sizes.words, embedding, padding_idx=0)
        self.characters = CharacterConvolution(sizes.characters, filters=characters)
        self.in_features = embedding + characters

    @property
    def embedding(self) -> nn.Embedding:
        return self.words

    @abstractmethod
    def states(self, x: Tensor, lengths: Tensor) -> Tensor:  # "b t d", "b" -> "b t h"
        """The states of the words, from their vectors."""

    def forward(self, inputs: WordInputs) -> TaggerOutput:
        vectors = self.words(inputs.words)
        spelled = self.characters(inputs.characters)[inputs.spellings]
        states = self.states(self.dropout(torch.cat([vectors, spelled], -1)), inputs.lengths)
        return self.score(states, inputs.lengths)


class RecurrentTagger(WordTagger):
    """h = LayerNorm(s + V attention(s, s)), s a bidirectional LSTM or GRU over the words.

    `attention` is a name of MECHANISMS, with which every word attends to all words; "none" leaves it out, which is the
    tagger of Lample et al. (2016) and Ma and Hovy (2016).
    """

    def __init__(
        self,
        sizes: TaggerSizes,
        *,
        embedding: int = 100,
        characters: int = 48,
        hidden: int = 128,
        layers: int = 1,
        cell: str = "lstm",
        attention: str = "multi-head",
        output: str = "crf",
        scheme: TagScheme | None = None,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(
            sizes, embedding=embedding, characters=characters, output=output, scheme=scheme, dropout=dropout
        )
        self.encoder = Encoder(self.in_features, hidden, layers=layers, cell=cell, dropout=dropout)
        dim = self.encoder.out_features
        self.attention = None if attention == "none" else self_attention(attention, dim)
        if self.attention is not None:
            self.mix = nn.Linear(width(self.attention, dim, dim), dim)
            self.norm = nn.LayerNorm(dim)
        self._finish(dim)

    def states(self, x: Tensor, lengths: Tensor) -> Tensor:
        states: Tensor = self.encoder(x, lengths).outputs
        if self.attention is None:
            return states
        mask: Mask | Tensor = Lengths(lengths)
        if isinstance(self.attention, AttentionFlow):
            # reads the queries as well as the keys, so both are masked
            inside = inside_lengths(lengths, states.shape[1])
            mask = inside.unsqueeze(-1) & inside.unsqueeze(-2)
        attended = self.attention(self.dropout(states), states, mask=mask)
        return self.norm(states + self.mix(attended))


class TransformerTagger(WordTagger):
    """Layers of self-attention over the words  (Vaswani et al. 2017).

    `attention` is a name of MECHANISMS for all heads. `positions` are those of `Transformer`; learned and half-wave
    positions have room for sentences of `longest` words.
    """

    def __init__(
        self,
        sizes: TaggerSizes,
        *,
        embedding: int = 100,
        characters: int = 48,
        width: int = 128,
        layers: int = 2,
        heads: int = 4,
        feed: int | None = None,
        attention: str = "scaled-dot",
        positions: str = "sinusoidal",
        longest: int = 2000,
        output: str = "crf",
        scheme: TagScheme | None = None,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(
            sizes, embedding=embedding, characters=characters, output=output, scheme=scheme, dropout=dropout
        )
        checks.positive_ints("TransformerTagger", layers=layers)
        self.positions = PositionChoice(positions, width, heads, longest, False, "TransformerTagger")
        self.project = nn.Linear(self.in_features, width)
        self.place = self.positions.added()
        self.encoder = nn.ModuleList(
            EncoderLayer(
                width,
                4 * width if feed is None else feed,
                self.positions.multi_head(attention, n),
                residual="pre",
                dropout=dropout,
            )
            for n in range(1, layers + 1)
        )
        self.norm = nn.LayerNorm(width)
        self._finish(width)

    def states(self, x: Tensor, lengths: Tensor) -> Tensor:
        x = self.dropout(self.positions.add(self.place, self.project(x), torch.arange(x.shape[1], device=x.device)))
        for layer in self.encoder:
            x = layer(x, Lengths(lengths)).out
        return self.norm(x)


class WindowTagger(WordTagger):
    """h_t = relu(W [x_{t-1}; x_t; x_{t+1}]): a word and its neighbours, without attention  (Collobert et al. 2011)."""

    attends: ClassVar[bool] = False

    def __init__(
        self,
        sizes: TaggerSizes,
        *,
        embedding: int = 100,
        characters: int = 48,
        hidden: int = 128,
        output: str = "crf",
        scheme: TagScheme | None = None,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(
            sizes, embedding=embedding, characters=characters, output=output, scheme=scheme, dropout=dropout
        )
        checks.positive_ints("WindowTagger", hidden=hidden)
        self.hidden = nn.Linear(3 * self.in_features, hidden)
        self._finish(hidden)

    def states(self, x: Tensor, lengths: Tensor) -> Tensor:
        inside = inside_lengths(lengths, x.shape[1]).unsqueeze(-1)
        padded = nn.functional.pad(torch.where(inside, x, 0), (0, 0, 1, 1))
        return torch.relu(self.hidden(torch.cat([padded[:, :-2], padded[:, 1:-1], padded[:, 2:]], -1)))


def self_attention(name: str, dim: int) -> nn.Module:
    """The mechanism of that name with queries and keys of one width."""
    checks.known("attention", name, MECHANISMS)
    mechanism = MECHANISMS[name](dim, dim)
    if any(isinstance(getattr(module, "read", None), Sample | Argmax) for module in mechanism.modules()):
        raise ValueError(
            f"attention={name!r} reads one sampled or chosen key, through which no gradient goes; "
            "try attention='gumbel' or 'straight-through'"
        )
    if isinstance(mechanism, DynamicCoAttention):
        raise ValueError(
            f"attention={name!r} relates two sequences, and a sentence is one; try attention='multi-head' or 'bidaf'"
        )
    return mechanism
