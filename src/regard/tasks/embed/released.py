"""Released encoders: a folder with a bare BERT in transformers' layout as an EmbedPredictor."""

import json
from pathlib import Path

from regard.data.text.pairs import read_pairs
from regard.data.text.subwords import PretrainedSubwords
from regard.inference.evaluation import Evaluation, Progress
from regard.models.bert import BERT
from regard.models.pretrained.folder import read_json
from regard.models.pretrained.loading import PretrainedModel
from regard.models.transfer.text_embedder import TextEmbedder
from regard.models.transfer.text_encoder import TextEncoder
from regard.tasks.embed.predictor import EmbedPredictor
from regard.tasks.embed.task import evaluate_pairs
from regard.tasks.shared.text_options import EvaluateTextFiles

# the file of sentence-transformers that names the pooling, and its names
_POOLING = Path("1_Pooling", "config.json")
_MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first", "pooling_mode_max_tokens": "max"}
# its file of the modules behind the encoder, and those that are supported
_MODULES = "modules.json"
_KINDS = ("Transformer", "Pooling", "Normalize")
_TEMPERATURE = 0.05


def released_embedder(loaded: PretrainedModel) -> EmbedPredictor:
    """Unit vectors, pooled as the folder says, or by the mean if it says nothing."""
    model = loaded.model
    assert isinstance(model, BERT)
    check_modules(loaded.config.folder)
    embedder = TextEmbedder(TextEncoder(model), pooling=read_pooling(loaded.config.folder))
    tokenizer = PretrainedSubwords(loaded.load_tokenizer())  # type: ignore[arg-type]
    return EmbedPredictor(embedder.eval(), tokenizer, longest=model.positions.longest)


def check_modules(folder: Path) -> None:
    """Raises if a folder of sentence-transformers has layers that vectors of a BERT and its pooling do not have."""
    path = folder / _MODULES
    if not path.exists():
        return
    try:
        modules = json.loads(path.read_text(encoding="utf-8"))
        kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
        places = [module["path"] for module in modules if str(module["type"]).endswith(".Pooling")]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} must be a list of modules with type and path ({error}); restore it") from error
    if others := [kind for kind in kinds if kind not in _KINDS]:
        raise ValueError(
            f"{path} has a module {others[0]!r}, and regard supports {', '.join(_KINDS)}; take another checkpoint"
        )
    if places not in ([], [_POOLING.parent.name]):
        raise ValueError(
            f"{path} has its pooling in {places}, and regard reads one in {_POOLING.parent.name}; rename the folder"
        )


def read_pooling(folder: Path) -> str:
    """The pooling of a folder of sentence-transformers; "mean" if it has no file of that."""
    path = folder / _POOLING
    if not path.exists():
        return "mean"
    modes = [name for name, value in read_json(path).items() if name.startswith("pooling_mode_") and value is True]
    if len(modes) != 1 or modes[0] not in _MODES:
        raise ValueError(
            f"{path} asks for {' and '.join(modes) or 'no pooling'}, and regard supports one of {', '.join(_MODES)}; "
            "change the file, or take another checkpoint"
        )
    return _MODES[modes[0]]


def evaluate_embedder(predictor: EmbedPredictor, options: EvaluateTextFiles, progress: Progress) -> Evaluation:
    """Retrieval among the pairs of --test."""
    return evaluate_pairs(predictor, read_pairs(options.test), " ".join(map(str, options.test)), progress, _TEMPERATURE)
