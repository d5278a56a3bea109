"""The options of the task transcribe and of its models.  No torch here: a command line reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from regard.common.input_kind import InputKind
from regard.common.options.checks import CheckedOptions
from regard.common.options.fields import (
    at_least,
    flag,
    left_open,
    option,
    positive,
    random_seed,
    resolve,
    share,
)
from regard.inference.evaluation import EXAMPLES
from regard.inference.limits import Limits
from regard.tasks.base import Budget, ModelOptions, TaskConfig
from regard.tasks.shared.text_options import COSINE, EvaluateSearch, check_learnable

# attentions that can write while they listen
_ONLINE = ("monotonic", "mocha")
# the largest mask of SpecAugment
_MASK_FRAMES, _MASK_BANDS = 20, 8


@dataclass(frozen=True)
class ListenerOptions(ModelOptions):
    """Options of every model that transcribes."""

    attention: str = left_open()
    """A mechanism by name (see `regard list`)."""
    width: int = at_least(1)
    """The width of embeddings, and of a Transformer's layers."""
    dropout: float = share(0.1)
    """The share of activations that dropout sets to zero in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_learnable(self.attention)


@dataclass(frozen=True)
class ListenAttendSpellOptions(ListenerOptions):
    """A pyramidal recurrent encoder, and a recurrent decoder that attends to its states."""

    model_class: ClassVar[str] = "regard.models.listening.listen_attend_spell:ListenAttendSpell"

    attention: str = left_open("location-sensitive; monotonic with --online")
    """A mechanism by name (see `regard list`)."""
    hidden: int = at_least(1)
    """The width of the recurrent state; an encoder of both directions has half of it in each."""
    pyramid: int = at_least(1, 2, maximum=5)
    """Layers of the encoder; every one halves the number of frames."""
    cell: Literal["gru", "lstm"] = "gru"
    """The recurrent cell."""
    online: bool = flag()
    """Write while listening: an encoder of one direction, and attention that is monotonic or mocha."""

    def __post_init__(self) -> None:
        resolve(self, {"attention": "monotonic" if self.online else "location-sensitive"})
        super().__post_init__()
        if self.online and self.attention not in _ONLINE:
            raise ValueError(
                f"attention={self.attention!r} attends to the whole sound, and online writes while it listens; "
                f"choose attention={_ONLINE[0]!r} or {_ONLINE[1]!r}, or leave online out"
            )


@dataclass(frozen=True)
class SpeechTransformerOptions(ListenerOptions):
    """Convolutions over frames, and an encoder and a decoder of attention layers."""

    model_class: ClassVar[str] = "regard.models.listening.speech_transformer:SpeechTransformer"
    training: ClassVar[dict[str, Any]] = {"lr": 1e-3}

    attention: str = "scaled-dot"
    """A mechanism by name (see `regard list`)."""
    layers: int = at_least(1, 3)
    """Layers of the encoder and of the decoder."""
    heads: int = at_least(1, 4, divides="width")
    """Heads of every attention."""
    convolutions: int = at_least(1, 2)
    """Convolutions below the encoder; every one halves the number of frames."""


@dataclass(frozen=True)
class EvaluateTranscripts(EvaluateSearch):
    """Options of `regard evaluate` for transcripts."""

    test_form: ClassVar[str] = "one .tsv file or folder"

    times: int = at_least(1, 1)
    """With embedded data: utterances that are this many times as long as in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.test and self.times > 1:
            raise ValueError(
                f"--times {self.times} is for embedded data, and --test names files; leave one of them out"
            )


