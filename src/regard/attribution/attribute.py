"""attribute: how much each token of an input adds to the logit of a class, by one of several methods."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.attribution.base import AttributionMethod, Completeness, ExplainedLogit
from regard.attribution.catalogue import METHODS
from regard.attribution.patched_picture import PatchedPicture
from regard.common.suggestions import known
from regard.inference.bounded_classifier import PictureClassifier
from regard.inference.embedded_classifier import EmbeddedClassifier, TokenInput
from regard.inference.structured_predictor import StructuredPredictor


@dataclass(frozen=True, eq=False)
class Attribution:
    """The scores of the tokens of one input for the logit of one class."""

    tokens: tuple[str, ...]
    scores: Tensor  # "n", on the CPU
    is_special: tuple[bool, ...]
    target: str
    output: float  # the logit of the target
    probability: float
    method: str
    completeness: Completeness | None = None
    warnings: tuple[str, ...] = field(default=())
    grid: Tensor | None = None  # "rows columns", the scores of the patches of a picture in their places

    def ranking(self) -> list[int]:
        """The places of tokens, the highest score first, special tokens left out."""
        order = self.scores.argsort(descending=True, stable=True).tolist()
        return [n for n in order if not self.is_special[n]]

    def to_json(self) -> dict[str, Any]:
        sums = self.completeness
        return {
            "method": self.method,
            "target": self.target,
            "probability": self.probability,
            "output": self.output,
            "tokens": list(self.tokens),
            "scores": self.scores.tolist(),
            **({} if self.grid is None else {"grid": list(self.grid.shape)}),
            "completeness": None
            if sums is None
            else {"difference": sums.difference, "error": sums.error, "steps": sums.steps},
            "warnings": list(self.warnings),
        }


def attribute(
    predictor: EmbeddedClassifier | PictureClassifier | StructuredPredictor,
    input: Any,
    target: str | int | None = None,
    method: str | AttributionMethod = "integrated-gradients",
) -> Attribution:
    """The score of every token for the logit of `target`, a class by name or number; None is the likeliest class.

    `predictor` is that of a run, or of a released model, that classifies texts, pairs of texts or pictures, tags or
    translates, or a `regard.attribution.TransformersClassifier`. The tokens of a picture, given by its path, are its
    patches. Of a tagger, `target` is "Paris=B-city", a word and its tag, "New York=city", a span and its label, or one
    of the two alone, as predicted (None: the first span); of a translator it is a word of the translation (None: all
    of it); their logit is log p − log(1 − p). "to#2" is the second "to". `method` is a name of
    `regard.attribution.METHODS`, or a value such as `regard.attribution.IntegratedGradients(tolerance=0.001)`.
    """
    chosen, name = _method(method)
    return attribute_logit(explained_logit(predictor, input, target), chosen, name)


def attribute_logit(explained: ExplainedLogit, method: AttributionMethod, name: str) -> Attribution:
    """The attribution of an input that is encoded already."""
    result = method.scores(explained)
    warnings = []
    if result.completeness is not None and not result.completeness.is_reached:
        warnings.append(
            f"the scores miss f(x) − f(x') = {result.completeness.difference:.3g} by {result.completeness.error:.3g} "
            f"after {result.completeness.steps:,} steps, so read them as approximate"
        )
    logits, scores = explained.input_logits, result.scores.detach().float().cpu()
    classifier = explained.classifier
    return Attribution(
        explained.tokens.names,
        scores,
        explained.tokens.is_special,
        classifier.classes[explained.target],
        float(explained.output),
        float(logits.softmax(-1)[explained.target]),
        name,
        result.completeness,
        tuple(warnings),
        classifier.grid_of(scores) if isinstance(classifier, PatchedPicture) else None,
    )


def explained_logit(
    predictor: EmbeddedClassifier | PictureClassifier | StructuredPredictor, input: Any, target: str | int | None
) -> ExplainedLogit:
    """The logit to explain; raises for a predictor without tokens or classes, and for a target that is no class."""
    if isinstance(predictor, PictureClassifier):
        value = predictor.read(str(input)) if isinstance(input, str | Path) else input
        picture = PatchedPicture(predictor, value)
        return _explained(picture, picture.tokens(), target)
    if not isinstance(predictor, EmbeddedClassifier | StructuredPredictor):
        raise TypeError(
            f"predictor must classify texts or pictures, tag or translate, got {type(predictor).__name__}; give that "
            "of a run of classify-text, match, tag, translate or classify-image, or "
            "regard.attribution.TransformersClassifier(model, tokenizer)"
        )
    if not isinstance(input, str):
        raise TypeError(
            f"input must be one text, got {input!r:.60}; several texts are measured by regard.faithfulness, and both "
            "texts of a pair have a tab between them"
        )
    if isinstance(predictor, StructuredPredictor):
        return _explained_part(predictor, input, target)
    (tokens,) = predictor.encode_tokens([input])
    return _explained(predictor, tokens, target)


def _explained_part(predictor: StructuredPredictor, text: str, target: str | int | None) -> ExplainedLogit:
    if target is not None and not isinstance(target, str):
        raise TypeError(
            f"target must name a part of the output, got {target!r}; write words of it, such as target='Paris'"
        )
    explained = ExplainedLogit(*predictor.output_part(text, target), 0)
    if not explained.input_logits.isfinite().all():
        raise ValueError(
            f"the target {target!r} has the probability {explained.input_logits.softmax(-1)[0]:.0f} in every text, so "
            "no word explains it; name another one"
        )
    return explained


def _explained(predictor: EmbeddedClassifier, tokens: TokenInput, target: str | int | None) -> ExplainedLogit:
    if target is not None:
        return ExplainedLogit(predictor, tokens, _class_number(target, predictor.classes))
    logits = ExplainedLogit(predictor, tokens, 0).input_logits
    return ExplainedLogit(predictor, tokens, int(logits.argmax()))


def _class_number(target: str | int, classes: list[str]) -> int:
    if isinstance(target, int) and not isinstance(target, bool):
        if not 0 <= target < len(classes):
            raise ValueError(
                f"target must be from 0 to {len(classes) - 1}, the classes of the model, got {target}; name a class, "
                f"such as target={classes[0]!r}"
            )
        return target
    known("target", target, classes)
    return classes.index(str(target))


def _method(method: str | AttributionMethod) -> tuple[AttributionMethod, str]:
    if isinstance(method, AttributionMethod):
        names = [name for name, of_name in METHODS.items() if of_name == method]
        return method, names[0] if names else repr(method)
    known("method", method, METHODS)
    return METHODS[method], method
