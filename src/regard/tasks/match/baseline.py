"""The baseline of every evaluation: logistic regression on the words of a pair, which ignores their order."""

from regard.data.text.sentence_pairs import LabelledPairs
from regard.models.matching.word_matcher import BagOfPairs
from regard.tasks.match.data import PairFacts
from regard.tasks.match.options import BagOfPairsOptions
from regard.tasks.match.readers import FeatureReader
from regard.tasks.shared.classification import fit_logistic


def baseline_reader(facts: PairFacts) -> FeatureReader:
    return FeatureReader(facts.words, BagOfPairsOptions().buckets)


def fit_baseline(data: LabelledPairs, facts: PairFacts) -> BagOfPairs:
    """The bag of words that fits these pairs best, the same for the same pairs."""
    reader = baseline_reader(facts)
    counts = reader.counts(reader.tokenize(data.first, data.second))
    weights, bias = fit_logistic(counts, data.labels, len(facts.classes))
    model = BagOfPairs(reader.size, len(facts.classes))
    model.load_state_dict({"weights.weight": weights, "bias": bias})
    return model.eval()
