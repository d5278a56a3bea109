"""SlotTracker: values of slots scored by attention over the words of a turn and over the acts of the system."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from regard.attn.call import Need
from regard.attn.catalogue import width
from regard.attn.layer import Attention
from regard.attn.terms.sequence_masks import Lengths
from regard.common import checks
from regard.data.text.words import WordInputs
from regard.layers.dropout import Dropout
from regard.layers.rnn.encoder import Encoder
from regard.layers.text_pooling import pool_texts
from regard.models.tagger import self_attention
from regard.models.tracking.context import CONTEXTS
from regard.models.tracking.inputs import AGES, PLACES, ActInputs, TrackingInputs, TurnWords, Words


class SlotTracker(nn.Module, ABC):
    """y_v = a_k·q_v + b_k·m_v + c_k 1_v + d_k + γ Σ_a β_ka [a names v]  (after Zhong et al. 2018, 3).

    For a candidate v of topic k, with the states h of the words of the user and g of those of the system,
    [a; b; c; d]_k = W z_k, z_k = tanh(G [r_k; s_k; u_k; e_k]) read the turn for the topic.
    q_v = attention(Q e_v, h) is asked by the words of the candidate, so that a value that no training has shown has a
    score; m_v is the mean of h over the words of v in the turn, and 1_v whether there are any (string matching).
    r_k = attention(U e_k, h) and s_k = attention(S e_k, g) are asked by the topic, a slot or a request. β_k are weights
    over the acts of topic k, asked by [r_k; s_k; e_k], and u_k is their mean: an act is described by its place among
    the acts of its turn and topic, by its age in turns, and by whether it names a value; the first act is none. GLAD
    scores by q_v and by the acts of the last turn; here earlier turns are read by their acts.

    With the context "recurrent" or "attention", W [z_k; c_k] reads the turn, c_k a vector of z_k in all turns so far:
    RecurrentContext, AttentiveContext. `attention` is a name of MECHANISMS for the attention over words.
    """

    def __init__(self, *, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)

    def _finish(self, dim: int, attention: str, context: str) -> None:
        """The layers above states of this width."""
        self.candidate_attention, self.user_attention, self.system_attention = (
            self_attention(attention, dim) for _ in range(3)
        )
        self.candidate_query, self.user_query, self.system_query = (nn.Linear(dim, dim) for _ in range(3))
        wide = width(self.candidate_attention, dim, dim)
        self.act_kinds = nn.Embedding(3, dim)
        self.act_places = nn.ModuleList(nn.Embedding(size, dim) for size in (PLACES, PLACES, AGES))
        self.act_query = nn.Sequential(nn.Linear(dim + 2 * wide, dim), nn.Tanh(), nn.Linear(dim, dim))
        self.act_attention = Attention()
        self.topic = nn.Linear(2 * wide + 2 * dim, dim)
        checks.known("context", context, CONTEXTS)
        build = CONTEXTS[context]
        self.context = None if build is None else build(dim)
        self.readers = nn.Linear(dim if build is None else 2 * dim, wide + dim + 2)
        self.copied = nn.Parameter(torch.tensor(4.0))

    @abstractmethod
    def word_states(self, texts: TurnWords) -> Tensor:  # -> "n t d"
        """The states of words, anything behind the end of a text."""

    @abstractmethod
    def phrase_vectors(self, phrases: Words) -> Tensor:  # -> "p d"
        """A vector per phrase."""

    def forward(self, inputs: TrackingInputs) -> Tensor:  # -> "n c"
        """The score of every candidate: that of no value is 0."""
        user, system, acts = inputs.user, inputs.system, inputs.acts
        h, g = self.dropout(self.word_states(user)), self.dropout(self.word_states(system))
        phrases = self.dropout(self.phrase_vectors(inputs.phrases))
        count = len(phrases) - len(inputs.topics)
        topics, candidates = phrases[:count], phrases[count:]
        n = len(h)

        def ask(attention: nn.Module, queries: Tensor, states: Tensor, lengths: Tensor) -> Tensor:  # -> "n q w"
            return attention(queries.expand(n, *queries.shape), states, mask=Lengths(lengths))

        read = ask(self.candidate_attention, self.candidate_query(candidates), h, user.lengths)
        of_user = ask(self.user_attention, self.user_query(topics), h, user.lengths)
        of_system = ask(self.system_attention, self.system_query(topics), g, system.lengths)
        weights, of_acts = self.attend_acts(acts, topics, inputs.names, of_user, of_system)
        described = torch.cat([of_user, of_system, of_acts, topics.expand(n, *topics.shape)], -1)
        turns = self.dropout(torch.tanh(self.topic(described)))  # "n k d"
        if self.context is not None:
            turns = torch.cat([turns, self.dropout(self.context(turns, inputs.numbers))], -1)
        readers = self.readers(turns)  # "n k w+d+2"
        by_words, by_matches, of_match, offset = readers.split([read.shape[-1], h.shape[-1], 1, 1], -1)
        counts = inputs.mentions.sum(1).unsqueeze(-1)  # "n c 1"
        matched = inputs.mentions.mT @ (h @ by_matches.mT) / counts.clamp_min(1)  # "n c k"
        of_topics = read @ by_words.mT + matched + (counts > 0) * of_match.mT + offset.mT
        scores = of_topics.gather(-1, inputs.topics.unsqueeze(-1).expand(n, -1, 1)).squeeze(-1)
        names = acts.candidates.unsqueeze(1) == torch.arange(len(candidates), device=h.device).unsqueeze(1)  # "n c a"
        return scores + self.copied * (weights[:, inputs.topics] * names).sum(-1)

    def attend_acts(
        self, acts: ActInputs, topics: Tensor, names: Tensor, of_user: Tensor, of_system: Tensor
    ) -> tuple[Tensor, Tensor]:  # "k d", "k", "n k w", "n k w" -> "n k a", "n k d"
        """The weights of the acts with the name of every topic, and the mean of the acts by them."""
        # 0 for the act that is none, 1 for a question, 2 for a value
        kinds = torch.where(acts.names < 0, 0, 1 + (acts.candidates >= 0).long())
        described = self.act_kinds(kinds)
        for place, embedding in enumerate(self.act_places):
            described = described + embedding(acts.places[..., place])
        queries = self.act_query(torch.cat([of_user, of_system, topics.expand(len(kinds), *topics.shape)], -1))
        of_acts = acts.names.unsqueeze(1)  # "n 1 a"
        allowed = (of_acts == names.unsqueeze(1)) | (of_acts == -1)
        attended = self.act_attention.attend(queries, described, mask=allowed, need=Need(weights=True))
        assert attended.weights is not None
        return attended.weights, attended.out


class RecurrentSlotTracker(SlotTracker):
    """h = BiLSTM(E[w] + T[names of w]); a phrase is tanh(P mean E[w])."""

    def __init__(
        self,
        vocabulary: int,
        names: int,
        *,
        embedding: int = 64,
        hidden: int = 64,
        attention: str = "scaled-dot",
        context: str = "acts",
        dropout: float = 0.3,
    ) -> None:
        super().__init__(dropout=dropout)
        checks.positive_ints("RecurrentSlotTracker", vocabulary=vocabulary, names=names, embedding=embedding)
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=0)
        with torch.no_grad():
            # vectors as long as those of names, so that neither drowns the other
            self.embedding.weight.mul_(0.3)
        self.names = nn.Linear(names, embedding, bias=False)
        self.encoder = Encoder(embedding, hidden, cell="lstm")
        self.phrase = nn.Linear(embedding, self.encoder.out_features)
        self._finish(self.encoder.out_features, attention, context)

    def word_states(self, texts: TurnWords) -> Tensor:
        assert isinstance(texts.words, WordInputs)
        x = self.embedding(texts.words.words) + self.names(texts.topics)
        states: Tensor = self.encoder(self.dropout(x), texts.words.lengths).outputs
        return states

    def phrase_vectors(self, phrases: Words) -> Tensor:
        assert isinstance(phrases, WordInputs)
        return torch.tanh(self.phrase(pool_texts(self.embedding(phrases.words), phrases.lengths, "mean")))
