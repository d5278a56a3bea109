"""Attribution by leaving tokens out: of the text, or of the keys of every attention."""

from dataclasses import dataclass

import torch

from regard.attribution.base import BATCH, AttributionMethod, ExplainedLogit, ScoredTokens
from regard.common.eval_mode import eval_mode
from regard.interop.intervene import intervene
from regard.interop.replacements import WithoutKeys


@dataclass(frozen=True)
class LeaveOneOut(AttributionMethod):
    """score_i = f(x) − f(x without token i)  (Li et al. 2016); special tokens stay and score 0."""

    def scores(self, explained: ExplainedLogit) -> ScoredTokens:
        tokens = explained.tokens
        outputs = explained.outputs([tokens.without({n}) for n in tokens.words])
        scores = outputs.new_zeros(len(tokens))
        scores[list(tokens.words)] = explained.output - outputs
        return ScoredTokens(scores)


@dataclass(frozen=True)
class MaskedKeys(AttributionMethod):
    """score_i = f(x) − f(x, key i masked in every attention): a masked key equals an absent key, positions stay.

    The token still has its own state, and a recurrent encoder still reads it.
    """

    @torch.no_grad()
    def scores(self, explained: ExplainedLogit) -> ScoredTokens:
        tokens, classifier = explained.tokens, explained.classifier
        count, words = len(tokens), list(tokens.words)
        scores = explained.own_logits.new_zeros(count)
        for start in range(0, len(words), BATCH):
            left_out = words[start : start + BATCH]
            keys = torch.ones(len(left_out), count, dtype=torch.bool, device=classifier.device)
            keys[range(len(left_out)), left_out] = False
            with eval_mode(classifier.model), intervene(classifier.model, WithoutKeys(keys)):
                logits = classifier.token_logits([tokens] * len(left_out))
            scores[left_out] = explained.output - logits[:, explained.target].double()
        return ScoredTokens(scores)
