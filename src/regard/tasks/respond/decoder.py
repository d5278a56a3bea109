"""A pretrained decoder of replies: read from the folder that --decoder names, written into the run, restored.

    decoder = PretrainedDecoder.prepare(options, run, new)     in `prepare`
    model = decoder.build()                                    in `build_model`: initial weights of the folder
    decoder = PretrainedDecoder.of_run(run)                    in `predictor`: the folder is not needed any more

A run has decoder.json, the options or the config.json that the decoder is built by, and decoder-tokens.json, its
tokenizer; its checkpoints have all weights.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, final

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
from regard.tasks.shared.encoder import weights_fingerprint
from regard.tasks.shared.text_generation import read_tokenizer
from regard.training.run_folder import LAST, initial_folder

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
            task: Any = TASKS[_LANGUAGE_MODEL].from_json(self.options)
            built = task.model.build(vocabulary, task.segment)
        else:
            assert self.config is not None
            config = CheckpointConfig(Path(self.source), self.config)
            built = ARCHITECTURES[architecture_name(config)].build(config, frozenset())
        assert isinstance(built, TransformerLanguageModel)
        return built


@dataclass(frozen=True, eq=False)
class PretrainedDecoder:
    """A decoder and its tokenizer; `folder` has the weights to start with, None if a checkpoint of the run has all."""

    facts: DecoderFacts
    tokenizer: TextTokenizer
    folder: Path | None = None

    @staticmethod
    def of_folder(folder: Path) -> "PretrainedDecoder":
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
        return PretrainedDecoder(facts, tokenizer, folder)

    @staticmethod
    def of_run(run: Path) -> "PretrainedDecoder":
        """The decoder that a run has written; its weights are in the checkpoints of the run."""
        facts = dataclass_from_file(DecoderFacts, run / _FACTS, "a decoder")
        if facts.options is not None:
            return PretrainedDecoder(facts, read_tokenizer(run / _TOKENS))
        try:
            content = json.loads((run / _TOKENS).read_text(encoding="utf-8"))
            return PretrainedDecoder(facts, ReleasedTurns.from_json(content))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{run / _TOKENS} is no tokenizer ({error}); restore it, or train in another folder"
            ) from error

    @staticmethod
    def prepare(task: Respond, run: Path, new: bool) -> "PretrainedDecoder":
        """The decoder of a training: a new run reads its folder; others load what it wrote."""
        assert isinstance(task.model, DecoderOptions)
        if not new and (run / _FACTS).exists() and (run / LAST).exists():
            return PretrainedDecoder.of_run(run)
        initial = initial_folder(run)
        # the weights of a run to start from replace those of the folder
        folder = task.model.decoder
        decoder = PretrainedDecoder.of_folder(folder) if initial is None else PretrainedDecoder.of_run(initial)
        longest = decoder.facts.longest
        if longest is not None and task.longest > longest:
            raise ValueError(
                f"turns={task.turns} of words={task.words} tokens and a reply are up to {task.longest} tokens, and "
                f"{folder} reads {longest} at once; give fewer turns or words"
            )
        if (run / _FACTS).exists() and not new:
            # the first checkpoint is not there yet, so the weights come from the folder again
            before = PretrainedDecoder.of_run(run).facts
            if before.weights_sha256 != decoder.facts.weights_sha256:
                raise ValueError(
                    f"the weights of {folder} have changed since {run} began, which has no checkpoint yet; "
                    "put them back, or train in another folder"
                )
        return decoder

    def write(self, run: Path) -> None:
        """Writes the files of DECODER_FILES."""
        assert isinstance(self.tokenizer, Tokenizer | ReleasedTurns)
        atomic_files.make_folder(run)
        atomic_files.write_atomically(run / _TOKENS, [self.tokenizer.to_json().encode()])
        atomic_files.write_atomically(run / _FACTS, [json.dumps(asdict(self.facts)).encode(), b"\n"])

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
