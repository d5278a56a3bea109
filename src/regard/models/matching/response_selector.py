"""ResponseSelector: the score of a response to the turns of a dialogue, above vectors of words or of an encoder."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.common import checks
from regard.data.text.words import WordInputs
from regard.layers.character_convolution import CharacterConvolution
from regard.layers.lengths import inside_lengths
from regard.layers.text_pooling import pool_texts
from regard.models.matching.deep_attention_matching import DeepAttentionMatching, TurnVectors
from regard.models.matching.esim import ESIM
from regard.models.transfer.text_encoder import TextEncoder

# the logit of texts that are alike, to begin with
_SCALE = 10.0


class TokenTexts(NamedTuple):
    """Texts as the tokens of an encoder; an empty text has none."""

    tokens: Tensor  # "r t"
    lengths: Tensor  # "r"

    def to(self, device: torch.device) -> "TokenTexts":
        return TokenTexts(*(t.to(device) for t in self))


class StateTexts(NamedTuple):
    """Texts as the states of an encoder."""

    states: Tensor  # "r t d"
    lengths: Tensor  # "r"


class DialogueInputs(NamedTuple):
    """b dialogues of `turns` turns each with one response: the rows of all turns, then the b responses."""

    texts: WordInputs | TokenTexts | StateTexts
    turns: int

    def to(self, device: torch.device) -> "DialogueInputs":
        assert not isinstance(self.texts, StateTexts)
        return self._replace(texts=self.texts.to(device))


class WordVectors(nn.Module):
    """[E[w]; max_i conv(characters of w)_i], or E[w] alone without `characters`."""

    def __init__(self, words: nn.Embedding, characters: CharacterConvolution | None) -> None:
        super().__init__()
        self.words, self.characters = words, characters

    def forward(self, texts: WordInputs) -> Tensor:  # -> "r t d"
        vectors: Tensor = self.words(texts.words)
        if self.characters is None:
            return vectors
        return torch.cat([vectors, self.characters(texts.characters)[texts.spellings]], -1)


class EncoderVectors(nn.Module):
    """The states of a frozen encoder, which reads each distinct text once; states that are given stay as they are."""

    def __init__(self, encoder: TextEncoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, texts: TokenTexts | StateTexts) -> Tensor:  # -> "r t d", anything behind the end of a text
        if isinstance(texts, StateTexts):
            return texts.states
        # the turns of a dialogue are repeated for each of its candidates
        rows = torch.cat([texts.lengths.unsqueeze(1), texts.tokens], 1)
        distinct, index = rows.unique(dim=0, return_inverse=True)
        # an empty text is read as one token, whose state nothing attends to
        states: Tensor = self.encoder(distinct[:, 1:], distinct[:, 0].clamp_min(1))
        return states[index]


class JoinedTurns(nn.Module):
    """ESIM(all turns as one text, response): a score  (Chen et al. 2017; Chen and Wang 2019 for dialogues)."""

    def __init__(self, dim: int, *, hidden: int = 64, attention: str = "paper", dropout: float = 0.2) -> None:
        super().__init__()
        self.matcher = ESIM(dim, 1, hidden=hidden, attention=attention, dropout=dropout)

    def forward(self, inputs: TurnVectors) -> Tensor:  # -> "b"
        inside = inside_lengths(inputs.turn_lengths, inputs.turns.shape[2]).flatten(1)
        lengths = inside.sum(1)
        longest = max(int(lengths.max()), 1)
        # tokens before padding, each in its order, by one sort: a loop over samples would wait for a GPU in each
        order = (~inside).byte().argsort(stable=True)[:, :longest]
        joined = inputs.turns.flatten(1, 2).take_along_dim(order.unsqueeze(-1), 1)
        joined = joined.masked_fill(~inside_lengths(lengths, longest).unsqueeze(-1), 0.0)
        lengths = lengths.clamp_min(1)
        scores: Tensor = self.matcher(joined, inputs.response, lengths, inputs.response_lengths)
        return scores.squeeze(-1)


class TextSimilarity(nn.Module):
    """s cos(M Σ_i w_i û_i, K r), û_i = u_i/|u_i|; u_i and r are means of token vectors  (after Lowe et al. 2015).

    Places are counted from the last turn, so that w_i depends on the distance from the response. M and K begin as the
    identity and w_i as 2^−distance: vectors of an encoder of sentences are compared well before any training.
    """

    def __init__(self, dim: int, turns: int) -> None:
        super().__init__()
        checks.positive_ints("TextSimilarity", dim=dim, turns=turns)
        self.of_turns, self.of_response = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        for linear in (self.of_turns, self.of_response):
            nn.init.eye_(linear.weight)
        self.weights = nn.Parameter(0.5 ** torch.arange(turns - 1.0, -1.0, -1.0))
        self.scale = nn.Parameter(torch.tensor(_SCALE))

    def forward(self, inputs: TurnVectors) -> Tensor:  # -> "b"
        s = inputs.turns.shape[1]
        if s > len(self.weights):
            raise ValueError(
                f"inputs must have at most turns={len(self.weights)}, got {s}; cut them, or build a larger model"
            )
        means = pool_texts(inputs.turns, inputs.turn_lengths, "mean")  # "b s d"
        places = self.weights[len(self.weights) - s :].unsqueeze(-1)
        context = (nn.functional.normalize(means, dim=-1) * places).sum(1)
        response = pool_texts(inputs.response, inputs.response_lengths, "mean")
        return self.scale * nn.functional.cosine_similarity(self.of_turns(context), self.of_response(response), dim=-1)


class ResponseSelector(nn.Module):
    """score = matcher(u, r) + similarity(u, r), u the vectors of the turns and r those of the response.

    None leaves the similarity of whole texts out.
    """

    def __init__(
        self,
        vectors: WordVectors | EncoderVectors,
        matcher: DeepAttentionMatching | JoinedTurns,
        similarity: TextSimilarity | None = None,
    ) -> None:
        super().__init__()
        self.vectors, self.matcher, self.similarity = vectors, matcher, similarity

    def forward(self, inputs: DialogueInputs) -> Tensor:  # -> "b"
        vectors, lengths = self.vectors(inputs.texts), inputs.texts.lengths
        b = len(lengths) // (inputs.turns + 1)
        of_turns, of_responses = lengths[: b * inputs.turns], lengths[b * inputs.turns :]
        n, m = max(int(of_turns.max()), 1), max(int(of_responses.max()), 1)
        turns = vectors[: b * inputs.turns, :n].unflatten(0, (b, inputs.turns))
        response = vectors[b * inputs.turns :, :m]
        read = TurnVectors(turns, response, of_turns.unflatten(0, (b, inputs.turns)), of_responses.clamp_min(1))
        scores: Tensor = self.matcher(read)
        return scores if self.similarity is None else scores + self.similarity(read)
