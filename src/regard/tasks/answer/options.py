"""The options of the task answer and of its model.  No torch here: a command line reads them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from regard.common.options.fields import at_least, inner_share, left_open, share
from regard.inference.evaluation import EXAMPLES
from regard.tasks.base import Budget, ModelOptions
from regard.tasks.shared.text_options import COSINE, EvaluateTextFiles, TextFilesConfig, check_valid_share


@dataclass(frozen=True)
class MemN2NOptions(ModelOptions):
    """An end-to-end memory network  (Sukhbaatar et al. 2015)."""

    model_class: ClassVar[str] = "regard.models.reading.memn2n:MemN2N"

    attention: str = "dot"
    """How a hop attends to the sentences: the paper's dot product, or another mechanism that reads values."""
    width: int = at_least(1)
    """The width of word vectors."""
    hops: int = at_least(1, 3)
    """How often the memory is read."""
    tying: Literal["adjacent", "layer-wise"] = "adjacent"
    """Whether a hop reads by the vectors that the hop before it returned, or all hops have the same vectors."""
    position: Literal["code", "paper", "none"] = "code"
    """The code of word order: that of the authors' code, that of the paper, or none, a bag of words."""
    nonlinear: bool = True
    """A relu behind every hop."""


@dataclass(frozen=True)
class EvaluateAnswers(EvaluateTextFiles):
    """Options of `regard evaluate` for questions."""

    test: tuple[Path, ...] = ()
    """Other questions: a file per task of the run, named like it, or a folder of them."""


@dataclass(frozen=True)
class Answer(TextFilesConfig):
    """Answer questions about stories: files of bAbI, or an embedded world, train one memory network per task."""

    name: ClassVar[str] = "answer"
    task_class: ClassVar[str] = "regard.tasks.answer.task:AnswerTask"
    summary: ClassVar[str] = "answer questions about stories: your own files of bAbI, or a small world"
    unit: ClassVar[str] = "questions"
    content: ClassVar[str] = "stories"
    embedded: ClassVar[str] = "stories"
    budgets: ClassVar[dict[str, Budget]] = {"stories": Budget(minutes=3.0), "files": Budget(minutes=15.0)}
    metrics: ClassVar[dict[str, bool]] = {"error": False, "failed tasks": False, "support": True, "nll": False}
    training: ClassVar[dict[str, Any]] = {**COSINE, "lr": 5e-3, "warmup": 50, "clip": 40.0, "validate_every": 500}
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "stories": {"width": 32, "batch": 32, "linear_epochs": 8, "restarts": 3},
        "files": {"width": 32, "batch": 64, "linear_epochs": 5, "restarts": 3},
    }
    models: ClassVar[dict[str, type[ModelOptions]]] = {"memn2n": MemN2NOptions}
    varies_help: ClassVar[str] = "Mechanisms that read values by scores, by name, as `regard list` has them."
    run_files: ClassVar[tuple[str, ...]] = ("stories.json", EXAMPLES, "baseline.safetensors")
    weight_fields: ClassVar[tuple[str, ...]] = ("joint", "restarts", "memory")
    vocabulary_files: ClassVar[tuple[str, ...]] = ("stories.json",)
    has_line_breaks: ClassVar[bool] = True
    picture_suffixes: ClassVar[tuple[str, ...]] = (".png", ".svg", ".pdf", ".html", ".txt")
    usage: ClassVar[str] = "view {run}"
    Evaluate: ClassVar[type] = EvaluateAnswers

    data: Literal["stories"] | None = None
    """An embedded data set that needs no file: a world of people, places and things, in six kinds of questions."""
    train: tuple[Path, ...] = ()
    """Your own stories: files of bAbI, one per task, or folders of them (NAME_train.txt); .gz is unpacked."""
    valid: tuple[Path, ...] = ()
    """Stories to choose weights and restarts by, a file per task; if left out, a share of the training stories."""
    test: tuple[Path, ...] = ()
    """Stories that only `regard evaluate` reads, a file per task; if left out, those of --valid."""

    joint: bool = False
    """One network for all tasks, instead of one per task."""
    restarts: int = at_least(1)
    """Networks per task with other initial weights, of which validation chooses one."""
    model: MemN2NOptions = left_open()
    """The memory network."""
    memory: int = at_least(1, 50)
    """Sentences that a network remembers, the newest ones."""
    noise: float = share(0.1)
    """The share of sentences before which training inserts an empty slot."""
    linear_epochs: int = at_least(0)
    """Epochs at the start of training without the softmax of the attention."""
    max_length: int = at_least(1, 5000)
    """Stories of more words are an error: none is cut off."""

    batch: int = at_least(1)
    """Questions per batch of each network; a step takes one batch from every network."""
    valid_share: float = inner_share(0.1)
    """Without --valid: the share of the training stories of each task that is held out to validate on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_valid_share(self)
