"""A pretrained encoder of texts in a task, texts as tensors, and the states of an encoder that is not trained.

    tokens, lengths, types = pad_texts(encoder.tokenizer.encode(texts, encoder.longest), encoder.tokenizer.pad)

A run has encoder.json, the sizes of the encoder and the fingerprint of its first weights, and encoder-tokens.json, its
tokenizer; its checkpoints have all weights.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.common import atomic_files
from regard.common.dataclass_json import dataclass_from_file
from regard.common.eval_mode import eval_mode
from regard.common.options.construct import construct
from regard.common.position_names import BOUNDED_POSITIONS
from regard.data.text.subwords import EncodedText, PretrainedSubwords, RunSubwords, SubwordTokenizer, read_subwords
from regard.data.text.tokenizer import Tokenizer
from regard.models.bert import BERT
from regard.models.pretrained.architecture import ACTIVATIONS
from regard.models.pretrained.folder import CheckpointConfig
from regard.models.pretrained.loading import PretrainedModel
from regard.models.transfer.text_encoder import TextEncoder
from regard.tasks.shared.encoder_options import ENCODER_FILES, EncoderOptions
from regard.tasks.shared.pretrained_part import (
    FolderContent,
    FolderEncoder,
    best_checkpoint,
    layer_facts,
    levels_of,
    weights_fingerprint,
)
from regard.tasks.shared.text_generation import read_tokenizer
from regard.training import checkpoint
from regard.training.run_folder import RunRecord

_FACTS, _TOKENS = ENCODER_FILES
# texts whose states are computed together
_GROUP = 32
# bytes of states that are kept; if there are more, they are computed again in every step
MOST_BYTES = 2 << 30
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
        return EncoderFacts(
            source=folder.name,
            weights_sha256=weights_fingerprint(weights),
            vocabulary=bert.embedding.num_embeddings,
            longest=bert.positions.longest,
            types=bert.types.num_embeddings,
            positions=bert.positions.name,
            norm="pre" if bert.layers[0].around_attention.norm_first else "post",  # type: ignore[union-attr]
            attention=attention,
            eps=bert.embedding_norm.eps,
            **layer_facts(bert),
        )

    def build(self, attention: str | None = None) -> BERT:
        """The encoder with random weights; `attention` replaces that of its heads."""
        chosen = self.attention if attention is None else attention
        return construct(BERT, self, self.vocabulary, attention=chosen, activation=ACTIVATIONS[self.activation]())


# sizes for a first call of a model, before the folder is read
SMALLEST = EncoderFacts("", "", 11, 8, 1, 1, 8, 16, 2, "learned", "post", None, "gelu", 1e-12, 0.0)


def smallest_encoder(options: EncoderOptions) -> TextEncoder:
    """An encoder with random weights, which shows whether the options of a model fit together."""
    frozen = 0 if options.freeze == "none" else 1
    return TextEncoder(SMALLEST.build(options.attention), frozen=frozen)


@dataclass(frozen=True, eq=False)
class PretrainedEncoder(FolderEncoder):
    """An encoder and its tokenizer; `folder` has the weights to start with, None if a checkpoint of the run has all."""

    facts_file: ClassVar[str] = _FACTS
    model_name: ClassVar[str] = "BERT"
    architecture: ClassVar[str] = "BertModel"
    inputs: ClassVar[str] = "texts"
    suitable_runs: ClassVar[str] = "a run of masked-lm"

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

    @classmethod
    def of_folder(cls, folder: Path) -> Self:
        """The encoder of a run of masked-lm, of a run with an encoder, or of a folder in transformers' layout."""
        content = cls.read(folder)
        return cls(content.facts, content.tokenizer, folder)

    @classmethod
    def of_run(cls, run: Path) -> Self:
        path = run / _TOKENS
        facts = dataclass_from_file(EncoderFacts, run / _FACTS, "an encoder")
        if not path.exists():
            raise FileNotFoundError(f"{run} holds no {path.name}; name the folder of a training run")
        try:
            tokenizer = read_subwords(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is no tokenizer ({error}); restore it, or train in another folder") from error
        return cls(facts, tokenizer)

    def __post_init__(self) -> None:
        if self.tokenizer.frame.second_type >= self.facts.types:
            # a model of one type reads both texts of a pair as that type
            self.tokenizer.frame = replace(self.tokenizer.frame, second_type=0)

    def write(self, run: Path) -> None:
        """Writes the files of ENCODER_FILES."""
        atomic_files.write_atomically(run / _TOKENS, [self.tokenizer.to_json().encode()])
        super().write(run)

    def build(self, options: EncoderOptions) -> TextEncoder:
        """The encoder of a model, with the weights of the folder if the run has none yet."""
        bert = self.facts.build(options.attention)
        encoder = TextEncoder(bert, frozen=options.frozen_parts(self.facts.layers), levels=levels_of(options))
        self.load_initial_weights(bert, options.attention, options.freeze)
        return encoder

    @classmethod
    def read_run(cls, folder: Path, record: RunRecord) -> FolderContent:
        has_encoder = (folder / _FACTS).exists()
        if record.task != _MASKED_LM and not has_encoder:
            raise ValueError(
                f"{folder} is a run of {record.task}, which has no encoder of texts; "
                "name a run of masked-lm, or a BERT in transformers' layout"
            )
        path = best_checkpoint(folder)
        stored = checkpoint.read(path)
        if not has_encoder:
            tokenizer = RunSubwords(read_tokenizer(folder / "tokens.json"))
            weights = stored.under("model.encoder.")
            return FolderContent(_facts_of_masked_lm(record.options, tokenizer, folder, weights), weights, tokenizer)
        before = cls.of_run(folder)
        options = record.options["model"]
        # the attention of a model above a frozen encoder is not that of its heads
        attention = (options.get("attention") if "freeze" in options else None) or before.facts.attention
        weights = next(filter(None, map(stored.under, _PLACES)), {})
        if not weights:
            raise ValueError(
                f"{path} holds no weights of an encoder of texts, which {folder / _FACTS} describes; "
                "name a run of masked-lm, or a BERT in transformers' layout"
            )
        digest = weights_fingerprint(weights)
        facts = replace(before.facts, source=folder.name, attention=attention, weights_sha256=digest)
        return FolderContent(facts, weights, before.tokenizer)

    @classmethod
    def read_released(cls, folder: Path, config: CheckpointConfig, loaded: PretrainedModel) -> FolderContent:
        tokenizer = PretrainedSubwords(loaded.load_tokenizer())  # type: ignore[arg-type]
        bert = loaded.model
        assert isinstance(bert, BERT)
        weights = {name: p.detach() for name, p in bert.named_parameters()}
        return FolderContent(EncoderFacts.of(bert, None, folder, weights), weights, tokenizer)


def _facts_of_masked_lm(
    options: Mapping[str, Any], tokenizer: SubwordTokenizer, folder: Path, weights: Mapping[str, Tensor]
) -> EncoderFacts:
    model = options["model"]
    with torch.device("meta"):
        choices = {name: value for name, value in model.items() if name != "name"}
        bert = BERT(tokenizer.size, longest=options["segment"], types=1, **choices)
    return EncoderFacts.of(bert, model["attention"], folder, weights)


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


def smallest_pretrained(layers: int = 1) -> PretrainedEncoder:
    """An encoder and a tokenizer for a first call of a model, before anything is read."""
    return PretrainedEncoder(replace(SMALLEST, layers=layers), RunSubwords(Tokenizer.train("characters", ["x y"], 9)))


class FrozenStates:
    """The states of distinct texts by one frozen encoder, computed in groups when they are first read.

    A group depends on the texts alone, so that states have the same bits in any order of batches.
    """

    def __init__(self, texts: Iterable[tuple[int, ...]], pad: int) -> None:
        ordered = sorted({*texts}, key=lambda ids: (len(ids), ids))
        self.groups = [ordered[n : n + _GROUP] for n in range(0, len(ordered), _GROUP)]
        self.group_of = {ids: n for n, group in enumerate(self.groups) for ids in group}
        self.pad = pad
        self.states: dict[tuple[int, ...], Tensor] = {}

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.group_of))

    def read(self, encoder: TextEncoder, tokens: Tensor, lengths: Tensor) -> Tensor:  # "b t", "b" -> "b t d"
        """The states of texts that are padded behind their lengths, zeros behind the end."""
        rows = [tuple(row[:n]) for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)]
        for ids in rows:
            if ids and ids not in self.states:
                self._compute(encoder, self.groups[self.group_of[ids]], tokens.device)
        nothing = torch.zeros(0, encoder.width, device=tokens.device)
        return pad_sequence([self.states[ids] if ids else nothing for ids in rows], batch_first=True)

    @torch.no_grad()
    def _compute(self, encoder: TextEncoder, group: Sequence[tuple[int, ...]], device: torch.device) -> None:
        lengths = torch.tensor([len(ids) for ids in group], device=device)
        tokens = torch.full((len(group), max(map(len, group))), self.pad, device=device)
        for n, ids in enumerate(group):
            tokens[n, : len(ids)] = torch.tensor(ids, device=device)
        with eval_mode(encoder):
            states = encoder(tokens, lengths)
        for n, ids in enumerate(group):
            self.states[ids] = states[n, : len(ids)].clone()
