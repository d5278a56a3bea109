"""ESIM: enhanced sequential inference, two recurrent encoders with attention in both directions between them."""

import torch
from torch import Tensor, nn

from regard.attn.mechanisms.coattention import CoAttention
from regard.attn.terms.score import Dot
from regard.common import checks
from regard.layers.dropout import Dropout
from regard.layers.rnn.encoder import Encoder
from regard.models.matching.pair_matcher import PairMatcher, cross_attend, named_coattention, pool_both, stack_texts


class ESIM(PairMatcher):
    """y = W tanh(V [mean v_a; max v_a; mean v_b; max v_b]), v = BiLSTM(relu(P [ā; ã; ā − ã; ā∘ã]))  (Chen et al. 2017).

    ā = BiLSTM(a), ã_i = Σ_j softmax_j(ā_i·b̄_j) b̄_j, and the same for b with the same weights. `attention` is a name of
    MECHANISMS whose score and normalizer replace the dot product and the softmax; "paper" keeps both.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        *,
        hidden: int = 100,
        cell: str = "lstm",
        attention: str = "paper",
        dropout: float = 0.4,
    ) -> None:
        super().__init__()
        checks.positive_ints("ESIM", dim=dim, classes=classes, hidden=hidden)
        self.encoder = Encoder(dim, hidden, cell=cell)
        wide = self.encoder.out_features
        self.attention = CoAttention(Dot(1.0)) if attention == "paper" else named_coattention(attention, wide)
        self.project = nn.Linear(4 * wide, hidden)
        self.composition = Encoder(hidden, hidden, cell=cell)
        self.feed = nn.Linear(4 * wide, hidden)
        self.output = nn.Linear(hidden, classes)
        self.dropout = Dropout(dropout)

    def forward(
        self, first: Tensor, second: Tensor, first_lengths: Tensor, second_lengths: Tensor
    ) -> Tensor:  # "b n d", "b m d", "b", "b" -> "b k"
        x, lengths = stack_texts(first, second, first_lengths, second_lengths)
        of_first, of_second = self.encoder(self.dropout(x), lengths).outputs.chunk(2)
        a, b = of_first[:, : first.shape[1]], of_second[:, : second.shape[1]]
        read = cross_attend(self.attention, a, b, first_lengths, second_lengths)
        compared = [
            torch.relu(self.project(torch.cat([x, other, x - other, x * other], -1)))
            for x, other in zip((a, b), read, strict=True)
        ]
        x, _ = stack_texts(compared[0], compared[1], first_lengths, second_lengths)
        pooled = pool_both(self.composition(self.dropout(x), lengths).outputs, lengths)  # "2b 2h"
        hidden = torch.tanh(self.feed(self.dropout(torch.cat(pooled.chunk(2), -1))))
        return self.output(self.dropout(hidden))
