"""PretrainedPart: an encoder or decoder whose weights a folder has: read from there, written into the run, restored.

    encoder = PretrainedEncoder.prepare(options, run, new)     in `prepare` of a task
    model = SomeModel(encoder.build(options), …)               in `build_model`: initial weights of the folder
    encoder = PretrainedEncoder.of_run(run)                    in `predictor`: the folder is not needed any more

A run has a file of facts, by which the part is built, with the fingerprint of its first weights; its checkpoints have
all weights.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

from torch import Tensor, nn

from regard.common import atomic_files
from regard.layers.transformer import EncoderLayer
from regard.models.pretrained import load_pretrained
from regard.models.pretrained.architecture import activation_name
from regard.models.pretrained.folder import CONFIG, CheckpointConfig, read_config
from regard.models.pretrained.loading import PretrainedModel
from regard.models.transfer.fine_tuned_encoder import copy_weights
from regard.models.transfer.text_encoder import check_levels
from regard.tasks.shared.encoder_options import FineTuningOptions, LevelEncoderOptions
from regard.training.run_folder import BEST, LAST, RECORD, RunRecord, initial_folder


class PretrainedPart(ABC):
    """The facts of a part; `folder` has the weights to start with, None if a checkpoint of the run has all."""

    facts_file: ClassVar[str]

    facts: Any
    folder: Path | None

    @classmethod
    @abstractmethod
    def of_folder(cls, folder: Path) -> Self:
        """The part of a run, or of a folder in transformers' layout."""

    @classmethod
    @abstractmethod
    def of_run(cls, run: Path) -> Self:
        """The part that a run has written; its weights are in the checkpoints of the run."""

    @classmethod
    def prepare_from(cls, folder: Path, run: Path, new: bool, check: Callable[[Self], None]) -> Self:
        """The part of a training: a new run reads its folder, and `check` raises if it does not fit; others load it."""
        is_written = not new and (run / cls.facts_file).exists()
        if is_written and (run / LAST).exists():
            return cls.of_run(run)
        initial = initial_folder(run)
        # the weights of a run to start from replace those of the folder
        part = cls.of_folder(folder) if initial is None else cls.of_run(initial)
        check(part)
        # without a checkpoint the weights come from the folder again
        if is_written and cls.of_run(run).facts.weights_sha256 != part.facts.weights_sha256:
            raise ValueError(
                f"the weights of {folder} have changed since {run} began, which has no checkpoint yet; "
                "put them back, or train in another folder"
            )
        return part

    def write(self, run: Path) -> None:
        """Writes the facts into a run."""
        content = [json.dumps(asdict(self.facts)).encode(), b"\n"]
        atomic_files.write_atomically(run / self.facts_file, content)


class FolderContent(NamedTuple):
    """An encoder, its weights by the names of its model, and its tokenizer if it reads text."""

    facts: Any
    weights: dict[str, Tensor]
    tokenizer: Any = None


class FolderEncoder(PretrainedPart):
    """An encoder of the folder that --encoder names: a run with one, or a folder in transformers' layout."""

    model_name: ClassVar[str]
    architecture: ClassVar[str]
    inputs: ClassVar[str]
    suitable_runs: ClassVar[str]

    @classmethod
    @abstractmethod
    def read_run(cls, folder: Path, record: RunRecord) -> FolderContent:
        """The encoder of a run."""

    @classmethod
    @abstractmethod
    def read_released(cls, folder: Path, config: CheckpointConfig, loaded: PretrainedModel) -> FolderContent:
        """The encoder of a folder in transformers' layout."""

    @classmethod
    def read(cls, folder: Path) -> FolderContent:
        """The content of a folder."""
        if (folder / RECORD).exists():
            record = RunRecord.read(folder)
            record.check_files(folder)
            return cls.read_run(folder, record)
        if not (folder / CONFIG).exists():
            lack = "holds neither" if folder.is_dir() else "is no folder with"
            raise FileNotFoundError(
                f"{folder} {lack} {CONFIG} and weights nor a run ({RECORD}); "
                f"name a {cls.model_name} in transformers' layout, or {cls.suitable_runs}"
            )
        config = read_config(folder)
        names, kind = config.values.get("architectures"), cls.model_name.lower()
        name = str(names[0]) if isinstance(names, list) and names else str(config.values.get("model_type", kind))
        if not name.lower().startswith(kind):
            raise ValueError(
                f"{folder} holds a {name}, and an encoder of {cls.inputs} is a {cls.model_name}; "
                f"name a folder with one, or {cls.suitable_runs}"
            )
        loaded = load_pretrained(folder, architecture=cls.architecture)
        loaded.model.pooler = None  # type: ignore[assignment]
        return cls.read_released(folder, config, loaded)

    @classmethod
    def prepare(cls, options: FineTuningOptions, run: Path, new: bool) -> Self:
        """The encoder of a training: a new run reads its folder and writes what it needs later; others load that."""

        def check(encoder: Self) -> None:
            options.frozen_parts(encoder.facts.layers)
            check_levels(levels_of(options), encoder.facts.layers)

        encoder = cls.prepare_from(options.encoder, run, new, check)
        if new or not (run / cls.facts_file).exists():
            encoder.write(run)
        return encoder

    def load_initial_weights(self, model: nn.Module, attention: str | None, freeze: str) -> None:
        """Copies the weights of the folder, if the run has none yet; raises if frozen parameters would stay random."""
        if self.folder is None or next(model.parameters()).is_meta:
            return
        weights, parameters = self.read(self.folder).weights, dict(model.named_parameters())
        random = [name for name, p in parameters.items() if name not in weights and not p.requires_grad]
        if random:
            raise ValueError(
                f"attention={attention!r} has weights of its own, {random[0]!r} first, and "
                f"freeze={freeze} would leave them random; train all layers with freeze=none"
            )
        copy_weights(model, {name: tensor for name, tensor in weights.items() if name in parameters})


def levels_of(options: FineTuningOptions) -> tuple[int, ...]:
    """The layers whose states are read; none are the last alone."""
    return options.levels if isinstance(options, LevelEncoderOptions) else ()


def best_checkpoint(folder: Path) -> Path:
    """The best checkpoint of a run, the last one if it was not validated."""
    path = folder / (BEST if (folder / BEST).exists() else LAST)
    if not path.exists():
        raise FileNotFoundError(f"{folder} has no {BEST} yet; train it: regard train --resume {folder}")
    return path


def weights_fingerprint(weights: Mapping[str, Tensor]) -> str:
    """The SHA-256 of names, shapes and numbers."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(f"{name} {tuple(weights[name].shape)}\n".encode())
        digest.update(weights[name].detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def layer_facts(model: Any) -> dict[str, Any]:
    """The arguments of a BERT or ViT that its layers were built by."""
    layer = model.layers[0]
    assert isinstance(layer, EncoderLayer)
    return {
        "width": model.width,
        "layers": len(model.layers),
        "heads": layer.attention.heads,
        "feed": layer.feed.inner.out_features,  # type: ignore[union-attr]
        "activation": activation_name(layer.feed.activation),  # type: ignore[arg-type]
        "dropout": model.dropout.p,
    }
