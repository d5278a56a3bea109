"""TASKS: the tasks by the names that a command line types.  No torch here."""

import sys
from pathlib import Path

from regard.tasks.agent.options import AgentConfig
from regard.tasks.answer.options import Answer
from regard.tasks.base import TaskConfig
from regard.tasks.caption.options import Caption
from regard.tasks.classify_clip.options import ClassifyClip
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.classify_text.options import ClassifyText
from regard.tasks.embed.options import Embed
from regard.tasks.generate_image.options import GenerateImage
from regard.tasks.glimpse.options import Glimpse
from regard.tasks.language_model.options import LanguageModelConfig
from regard.tasks.masked_lm.options import MaskedLM
from regard.tasks.match.options import Match
from regard.tasks.read.options import ReadConfig
from regard.tasks.respond.options import Respond
from regard.tasks.select_response.options import SelectResponse
from regard.tasks.tag.options import Tag
from regard.tasks.track.options import Track
from regard.tasks.transcribe.options import Transcribe
from regard.tasks.translate.options import Translate
from regard.training.run_folder import RECORD, RunRecord

TASKS: dict[str, type[TaskConfig]] = {
    "translate": Translate,
    "classify-image": ClassifyImage,
    "classify-clip": ClassifyClip,
    "caption": Caption,
    "transcribe": Transcribe,
    "glimpse": Glimpse,
    "generate-image": GenerateImage,
    "classify-text": ClassifyText,
    "tag": Tag,
    "match": Match,
    "select-response": SelectResponse,
    "respond": Respond,
    "track": Track,
    "answer": Answer,
    "read": ReadConfig,
    "language-model": LanguageModelConfig,
    "masked-lm": MaskedLM,
    "embed": Embed,
    "agent": AgentConfig,
}

# the file that every folder in transformers' layout has
_RELEASED = "config.json"


def config_from_record(record: RunRecord, run: Path) -> TaskConfig:
    """The task that a run recorded."""
    if record.task not in TASKS:
        raise ValueError(f"{run} is a run of {record.task!r}, which this version does not know; update regard")
    config = TASKS[record.task]
    for module in config.modules(record.options):
        # the module may be a file of the run folder itself
        if module not in sys.modules:
            raise ValueError(
                f"{run / RECORD} names the module {module}, and opening a run imports no module; if you trust it, add "
                f"--trust-module {module}, or in Python import it first"
            )
    try:
        return config.from_json(record.options)
    except (ValueError, TypeError, KeyError, ArithmeticError) as error:
        raise ValueError(
            f"{run / RECORD} has options that cannot be used ({error}); restore it, or train in another folder"
        ) from error


def is_released(folder: Path) -> bool:
    """Whether a folder holds a model in transformers' layout, and no run; raises if a folder holds neither."""
    if (folder / RECORD).exists() or not folder.is_dir():
        return False
    if not (folder / _RELEASED).exists() and not any(folder.glob(f"*/{RECORD}")):
        raise FileNotFoundError(
            f"{folder} holds neither {RECORD}, of a training, nor {_RELEASED}, of a model in transformers' layout; "
            "name the folder of one of them"
        )
    return (folder / _RELEASED).exists()


def describe(folder: Path, config: TaskConfig) -> str:
    """A folder and its task, for an error."""
    released = (folder / _RELEASED).exists() and not (folder / RECORD).exists()
    return f"{folder} is {'a released model' if released else 'a run'} of {config.name}"


def read_config(folder: Path) -> TaskConfig:
    """The options of a run; of a released model the default options of its task."""
    if is_released(folder):
        from regard.tasks.pretrained import released_task

        return TASKS[released_task(folder)]()
    return config_from_record(RunRecord.read(folder), folder)
