"""Attribution by leaving tokens out one by one."""

from dataclasses import dataclass

from regard.attribution.base import AttributionMethod, ExplainedLogit, ScoredTokens
from regard.attribution.removal import REMOVALS
from regard.common.suggestions import known


@dataclass(frozen=True)
class LeaveOneOut(AttributionMethod):
    """score_i = f(x) − f(x without token i)  (Li et al. 2016); special tokens stay and score 0.

    `removal` is a name of REMOVALS: the token is deleted, its key is masked in every attention (a masked key equals an
    absent key, and positions stay), or its vector is that of padding.
    """

    removal: str = "delete"

    def __post_init__(self) -> None:
        known("removal", self.removal, REMOVALS)

    def scores(self, explained: ExplainedLogit) -> ScoredTokens:
        words = explained.tokens.words
        logits = REMOVALS[self.removal](explained, [{n} for n in words])
        scores = logits.new_zeros(len(explained.tokens))
        scores[list(words)] = explained.output - logits[:, explained.target]
        return ScoredTokens(scores)
