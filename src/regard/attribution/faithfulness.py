"""faithfulness: how far attributions, and the attention of a model, can be trusted as explanations of its output."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attribution.adversarial_map import AdversarialMap, adversarial_map
from regard.attribution.attribute import Attribution, attribute_logit, explained_logit
from regard.attribution.base import ExplainedLogit
from regard.attribution.catalogue import METHODS
from regard.attribution.removal import REMOVALS
from regard.common.eval_mode import eval_mode
from regard.common.suggestions import known
from regard.inference.bounded_classifier import PictureClassifier
from regard.inference.embedded_classifier import EmbeddedClassifier
from regard.inference.structured_predictor import StructuredPredictor
from regard.interop.intervene import intervene
from regard.interop.replacements import Permutation, Replacement, uniform

# shares of the words that are removed or kept (DeYoung et al. 2020)
SHARES = (0.01, 0.05, 0.1, 0.2, 0.5)
# a map is another one from half of the greatest divergence, ln 2, on
DIFFERENT = 0.35
# random orders of a band, and permutations of attention
_ORDERS, _PERMUTATIONS = 20, 20
# the name of the test of attention among the methods that do not apply
_OTHER_ATTENTION = "other attention"
# points of a deletion curve
_POINTS = 41


@dataclass(frozen=True, eq=False)
class RemovalScores:
    """The probability of the target while tokens are removed in the order of an attribution."""

    comprehensiveness: float  # mean over SHARES of p(x) − p(x without the first tokens): high is faithful
    sufficiency: float  # mean over SHARES of p(x) − p(the first tokens alone): low is faithful
    curve: tuple[float, ...]  # p after each share of `Faithfulness.removed`


@dataclass(frozen=True, eq=False)
class AttentionTest:
    """The change of the output, ½ Σ |p̃ − p| over the classes, under other attention weights."""

    uniform_change: float  # the same weight for every key
    permuted_change: float  # the median over random permutations of the weights
    adversarial: AdversarialMap

    @property
    def has_other_map(self) -> bool:
        """Whether a very different map gives the same output."""
        return self.adversarial.distance >= DIFFERENT


@dataclass(frozen=True, eq=False)
class Faithfulness:
    """The attributions of one input by several methods, and how far to trust each."""

    attributions: dict[str, Attribution]
    scores: dict[str, RemovalScores]
    removed: tuple[float, ...]  # shares of the words, the places of the curves
    random: RemovalScores  # the mean of random orders
    band: tuple[tuple[float, ...], tuple[float, ...]]  # the 5th and the 95th percentile of their curves
    random_comprehensiveness: float  # the 95th percentile of random orders
    removal: str
    agreement: dict[tuple[str, str], float]  # Kendall's τ of the words, of any two methods
    attention: AttentionTest | None  # None without the method attention, or where weights cannot be replaced
    skipped: dict[str, str]  # methods, and the test of other attention, that do not apply, and why

    @property
    def unit(self) -> str:
        """The unit that is removed: a word of a text, or a patch of a picture."""
        return "word" if all(each.grid is None for each in self.attributions.values()) else "patch"

    @property
    def units(self) -> str:
        return {"word": "words", "patch": "patches"}[self.unit]

    @property
    def can_be_ranked(self) -> bool:
        """Whether there are two words at least, so that rankings can agree or not."""
        return any(len(each.ranking()) > 1 for each in self.attributions.values())

    @property
    def sentence(self) -> str:
        """The extent to which the attention of the model explains this output, in words."""
        return _verdict(self)

    def to_json(self) -> dict[str, Any]:
        test = self.attention
        return {
            "attributions": {name: each.to_json() for name, each in self.attributions.items()},
            "removal": self.removal,
            "comprehensiveness": {name: each.comprehensiveness for name, each in self.scores.items()},
            "sufficiency": {name: each.sufficiency for name, each in self.scores.items()},
            "random": {
                "comprehensiveness": self.random.comprehensiveness,
                "sufficiency": self.random.sufficiency,
            },
            "agreement": {
                f"{a}, {b}": tau if self.can_be_ranked else None for (a, b), tau in self.agreement.items() if a < b
            },
            "attention": None
            if test is None
            else {
                "uniform": test.uniform_change,
                "permuted": test.permuted_change,
                "adversarial": {"distance": test.adversarial.distance, "change": test.adversarial.change},
            },
            "verdict": self.sentence,
            "skipped": self.skipped,
        }


@dataclass(frozen=True, eq=False)
class FaithfulnessReport:
    """Several inputs, and the means over them."""

    inputs: tuple[Faithfulness, ...]

    @property
    def methods(self) -> list[str]:
        """The methods that apply to every input."""
        return [name for name in self.inputs[0].attributions if all(name in each.attributions for each in self.inputs)]

    def comprehensiveness(self, method: str) -> float:
        return _mean([each.scores[method].comprehensiveness for each in self.inputs])

    def sufficiency(self, method: str) -> float:
        return _mean([each.scores[method].sufficiency for each in self.inputs])

    def agreement(self, first: str, second: str) -> float | None:
        """The mean over the inputs of two words at least; None if there is none."""
        taus = [each.agreement[first, second] for each in self.inputs if each.can_be_ranked]
        return _mean(taus) if taus else None

    @property
    def adversarial_share(self) -> float | None:
        """The share of inputs for which a very different map gives the same output; None without attention."""
        tests = [each.attention for each in self.inputs if each.attention is not None]
        return _mean([float(test.has_other_map) for test in tests]) if tests else None

    @property
    def notes(self) -> list[str]:
        """Methods that do not apply, and warnings, each once."""
        notes: dict[str, None] = {}
        for measured in self.inputs:
            notes |= dict.fromkeys(f"{name} does not apply: {reason}" for name, reason in measured.skipped.items())
            for name, each in measured.attributions.items():
                notes |= dict.fromkeys(f"{name}: {sentence}" for sentence in each.warnings)
        return list(notes)

    def explain(self) -> str:
        """The means over the inputs as a table; of a single input also the verdict."""
        random = f"random {self.inputs[0].units}"
        reference = "leave-one-out" if "leave-one-out" in self.methods else self.methods[0]
        width = max(map(len, [*self.methods, random])) + 2
        lines = [f"{'method':{width}}comprehensiveness  sufficiency  τ to {reference}"]
        for name in self.methods:
            row = f"{self.comprehensiveness(name):17.3f}  {self.sufficiency(name):11.3f}"
            tau = self.agreement(name, reference)
            lines.append(f"{name:{width}}{row}  {'–' if tau is None else f'{tau:.2f}':>{5 + len(reference)}}")
        comprehensiveness = _mean([each.random.comprehensiveness for each in self.inputs])
        sufficiency = _mean([each.random.sufficiency for each in self.inputs])
        lines.append(f"{random:{width}}{comprehensiveness:17.3f}  {sufficiency:11.3f}")
        if self.adversarial_share is not None:
            share = f"{100 * self.adversarial_share:.0f} % of inputs"
            lines.append(f"a very different attention gives the same output: {share}")
        return "\n".join([*lines, *(each.sentence for each in self.inputs if len(self.inputs) == 1)])


def faithfulness(
    predictor: EmbeddedClassifier | PictureClassifier,
    inputs: Any | Sequence[Any],
    target: str | int | None = None,
    methods: Sequence[str] | None = None,
    *,
    removal: str = "delete",
    seed: int = 0,
) -> FaithfulnessReport:
    """Attributes each input by several methods (all that apply, if none are named) and measures them.

    Inputs are texts, or pictures, given by their paths or as `predictor.read` returns them; the words of a picture are
    its patches. `removal` is how tokens are taken away, a name of `regard.attribution.REMOVALS`; each gives other
    numbers. Erased inputs are unlike those of the training, so compare methods with the random band, not with zero.
    """
    known("removal", removal, REMOVALS)
    if isinstance(methods, str) or (methods is not None and not methods):
        raise ValueError(f"methods must be a list of names, one at least, got {methods!r}; leave it out for all")
    for name in methods or ():
        known("method", name, METHODS)
    if isinstance(predictor, StructuredPredictor):
        raise TypeError(
            f"predictor must classify texts or pictures, got {type(predictor).__name__}, whose outputs have parts; "
            "explain one of them by regard.attribute"
        )
    values = list(inputs) if isinstance(inputs, Sequence) and not isinstance(inputs, str) else [inputs]
    if not values:
        raise ValueError("inputs must hold at least one input, got none; give a list of texts or pictures")
    explained = [explained_logit(predictor, each, target) for each in values]
    return FaithfulnessReport(tuple(_measure(each, methods, removal, seed) for each in explained))


def _measure(explained: ExplainedLogit, methods: Sequence[str] | None, removal: str, seed: int) -> Faithfulness:
    attributions: dict[str, Attribution] = {}
    skipped: dict[str, str] = {}
    for name in methods or METHODS:
        try:
            attributions[name] = attribute_logit(explained, METHODS[name], name)
        except (ValueError, ImportError) as error:
            # without a choice, methods that do not apply are skipped; a method that was asked for must apply
            if methods is not None:
                raise
            skipped[name] = str(error)
    words = explained.tokens.words
    shares = np.linspace(0, 1, min(len(words) + 1, _POINTS))
    scores = {name: _removal_scores(explained, each.ranking(), removal, shares) for name, each in attributions.items()}
    rng = np.random.default_rng(seed)
    orders = [
        _removal_scores(explained, [words[n] for n in rng.permutation(len(words))], removal, shares)
        for _ in range(_ORDERS)
    ]
    curves = np.array([each.curve for each in orders])
    comprehensiveness = np.array([each.comprehensiveness for each in orders])
    random = RemovalScores(
        float(comprehensiveness.mean()), _mean([each.sufficiency for each in orders]), tuple(curves.mean(0).tolist())
    )
    test = None
    if "attention" in attributions:
        try:
            test = _attention_test(explained, seed)
        except ValueError as error:
            if methods is not None:
                raise
            skipped[_OTHER_ATTENTION] = str(error)
    index = list(words)
    agreement = {
        (a, b): kendall(attributions[a].scores[index], attributions[b].scores[index])
        for a in attributions
        for b in attributions
    }
    return Faithfulness(
        attributions,
        scores,
        tuple(shares.tolist()),
        random,
        (tuple(np.quantile(curves, 0.05, 0).tolist()), tuple(np.quantile(curves, 0.95, 0).tolist())),
        float(np.quantile(comprehensiveness, 0.95)),
        removal,
        agreement,
        test,
        skipped,
    )


def _removal_scores(
    explained: ExplainedLogit, order: Sequence[int], removal: str, shares: np.ndarray[Any, Any]
) -> RemovalScores:
    """The probabilities without, and with nothing but, the first tokens of an order."""
    counts = [max(1, round(share * len(order))) for share in SHARES]
    curve = [round(share * len(order)) for share in shares.tolist()]
    removed = [set(order[:count]) for count in counts]
    removed += [set(order[count:]) for count in counts]
    removed += [set(order[:count]) for count in curve]
    p = _probabilities(REMOVALS[removal](explained, removed), explained.target)
    whole = float(_probabilities(explained.input_logits[None], explained.target)[0])
    n = len(counts)
    return RemovalScores(whole - float(p[:n].mean()), whole - float(p[n : 2 * n].mean()), tuple(p[2 * n :].tolist()))


def _probabilities(logits: Tensor, target: int) -> Tensor:  # "b k" -> "b"
    return logits.softmax(-1)[:, target]


def _attention_test(explained: ExplainedLogit, seed: int) -> AttentionTest:
    before = explained.input_logits.softmax(-1)

    def change(weights: Replacement) -> float:
        model = explained.classifier.model
        with torch.no_grad(), eval_mode(model), intervene(model, weights):
            logits = explained.classifier.token_logits([explained.tokens])[0].double()
        return float((logits.softmax(-1) - before).abs().sum() / 2)

    permuted = [change(Permutation(seed + n)) for n in range(_PERMUTATIONS)]
    return AttentionTest(change(uniform), median(permuted), adversarial_map(explained, seed=seed))


def kendall(first: Tensor, second: Tensor) -> float:  # "n", "n"
    """τ_b = Σ sign(a_i − a_j) sign(b_i − b_j) / √(Σ sign² Σ sign²) over pairs  (Kendall 1945): ties count for neither.

    Zero where all scores of one ranking are equal.
    """
    signs = [torch.sign(scores.double()[:, None] - scores.double()[None, :]) for scores in (first, second)]
    pairs = [float(each.abs().sum()) for each in signs]
    return float((signs[0] * signs[1]).sum()) / (pairs[0] * pairs[1]) ** 0.5 if min(pairs) else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _verdict(measured: Faithfulness) -> str:
    test = measured.attention
    if test is None:
        reasons = [measured.skipped[name] for name in ("attention", _OTHER_ATTENTION) if name in measured.skipped]
        reason = reasons[0] if reasons else "it is not among the methods"
        return f"The attention of this model was not measured: {reason}."
    drop = measured.scores["attention"].comprehensiveness
    beats_random = drop > measured.random_comprehensiveness
    reference = "leave-one-out" if "leave-one-out" in measured.scores else None
    tau = None if reference is None else measured.agreement["attention", reference]
    agrees = not measured.can_be_ranked or (tau is not None and tau >= 0.5)
    if test.has_other_map and not beats_random:
        trust = "Do not read the attention of this model as an explanation here"
    elif test.has_other_map or not beats_random or not agrees:
        trust = "Read the attention of this model with caution here"
    else:
        trust = "The attention of this model is a fair guide here"
    ranked = "more than" if beats_random else "no more than"
    parts = [
        f"removing the {measured.units} that it ranks highest lowers the probability by {drop:.2f}, {ranked} random "
        f"{measured.units} ({measured.random.comprehensiveness:.2f})"
    ]
    if not measured.can_be_ranked:
        parts.append(f"a single {measured.unit} has one order, so no rankings can be compared")
    elif tau is not None:
        parts.append(f"its ranking agrees with leave-one-out by τ = {tau:.2f}")
    parts.append(
        f"the most different map that keeps the output is {test.adversarial.distance:.2f} away (0 is the same map, "
        f"{np.log(2):.2f} the furthest)"
    )
    return f"{trust}: {'; '.join(parts)}."
