"""A pretrained decoder of replies, from the folder that --decoder names.

A run has decoder.json, the options or the config.json that the decoder is built by, and decoder-tokens.json, its
tokenizer; its checkpoints have all weights.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self, final

from regard.common import atomic_files
from regard.common.dataclass_json import dataclass_from_file
from regard.data.text.special_tokens import SpecialTokens
from regard.data.text.text_tokenizer import TextTokenizer
from regard.data.text.tokenizer import Tokenizer
from regard.models.language_model import TransformerLanguageModel
from regard.models.pretrained.folder import CheckpointConfig, read_config
from regard.models.pretrained.loading import ARCHITECTURES, architecture_name
from regard.models.pretrained.prompt_tokenizer import ReleasedTokenizer
from regard.models.responding.flat import FlatResponder
from regard.tasks.loading import LoadedRun, load_run
from regard.tasks.registry import TASKS
from regard.tasks.respond.options import DECODER_FILES, DecoderOptions, Respond
from regard.tasks.shared.pretrained_part import PretrainedPart, weights_fingerprint
from regard.tasks.shared.text_generation import read_tokenizer

_FACTS, _TOKENS = DECODER_FILES
_LANGUAGE_MODEL = "language-model"


@final
class ReleasedTurns:
    """The tokenizer of a released language model as a TextTokenizer: turns to ids and back."""

    def __init__(self, tokenizer: ReleasedTokenizer) -> None:
        self.tokenizer, self.special = tokenizer, tokenizer.special

    def __len__(self) -> int:
        return len(self.tokenizer)

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [self.tokenizer.encode_text(line) for line in lines]

    def decode(self, ids: Iterable[int]) -> str:
        return self.tokenizer.decode([n for n in ids if n not in (self.special.bos, self.special.eos)])

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return self.tokenizer.pieces(ids)

    def pieces_of(self, line: str) -> list[str]:
        return self.pieces(self.tokenizer.encode_text(line))

    def to_json(self) -> str:
        return json.dumps({"library": json.loads(self.tokenizer.library_json()), "special": list(self.special)})

    @staticmethod
    def from_json(content: dict[str, Any]) -> "ReleasedTurns":
        pad, bos, eos, unk, forbidden = content["special"]
        special = SpecialTokens(pad, bos, eos, unk, tuple(forbidden))
        return ReleasedTurns(ReleasedTokenizer.from_library_json(json.dumps(content["library"]), special))


@dataclass(frozen=True)
class DecoderFacts:
    """The name of the folder that a decoder came from, the fingerprint of its weights, and how it is built.

    `options` are those of a run of language-model, `config` the content of a config.json; one of them is None.
    """

    source: str
    weights_sha256: str
    longest: int | None  # the tokens that it reads at once; None: any
    options: dict[str, Any] | None
    config: dict[str, Any] | None

    def build(self, vocabulary: int) -> TransformerLanguageModel:
        """The decoder with random weights."""
        if self.options is not None:
            config: Any = TASKS[_LANGUAGE_MODEL].from_json(self.options)
            built = config.model.build(vocabulary, config.segment)
        else:
            assert self.config is not None
            config = CheckpointConfig(Path(self.source), self.config)
            built = ARCHITECTURES[architecture_name(config)].build(config, frozenset())
        assert isinstance(built, TransformerLanguageModel)
        return built


@dataclass(frozen=True, eq=False)
class PretrainedDecoder(PretrainedPart):
    """A decoder and its tokenizer; `folder` has the weights to start with, None if a checkpoint of the run has all."""

    facts_file: ClassVar[str] = _FACTS

    facts: DecoderFacts
    tokenizer: TextTokenizer
    folder: Path | None = None

    @classmethod
    def of_folder(cls, folder: Path) -> Self:
        """The decoder of a run of language-model, or of a folder in transformers' layout."""
        loaded = _load(folder)
        predictor: Any = loaded.predictor
        FlatResponder(predictor.model)  # raises for one that cannot read dialogues
        is_run = loaded.weights != "released"
        facts = DecoderFacts(
            folder.name,
            weights_fingerprint(dict(predictor.model.named_parameters())),
            predictor.longest,
            loaded.config.to_json() if is_run else None,
            None if is_run else dict(read_config(folder).values),
        )
        tokenizer = predictor.tokenizer if is_run else ReleasedTurns(predictor.tokenizer)
        if tokenizer.special.eos < 0:
            raise ValueError(
                f"{folder} has no token that ends a text (eos_token_id of its config.json), so no reply would end; "
                "name another decoder"
            )
        return cls(facts, tokenizer, folder)

    @classmethod
    def of_run(cls, run: Path) -> Self:
        facts = dataclass_from_file(DecoderFacts, run / _FACTS, "a decoder")
        if facts.options is not None:
            return cls(facts, read_tokenizer(run / _TOKENS))
        try:
            content = json.loads((run / _TOKENS).read_text(encoding="utf-8"))
            return cls(facts, ReleasedTurns.from_json(content))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{run / _TOKENS} is no tokenizer ({error}); restore it, or train in another folder"
            ) from error

    @classmethod
    def prepare(cls, config: Respond, run: Path, new: bool) -> Self:
        """The decoder of a training: a new run reads its folder; others load what it wrote."""
        assert isinstance(config.model, DecoderOptions)
        folder = config.model.decoder

        def check(decoder: Self) -> None:
            longest = decoder.facts.longest
            if longest is not None and config.longest > longest:
                raise ValueError(
                    f"turns={config.turns} of words={config.words} tokens and a reply are up to {config.longest} "
                    f"tokens, and {folder} reads {longest} at once; give fewer turns or words"
                )

        return cls.prepare_from(folder, run, new, check)

    def write(self, run: Path) -> None:
        """Writes the files of DECODER_FILES."""
        assert isinstance(self.tokenizer, Tokenizer | ReleasedTurns)
        atomic_files.make_folder(run)
        atomic_files.write_atomically(run / _TOKENS, [self.tokenizer.to_json().encode()])
        super().write(run)

    def build(self) -> FlatResponder:
        """The model, with the weights of the folder if the run has none yet."""
        decoder = self.facts.build(len(self.tokenizer))
        if self.folder is not None and not next(decoder.parameters()).is_meta:
            decoder.load_state_dict(_load(self.folder).predictor.model.state_dict())
        return FlatResponder(decoder)


def _load(folder: Path) -> LoadedRun:
    loaded = load_run(folder, device="cpu")
    if loaded.config.name != _LANGUAGE_MODEL:
        raise ValueError(
            f"{folder} is a model of {loaded.config.name}, which continues no text; name a run of language-model, or a "
            "GPT-2 or Llama in transformers' layout"
        )
    if not isinstance(loaded.predictor.model, TransformerLanguageModel):
        raise ValueError(
            f"{folder} holds a {type(loaded.predictor.model).__name__}, and a decoder of replies is a Transformer; "
            "name a run of language-model with --model gpt2"
        )
    return loaded
