"""Released checkpoints as predictors: a folder in transformers' layout instead of a run.

`architectures[0]` of its config.json names the task in ARCHITECTURES, and RELEASED has the predictor of the task.
"""

import reprlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.common.wording import plural
from regard.inference.evaluation import Evaluation, Progress
from regard.inference.predictor import Predictor
from regard.models.bert import BERTClassifier
from regard.models.pretrained.architecture import are_classes_numbered
from regard.models.pretrained.folder import CONFIG, read_config, read_generation_config
from regard.models.pretrained.generation import ignored_entries
from regard.models.pretrained.loading import ARCHITECTURES, PretrainedModel, architecture_name, load_pretrained
from regard.models.vit import ViTClassifier
from regard.tasks.classify_image.released import released_image_classifier
from regard.tasks.classify_text.released import evaluate_text_classifier, released_text_classifier
from regard.tasks.embed.released import evaluate_embedder, released_embedder
from regard.tasks.language_model.released import evaluate_language_model, released_language_model
from regard.tasks.masked_lm.released import evaluate_masked_lm, released_masked_lm
from regard.tasks.translate.released import evaluate_translator, released_translator


@dataclass(frozen=True)
class ReleasedTask:
    """The uses of the released models of a task; without `evaluate` they cannot be scored on files."""

    predictor: Callable[[PretrainedModel], Predictor[Any, Any]]
    # takes the predictor, the options of `regard evaluate`, which name files, and the progress
    evaluate: Callable[[Any, Any, Progress], Evaluation] | None = None


# the tasks that write tokens one by one
_GENERATORS = ("language-model", "translate")
# the tensors that a note names
_NAMED = 5
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


def load_released(folder: Path) -> tuple[Predictor[Any, Any], tuple[str, ...]]:
    """The predictor of the model in a folder, on the CPU, and sentences about entries of the folder without effect."""
    task = released_task(folder)
    loaded = load_pretrained(folder)
    return RELEASED[task].predictor(loaded), tuple(_notes(task, loaded))


def _notes(task: str, loaded: PretrainedModel) -> Iterator[str]:
    folder = loaded.config.folder
    if loaded.unused:
        names = ", ".join(loaded.unused[:_NAMED]) + (", …" if len(loaded.unused) > _NAMED else "")
        yield f"{folder} has {plural(len(loaded.unused), 'tensor')} that the model has no place for: {names}"
    if isinstance(loaded.model, BERTClassifier | ViTClassifier):
        classes = loaded.model.output.out_features
        if are_classes_numbered(loaded.config, classes):
            yield f"id2label of {folder / CONFIG} does not name {classes} classes, so they are LABEL_0, LABEL_1, …"
    if task in _GENERATORS and (entries := ignored_entries(read_generation_config(loaded.config))):
        values = ", ".join(f"{key}={reprlib.repr(value)}" for key, value in entries.items())
        yield f"{folder} asks for {values}, which regard does not apply; type options of the command instead"


def evaluate_released(folder: Path, predictor: Predictor[Any, Any], options: Any, progress: Progress) -> Evaluation:
    """The scores of a released model on the files that `options` name."""
    task = released_task(folder)
    evaluate = RELEASED[task].evaluate
    if evaluate is None:
        raise ValueError(f"{folder} is a released model of {task}, which only a run is evaluated for; use predict")
    if not options.test:
        raise ValueError(f"{folder} is a released model, which has no data of its own; name files with --test")
    return evaluate(predictor, options, progress)
