"""Released checkpoints as predictors: a folder in transformers' layout instead of a run.

`architectures[0]` of its config.json names the task in ARCHITECTURES, and RELEASED has the predictor of the task.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.inference.evaluation import Evaluation
from regard.inference.predictor import Predictor
from regard.models.pretrained.folder import CONFIG, read_config
from regard.models.pretrained.loading import ARCHITECTURES, PretrainedModel, architecture_name, load_pretrained
from regard.tasks.base import Progress
from regard.tasks.classify_image.released import released_image_classifier
from regard.tasks.classify_text.released import evaluate_text_classifier, released_text_classifier
from regard.tasks.embed.released import evaluate_embedder, released_embedder
from regard.tasks.language_model.released import evaluate_language_model, released_language_model
from regard.tasks.masked_lm.released import evaluate_masked_lm, released_masked_lm
from regard.tasks.translate.released import evaluate_translator, released_translator


@dataclass(frozen=True)
class ReleasedTask:
    """How the released models of a task are used; those without `evaluate` cannot be scored on files."""

    predictor: Callable[[PretrainedModel], Predictor[Any, Any]]
    # of the predictor and the options of `regard evaluate`, which name files
    evaluate: Callable[[Any, Any, Progress], Evaluation] | None = None


RELEASED: dict[str, ReleasedTask] = {
    "classify-image": ReleasedTask(released_image_classifier),
    "classify-text": ReleasedTask(released_text_classifier, evaluate_text_classifier),
    "embed": ReleasedTask(released_embedder, evaluate_embedder),
    "language-model": ReleasedTask(released_language_model, evaluate_language_model),
    "masked-lm": ReleasedTask(released_masked_lm, evaluate_masked_lm),
    "translate": ReleasedTask(released_translator, evaluate_translator),
}


def released_task(folder: Path) -> str:
    """The task of the model in a folder; raises if no predictor reads it."""
    config = read_config(folder)
    name = architecture_name(config)
    task = ARCHITECTURES[name].task
    if task not in RELEASED:
        supported = ", ".join(each for each, kind in ARCHITECTURES.items() if kind.task in RELEASED)
        raise ValueError(
            f"{folder / CONFIG} names the architecture {name!r}, which no task predicts with; load its model "
            f"by regard.load_pretrained, or name a folder of one of {supported}"
        )
    return task


def load_released(folder: Path) -> Predictor[Any, Any]:
    """The predictor of the model in a folder, on the CPU."""
    return RELEASED[released_task(folder)].predictor(load_pretrained(folder))


def evaluate_released(folder: Path, predictor: Predictor[Any, Any], options: Any, progress: Progress) -> Evaluation:
    """The scores of a released model on the files that `options` name."""
    task = released_task(folder)
    evaluate = RELEASED[task].evaluate
    if evaluate is None:
        raise ValueError(f"{folder} is a released model of {task}, which only a run is evaluated for; use predict")
    if not options.test:
        raise ValueError(f"{folder} is a released model, which has no data of its own; name files with --test")
    return evaluate(predictor, options, progress)