@dataclass(frozen=True)
class PredictTranscripts(CheckedOptions):
    """Options of `regard predict` for transcripts."""

    beam: int = left_open(5, minimum=1)
    """Hypotheses kept at every step; 1 takes the likeliest token at each."""
    top: int = at_least(1, 1)
    """Transcripts per file, the best first."""
    online: bool = flag()
    """Print letters while listening to the file; for runs that were trained with --online."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.online:
            for name, typed in (("beam", self.beam is not None), ("top", self.top > 1)):
                if typed:
                    raise ValueError(
                        f"--{name} {getattr(self, name)} searches the whole sound, and --online prints letters while "
                        "it listens; leave one of them out"
                    )
        resolve(self, {"beam": max(5, self.top)})
        if self.top > self.beam:
            raise ValueError(f"--top {self.top} exceeds --beam {self.beam}; raise --beam")


@dataclass(frozen=True)
class ServeSounds(CheckedOptions):
    """Limits of `regard serve` for sound."""

    sound: float = left_open(f"{Limits.sound:g}", minimum=1)
    """Seconds of all sounds of a request, at most."""
    body: int = at_least(1, 8_000_000)
    """Bytes per request, at most."""

    # no option: bodies may be large, and those of all connections are in memory
    connections: ClassVar[int] = 64


@dataclass(frozen=True)
class Transcribe(TaskConfig):
    """Transcribe speech: WAV files with transcripts, or embedded spelling, train a model with any attention."""

    name: ClassVar[str] = "transcribe"
    task_class: ClassVar[str] = "regard.tasks.transcribe.task:TranscribeTask"
    summary: ClassVar[str] = "write down speech: your own WAV files with transcripts, or synthesised spelling"
    unit: ClassVar[str] = "letters"
    input_kind: ClassVar[InputKind] = InputKind.AUDIO
    embedded: ClassVar[str] = "spelling"
    budgets: ClassVar[dict[str, Budget]] = {"spelling": Budget(steps=2400), "files": Budget(minutes=60.0)}
    metrics: ClassVar[dict[str, bool]] = {"cer": False, "wer": False, "nll": False}
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "spelling": {"rate": 8000, "width": 64, "hidden": 128},
        "files": {"rate": 16000, "width": 128, "hidden": 256},
    }
    models: ClassVar[dict[str, type[ModelOptions]]] = {
        "listen-attend-spell": ListenAttendSpellOptions,
        "transformer": SpeechTransformerOptions,
    }
    varies: ClassVar[str] = "attention"
    varies_help: ClassVar[str] = "Mechanisms by name, as `regard list` has them."
    run_files: ClassVar[tuple[str, ...]] = ("speech.json", EXAMPLES, "tokens.json")
    vocabulary_files: ClassVar[tuple[str, ...]] = ("speech.json", "tokens.json")
    weight_fields: ClassVar[tuple[str, ...]] = ("rate", "mels", "alphabet")
    training: ClassVar[dict[str, Any]] = {**COSINE, "lr": 2e-3, "validate_every": 400, "save_every": 200}
    content: ClassVar[str] = "sound"
    file_options: ClassVar[tuple[str, ...]] = ("valid", "test", "alphabet")
    usage: ClassVar[str] = "predict {run} SPEECH.wav --picture speech.png"
    is_served: ClassVar[bool] = True
    Evaluate: ClassVar[type] = EvaluateTranscripts
    Predict: ClassVar[type] = PredictTranscripts
    Serve: ClassVar[type] = ServeSounds

    data: Literal["spelling"] | None = None
    """An embedded data set that needs no file: words of the Python manual, spelled by synthesised voices in noise."""
    train: Path | None = option(None, metavar="FILE")
    """Your own speech: a .tsv file (path of a WAV file, tab, transcript), or a folder of Kaldi or LibriSpeech."""
    valid: Path | None = option(None, metavar="FILE")
    """Speech to choose the best weights by, in the format of --train; if left out, a tenth of the training files."""
    test: Path | None = option(None, metavar="FILE")
    """Speech that only `regard evaluate` reads; if left out, that of --valid."""
    alphabet: str | None = None
    """The letters of transcripts, such as "abc '"; if left out, those of the training transcripts."""

    rate: int = at_least(1000)
    """Samples per second that the model hears; other files are resampled."""
    mels: int = at_least(1, 40, maximum=1024)
    """Bands of the mel scale."""
    max_seconds: float = positive(20.0)
    """Longer files are dropped from training; their number is reported."""
    masks: int = at_least(0, 0)
    """SpecAugment: masks of frames, and as many of bands, per utterance; 0 is none."""
    mask_frames: int = at_least(1, _MASK_FRAMES)
    """Frames of a mask, at most."""
    mask_bands: int = at_least(1, _MASK_BANDS)
    """Bands of a mask, at most."""

    model: ListenAttendSpellOptions | SpeechTransformerOptions = left_open()
    """A pyramidal recurrent encoder with a recurrent decoder, or convolutions with a Transformer."""
    smoothing: float = share(0.0)
    """Label smoothing: the share of the target's probability that is spread over the vocabulary."""
    batch: int = at_least(1, 6400)
    """Frames per batch, one per 10 ms, padding included, at most."""
    valid_lines: int = at_least(1, 200)
    """Utterances to validate on, at most."""
    seed: int = random_seed(0)
    """Determines voices, initial weights, the order of batches, masks, and which files are held out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, usual in (("mask_frames", _MASK_FRAMES), ("mask_bands", _MASK_BANDS)):
            if not self.masks and (value := getattr(self, name)) != usual:
                raise ValueError(f"{name}={value} is the size of a mask, and there are none; give masks=2 as well")
        if self.alphabet is not None and not self.alphabet:
            raise ValueError(
                "alphabet must have one letter or more, got none; leave it out for those of the transcripts"
            )

    @classmethod
    def replaced(cls, option: str, value: Any, file: Mapping[str, Any]) -> Sequence[str]:
        """Also the attention of a file, where `online` or a model decides it anew."""
        return ("attention",) if option in ("online", "model") else super().replaced(option, value, file)
