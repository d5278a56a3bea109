"""BiDAF: the span of a passage that answers a question, by attention in both directions."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.data.text.words import WordInputs
from regard.layers.character_convolution import CharacterConvolution
from regard.layers.dropout import Dropout
from regard.layers.highway import Highway
from regard.layers.lengths import inside_lengths
from regard.layers.rnn.encoder import Encoder
from regard.models.reading.passage_flow import QuestionSummary, build_flow


class ReaderSizes(NamedTuple):
    """The numbers that data decides."""

    words: int
    characters: int


class SpanLogits(NamedTuple):
    """The scores of the first and the last word of the answer, −∞ behind the end of the passage."""

    start: Tensor  # "b t"
    end: Tensor  # "b t"


class BiDAF(nn.Module):
    """p1 = softmax(w1·[G; M]), p2 = softmax(w2·[G; M2]), G = flow(H, U)  (Seo et al. 2017).

    H and U are the words of the passage and of the question: vectors of words and of their characters, highway layers,
    and one recurrent layer for both. M is `modelling` recurrent layers over G, M2 one more over M.

    `attention` is a name of FLOWS; "bidaf" is that of the paper. "none" reads the last state of the question instead.
    """

    def __init__(
        self,
        sizes: ReaderSizes,
        *,
        embedding: int = 100,
        characters: int = 100,
        hidden: int = 100,
        highway: int = 2,
        modelling: int = 2,
        cell: str = "lstm",
        attention: str = "bidaf",
        dropout: float = 0.2,
        padding: int = 0,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes.words, embedding, padding_idx=padding)
        self.characters = CharacterConvolution(sizes.characters, filters=characters, kernel=5, padding=padding)
        dim = embedding + characters
        self.highway = Highway(dim, layers=highway) if highway else nn.Identity()
        self.encoder = Encoder(dim, hidden, cell=cell)
        state = self.encoder.out_features
        self.flow = QuestionSummary() if attention == "none" else build_flow(attention, state)
        self.modelling = Encoder(self.flow.width * state, hidden, layers=modelling, cell=cell, dropout=dropout)
        self.ending = Encoder(state, hidden, cell=cell)
        self.start, self.end = (nn.Linear((self.flow.width + 1) * state, 1) for _ in range(2))
        self.dropout = Dropout(dropout)

    @property
    def attends(self) -> bool:
        return not isinstance(self.flow, QuestionSummary)

    def embed(self, inputs: WordInputs) -> Tensor:  # -> "b t d"
        """The vectors of words and of their characters."""
        spelled = self.characters(inputs.characters)[inputs.spellings]
        return self.highway(torch.cat([self.words(inputs.words), spelled], -1))

    def forward(self, passages: WordInputs, questions: WordInputs) -> SpanLogits:
        h, u = (self.encoder(self.dropout(self.embed(each)), each.lengths) for each in (passages, questions))
        flow = self.flow(h.outputs, u.outputs, u.summary, passages.lengths, questions.lengths)  # "b t g"
        modelled = self.modelling(self.dropout(flow), passages.lengths).outputs
        ending = self.ending(self.dropout(modelled), passages.lengths).outputs
        behind = ~inside_lengths(passages.lengths, flow.shape[1])
        scores = [
            linear(self.dropout(torch.cat([flow, states], -1))).squeeze(-1).masked_fill(behind, -torch.inf)
            for linear, states in ((self.start, modelled), (self.end, ending))
        ]
        return SpanLogits(*scores)
