"""A pretrained encoder of texts in a task: read from the folder that --encoder names, written into the run, restored.

    encoder = PretrainedEncoder.prepare(options, run, new)     in `prepare` of a task
    model = SomeModel(encoder.build(options), …)               in `build_model`: initial weights of the folder
    encoder = PretrainedEncoder.of_run(run)                    in `predictor`: the folder is not needed any more
    tokens, lengths, types = pad_texts(encoder.tokenizer.encode(texts, encoder.longest), encoder.tokenizer.pad)

A run has encoder.json, the sizes of the encoder and the fingerprint of its first weights, and encoder-tokens.json, its
tokenizer; its checkpoints have all weights.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from regard.common import atomic_files
from regard.common.dataclass_json import dataclass_from_file
from regard.common.position_names import BOUNDED_POSITIONS
from regard.data.text.subwords import (
    EncodedText,
    PretrainedSubwords,
    RunSubwords,
    SubwordTokenizer,
    read_subwords,
)
from regard.layers.transformer import EncoderLayer
from regard.models.bert import BERT
from regard.models.pretrained import load_pretrained
from regard.models.pretrained.architecture import ACTIVATIONS, activation_name
from regard.models.pretrained.folder import CONFIG, read_config
from regard.models.transfer.fine_tuned_encoder import copy_weights
from regard.models.transfer.text_encoder import TextEncoder, check_levels
from regard.tasks.shared.encoder_options import ENCODER_FILES, EncoderOptions, FineTuningOptions, LevelEncoderOptions
from regard.tasks.shared.text_generation import read_tokenizer
from regard.training import checkpoint
from regard.training.run_folder import BEST, LAST, RECORD, RunRecord, initial_folder

_FACTS, _TOKENS = ENCODER_FILES
_MASKED_LM = "masked-lm"
# the names of an encoder's weights in a checkpoint begin with one of these
_PLACES = ("model.encoder.bert.", "model.vectors.encoder.bert.")


@dataclass(frozen=True)
class EncoderFacts:
    """The arguments of a BERT, the name of the folder that it came from, and the fingerprint of its weights there."""

    source: str
    weights_sha256: str
    vocabulary: int
    width: int
    layers: int
    heads: int
    feed: int
    longest: int
    types: int
    positions: str
    norm: str
    attention: str | None
    activation: str
    eps: float
    dropout: float

    @staticmethod
    def of(bert: BERT, attention: str | None, folder: Path, weights: Mapping[str, Tensor]) -> "EncoderFacts":
        layer = bert.layers[0]
        assert isinstance(layer, EncoderLayer)
        return EncoderFacts(
            source=folder.name,
            weights_sha256=weights_fingerprint(weights),
            vocabulary=bert.embedding.num_embeddings,
            width=bert.width,
            layers=len(bert.layers),
            heads=layer.attention.heads,
            feed=layer.feed.inner.out_features,  # type: ignore[union-attr, arg-type]
            longest=bert.positions.longest,
            types=bert.types.num_embeddings,
            positions=bert.positions.name,
            norm="pre" if layer.around_attention.norm_first else "post",
            attention=attention,
            activation=activation_name(layer.feed.activation),  # type: ignore[arg-type]
            eps=bert.embedding_norm.eps,
            dropout=bert.dropout.p,
        )

    def build(self, attention: str | None = None) -> BERT:
        """The encoder with random weights; `attention` replaces that of its heads."""
        return BERT(
            self.vocabulary,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            feed=self.feed,
            longest=self.longest,
            types=self.types,
            positions=self.positions,
            norm=self.norm,
            attention=self.attention if attention is None else attention,
            activation=ACTIVATIONS[self.activation](),
            eps=self.eps,
            dropout=self.dropout,
        )


# sizes for a first call of a model, before the folder is read
SMALLEST = EncoderFacts("", "", 11, 8, 1, 1, 8, 16, 2, "learned", "post", None, "gelu", 1e-12, 0.0)


def smallest_encoder(options: EncoderOptions) -> TextEncoder:
    """An encoder with random weights, which shows whether the options of a model fit together."""
    frozen = 0 if options.freeze == "none" else 1
    return TextEncoder(SMALLEST.build(options.attention), frozen=frozen)


def levels_of(options: FineTuningOptions) -> tuple[int, ...]:
    """The layers whose states are read; none are the last alone."""
    return options.levels if isinstance(options, LevelEncoderOptions) else ()


class _Source(NamedTuple):
    """The content of a folder: an encoder, its tokenizer, and its weights by the names of BERT."""

    facts: EncoderFacts
    tokenizer: SubwordTokenizer
    weights: dict[str, Tensor]


@dataclass(frozen=True, eq=False)
class PretrainedEncoder:
    """An encoder and its tokenizer; `folder` has the weights to start with, None if a checkpoint of the run has all."""

    facts: EncoderFacts
    tokenizer: SubwordTokenizer
    folder: Path | None = None

    @property
    def longest(self) -> int | None:
        """The longest input in tokens; None if its positions have no table."""
        return self.facts.longest if self.facts.positions in BOUNDED_POSITIONS else None

    def longest_input(self, max_length: int) -> int:
        """The tokens after which a task cuts inputs: those of its own limit, or fewer if the encoder reads fewer."""
        return max_length if self.longest is None else min(max_length, self.longest)

    @staticmethod
    def of_folder(folder: Path) -> "PretrainedEncoder":
        """The encoder of a run of masked-lm, of a run with an encoder, or of a folder in transformers' layout."""
        source = _read(folder)
        return PretrainedEncoder(source.facts, source.tokenizer, folder)

    @staticmethod
    def of_run(run: Path) -> "PretrainedEncoder":
        """The encoder that a run has written; its weights are in the checkpoints of the run."""
        path = run / _TOKENS
        facts = dataclass_from_file(EncoderFacts, run / _FACTS, "an encoder")
        if not path.exists():
            raise FileNotFoundError(f"{run} holds no {path.name}; name the folder of a training run")
        try:
            tokenizer = read_subwords(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is no tokenizer ({error}); restore it, or train in another folder") from error
        return PretrainedEncoder(facts, tokenizer)

    def __post_init__(self) -> None:
        if self.tokenizer.frame.second_type >= self.facts.types:
            # a model of one type reads both texts of a pair as that type
            self.tokenizer.frame = replace(self.tokenizer.frame, second_type=0)

    @staticmethod
    def prepare(options: EncoderOptions, run: Path, new: bool) -> "PretrainedEncoder":
        """The encoder of a training: a new run reads its folder and writes what it needs later; others load that."""
        return prepare_encoder(PretrainedEncoder, options, run, new)

    def write(self, run: Path) -> None:
        """Writes the files of ENCODER_FILES."""
        atomic_files.write_atomically(run / _TOKENS, [self.tokenizer.to_json().encode()])
        atomic_files.write_atomically(run / _FACTS, [json.dumps(asdict(self.facts)).encode(), b"\n"])

    def build(self, options: EncoderOptions) -> TextEncoder:
        """The encoder of a model, with the weights of the folder if the run has none yet."""
        bert = self.facts.build(options.attention)
        encoder = TextEncoder(bert, frozen=options.frozen_parts(self.facts.layers), levels=levels_of(options))
        if self.folder is not None and not bert.embedding.weight.is_meta:
            load_initial_weights(bert, _read(self.folder).weights, options.attention, options.freeze)
        return encoder


class _SizedFacts(Protocol):
    @property
    def layers(self) -> int: ...

    @property
    def weights_sha256(self) -> str: ...


class EncoderOfRun(Protocol):
    """An encoder in a task, read from a folder or from a run."""

    @property
    def facts(self) -> _SizedFacts: ...

    @staticmethod
    def of_folder(folder: Path) -> Any: ...

    @staticmethod
    def of_run(run: Path) -> Any: ...

    def write(self, run: Path) -> None: ...


Encoder = TypeVar("Encoder", bound=EncoderOfRun)


def prepare_encoder(kind: type[Encoder], options: FineTuningOptions, run: Path, new: bool) -> Encoder:
    """The encoder of a training: a new run reads its folder and writes what it needs later; others load that."""
    encoder: Encoder
    if not new and (run / _FACTS).exists() and (run / LAST).exists():
        encoder = kind.of_run(run)
        return encoder
    initial = initial_folder(run)
    # the weights of a run to start from replace those of the folder
    encoder = kind.of_folder(options.encoder) if initial is None else kind.of_run(initial)
    options.frozen_parts(encoder.facts.layers)
    check_levels(levels_of(options), encoder.facts.layers)
    if (run / _FACTS).exists() and not new:
        # the first checkpoint is not there yet, so the weights come from the folder again
        if kind.of_run(run).facts.weights_sha256 != encoder.facts.weights_sha256:
            raise ValueError(
                f"the weights of {options.encoder} have changed since {run} began, which has no checkpoint yet; "
                "put them back, or train in another folder"
            )
        return encoder
    encoder.write(run)
    return encoder


def load_initial_weights(model: nn.Module, weights: Mapping[str, Tensor], attention: str | None, freeze: str) -> None:
    """Copies the weights of a folder; raises if parameters that are frozen would stay random."""
    random = [name for name, p in model.named_parameters() if name not in weights and not p.requires_grad]
    if random:
        raise ValueError(
            f"attention={attention!r} has weights of its own, {random[0]!r} first, and "
            f"freeze={freeze} would leave them random; train all layers with freeze=none"
        )
    own = dict(model.named_parameters())
    copy_weights(model, {name: tensor for name, tensor in weights.items() if name in own})


def _read(folder: Path) -> _Source:
    if (folder / RECORD).exists():
        return _read_run(folder)
    if (folder / CONFIG).exists():
        return _read_pretrained(folder)
    found = "holds neither" if folder.is_dir() else "is no folder with"
    raise FileNotFoundError(
        f"{folder} {found} {CONFIG} and weights nor a run ({RECORD}); "
        "name a BERT in transformers' layout, or a run of masked-lm"
    )


def _read_run(folder: Path) -> _Source:
    record = RunRecord.read(folder)
    record.check_files(folder)
    has_encoder = (folder / _FACTS).exists()
    if record.task != _MASKED_LM and not has_encoder:
        raise ValueError(
            f"{folder} is a run of {record.task}, which has no encoder of texts; "
            "name a run of masked-lm, or a BERT in transformers' layout"
        )
    path = folder / (BEST if (folder / BEST).exists() else LAST)
    if not path.exists():
        raise FileNotFoundError(f"{folder} has no {BEST} yet; train it: regard train --resume {folder}")
    stored = checkpoint.read(path)
    if has_encoder:
        before = PretrainedEncoder.of_run(folder)
        facts, tokenizer = before.facts, before.tokenizer
        options = record.options["model"]
        # the attention of a model above a frozen encoder is not that of its heads
        attention = (options.get("attention") if "freeze" in options else None) or facts.attention
        weights = next((found for place in _PLACES if (found := stored.under(place))), None)
        if weights is None:
            raise ValueError(
                f"{path} holds no weights of an encoder of texts, which {folder / _FACTS} describes; "
                "name a run of masked-lm, or a BERT in transformers' layout"
            )
        facts = replace(facts, source=folder.name, attention=attention, weights_sha256=weights_fingerprint(weights))
        return _Source(facts, tokenizer, weights)
    tokenizer = RunSubwords(read_tokenizer(folder / "tokens.json"))
    weights = stored.under("model.encoder.")
    return _Source(_facts_of_masked_lm(record.options, tokenizer, folder, weights), tokenizer, weights)


def _facts_of_masked_lm(
    options: Mapping[str, Any], tokenizer: SubwordTokenizer, folder: Path, weights: Mapping[str, Tensor]
) -> EncoderFacts:
    model = options["model"]
    with torch.device("meta"):
        bert = BERT(
            tokenizer.size,
            width=model["width"],
            layers=model["layers"],
            heads=model["heads"],
            longest=options["segment"],
            types=1,
            positions=model["positions"],
            norm=model["norm"],
            attention=model["attention"],
            dropout=model["dropout"],
        )
    return EncoderFacts.of(bert, model["attention"], folder, weights)


def _read_pretrained(folder: Path) -> _Source:
    config = read_config(folder)
    names = config.values.get("architectures")
    name = str(names[0]) if isinstance(names, list) and names else str(config.values.get("model_type", "bert"))
    if not name.lower().startswith("bert"):
        raise ValueError(
            f"{folder} holds a {name}, and an encoder of texts is a BERT; name a folder with one, or a run of masked-lm"
        )
    loaded = load_pretrained(folder, architecture="BertModel")
    tokenizer = PretrainedSubwords(loaded.load_tokenizer())  # type: ignore[arg-type]
    bert = loaded.model
    assert isinstance(bert, BERT)
    bert.pooler = None
    weights = {name: p.detach() for name, p in bert.named_parameters()}
    return _Source(EncoderFacts.of(bert, None, folder, weights), tokenizer, weights)


def weights_fingerprint(weights: Mapping[str, Tensor]) -> str:
    """The SHA-256 of names, shapes and numbers."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        digest.update(f"{name} {tuple(weights[name].shape)}\n".encode())
        digest.update(weights[name].detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


class PaddedTexts(NamedTuple):
    """Texts as tensors, with padding behind the shorter ones."""

    tokens: Tensor  # "b t"
    lengths: Tensor  # "b"
    types: Tensor  # "b t"

    def to(self, device: torch.device) -> "PaddedTexts":
        return PaddedTexts(*(t.to(device) for t in self))


def pad_texts(texts: Sequence[EncodedText], pad: int) -> PaddedTexts:
    """The tokens of texts with `pad` behind them, their lengths and their types."""
    lengths = np.array([len(text) for text in texts], np.int64)
    tokens = np.full((len(texts), int(lengths.max(initial=0))), pad, np.int64)
    types = np.zeros_like(tokens)
    for n, text in enumerate(texts):
        tokens[n, : len(text)] = text.ids
        types[n, : len(text)] = text.types
    return PaddedTexts(*map(torch.from_numpy, (tokens, lengths, types)))
