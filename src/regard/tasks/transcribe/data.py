"""Speech with transcripts: sound to hear, its features, and batches of it."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.data.audio.log_mel import HOP, MelBands, log_mel
from regard.data.audio.resampling import resample
from regard.data.audio.spec_augment import spec_augment
from regard.data.audio.transcripts import SpokenFile, read_transcripts
from regard.data.audio.wav import Sound, read_wav
from regard.data.embedded import spelling
from regard.data.splitting import Split, held_out, require_held_out
from regard.data.text.special_tokens import UNK
from regard.data.text.tokenizer import Tokenizer
from regard.data.unseen_labels import unseen_notes
from regard.tasks.shared.data_fingerprint import DataFingerprint, sha256_of
from regard.tasks.transcribe.options import Transcribe
from regard.training.protocol import TensorBatch

# the share of the training files that is held out where there are no validation files
_VALID = 0.1
# utterances of an epoch of embedded data, and of its other splits
_COUNTS: dict[Split, int] = {"train": 3200, "valid": 500, "test": 1000}
# utterances that the mean and the deviation of embedded features are measured on
_MEASURED = 100


class Speech(ABC):
    """Utterances with transcripts."""

    @property
    @abstractmethod
    def texts(self) -> Sequence[str]: ...

    @property
    @abstractmethod
    def seconds(self) -> NDArray[np.float64]:  # "n"
        """The length of every utterance, at least roughly."""

    @abstractmethod
    def sound(self, n: int, rate: int) -> Sound:
        """Utterance n at this rate."""

    def ends(self, n: int) -> NDArray[np.float64] | None:  # "letters"
        """The end of every letter of utterance n, in seconds; None if it is not known."""
        return None

    def epoch(self, number: int) -> "Speech":
        """The utterances of an epoch."""
        return self

    def __len__(self) -> int:
        return len(self.texts)


class SpelledSpeech(Speech):
    """Synthesised spelling; every epoch has words and voices of its own."""

    def __init__(self, split: Split, seed: int, count: int, times: int = 1, epoch: int = 0) -> None:
        self.split, self.seed, self.count, self.times, self.number = split, seed, count, times, epoch
        self._texts = [spelling.spelled_text(split, spelling.voice(split, self._seed(n)), times) for n in range(count)]

    @property
    def texts(self) -> Sequence[str]:
        return self._texts

    @property
    def seconds(self) -> NDArray[np.float64]:
        return np.array([spelling.expected_seconds(text) for text in self._texts])

    def sound(self, n: int, rate: int) -> Sound:
        samples = spelling.utterance(self.split, self._seed(n), self.times).samples
        return Sound(resample(samples, spelling.RATE, rate), rate)

    def ends(self, n: int) -> NDArray[np.float64]:
        return spelling.utterance(self.split, self._seed(n), self.times).ends

    def epoch(self, number: int) -> "SpelledSpeech":
        return _spelled(self.split, self.seed, self.count, self.times, number)

    def _seed(self, n: int) -> tuple[int, int, int]:
        return self.seed, self.number, n


# every batch of an epoch asks for its texts
_spelled = lru_cache(maxsize=2)(SpelledSpeech)


class SpeechFiles(Speech):
    """WAV files; their samples are read when they are asked for."""

    def __init__(self, files: Sequence[SpokenFile], seconds: NDArray[np.float64]) -> None:
        self.files, self._seconds = files, seconds
        self._texts = [file.text for file in files]

    @staticmethod
    def read(path: Path) -> "SpeechFiles":
        """The files that `path` names; raises for one that cannot be read."""
        files = read_transcripts(path)
        return SpeechFiles(files, np.array([_read(file).seconds for file in files]))

    @property
    def texts(self) -> Sequence[str]:
        return self._texts

    @property
    def seconds(self) -> NDArray[np.float64]:
        return self._seconds

    def sound(self, n: int, rate: int) -> Sound:
        return at_rate(_read(self.files[n]), rate)

    def take(self, index: NDArray[np.int64]) -> "SpeechFiles":
        return SpeechFiles([self.files[n] for n in index], self._seconds[index])


def _read(file: SpokenFile) -> Sound:
    try:
        sound = read_wav(file.path)
        check_long_enough(sound, str(file.path))
    except ValueError as error:
        raise ValueError(f"{file.line}: {error}") from error
    return sound


def at_rate(sound: Sound, rate: int) -> Sound:
    """The sound with this many samples per second."""
    return Sound(resample(sound.samples, sound.rate, rate), rate)


def check_long_enough(sound: Sound, label: str) -> None:
    """Raises for sound without a whole window."""
    if MelBands(max(sound.rate, 1000)).frames(len(sound.samples)) < 1:
        raise ValueError(f"{label} lasts {1000 * sound.seconds:.0f} ms, less than one window of 25 ms; record more")


# Splits


@dataclass(frozen=True, kw_only=True)
class SpeechFingerprint(DataFingerprint):
    """Numbers and hashes of the utterances of a run, and the mean and deviation of its features."""

    file: ClassVar[str] = "speech.json"
    unit: ClassVar[str] = "utterances"

    mean: list[float]  # per band
    deviation: list[float]

    @staticmethod
    def digest(valid: Speech) -> str:
        return sha256_of(f"{text}\n" for text in valid.texts)


def read_split(config: Transcribe, split: Split, times: int = 1) -> Speech:
    """The speech of one split; without test files, that of "test" is that of "valid"."""
    if config.train is None:
        return SpelledSpeech(split, config.seed, _COUNTS[split], times)
    if split == "test" and config.test is not None:
        return SpeechFiles.read(config.test)
    if split != "train" and config.valid is not None:
        return SpeechFiles.read(config.valid)
    train, valid = read_train_and_valid(config)
    return train if split == "train" else valid


def read_train_and_valid(config: Transcribe) -> tuple[Speech, Speech]:
    """The speech to train and to validate on; every file is read once."""
    if config.train is None:
        return read_split(config, "train"), read_split(config, "valid")
    speech = SpeechFiles.read(config.train)
    if config.valid is not None:
        return speech, SpeechFiles.read(config.valid)
    held = held_out(contents(speech), _VALID, config.seed)
    require_held_out(held, config.train, "utterances")
    return speech.take(np.flatnonzero(~held)), speech.take(np.flatnonzero(held))


def contents(speech: Speech) -> Iterator[bytes]:
    """The samples of every sound file, by which copies are known, whatever else is in it; embedded speech has none."""
    sounds = map(_read, speech.files) if isinstance(speech, SpeechFiles) else ()
    return (f"{sound.rate}\n".encode() + sound.samples.tobytes() for sound in sounds)


def fingerprint(config: Transcribe, train: Speech, valid: Speech) -> SpeechFingerprint:
    """Counts, hashes, and the statistics of the features."""
    bands, count = MelBands(config.rate, config.mels), 0
    total, squares = np.zeros(config.mels), np.zeros(config.mels)
    is_embedded = config.train is None
    digest = sha256()
    for n in range(min(len(train), _MEASURED) if is_embedded else len(train)):
        sound = train.sound(n, config.rate)
        digest.update(sound.samples.tobytes())
        frames = log_mel(torch.from_numpy(sound.samples), bands).numpy().astype(np.float64)
        total, squares, count = total + frames.sum(0), squares + np.square(frames).sum(0), count + len(frames)
    mean = total / count
    deviation = np.sqrt(np.maximum(squares / count - np.square(mean), 1e-6))
    return SpeechFingerprint(
        train=len(train),
        valid=len(valid),
        train_sha256=sha256_of([digest.hexdigest(), *train.texts]),
        valid_sha256=SpeechFingerprint.digest(valid),
        mean=mean.tolist(),
        deviation=deviation.tolist(),
    )


def unseen_letters(text: str, tokenizer: Tokenizer) -> list[str]:
    """The letters of a text that the model cannot write, in their order."""
    return [letter for letter in dict.fromkeys(text) if tokenizer.encode([letter])[0] == [UNK]]


def unseen_letter_notes(texts: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """A sentence about the letters of texts to evaluate that the model cannot write; none if there are none."""
    return unseen_notes("letters", sorted(unseen_letters("".join(texts), tokenizer)))


def check_alphabet(speech: Speech, tokenizer: Tokenizer, source: object) -> None:
    """Raises for a transcript with a letter that the model cannot write."""
    for n, text in enumerate(speech.texts):
        if unknown := unseen_letters(text, tokenizer):
            where = speech.files[n].line if isinstance(speech, SpeechFiles) else source
            raise ValueError(
                f"{where}: the transcript {text[:40]!r} has {unknown[0]!r}, which is outside the alphabet of the run; "
                "write it with the letters of the training transcripts, or add it by alphabet and train anew"
            )


# Features


class Features:
    """Log-mel features with a mean of 0 and a deviation of 1 per band."""

    def __init__(self, config: Transcribe, data: SpeechFingerprint) -> None:
        self.bands = MelBands(config.rate, config.mels)
        self.mean, self.deviation = torch.tensor(data.mean), torch.tensor(data.deviation)

    def frames(self, samples: NDArray[np.float32]) -> Tensor:  # "n" -> "t m"
        return (log_mel(torch.from_numpy(samples), self.bands) - self.mean) / self.deviation


def frame_counts(seconds: NDArray[np.float64]) -> NDArray[np.int64]:  # "n" -> "n"
    """About as many frames as utterances of these lengths have."""
    return np.maximum(1, np.ceil(seconds / HOP)).astype(np.int64)


def padded(frames: Sequence[Tensor]) -> tuple[Tensor, Tensor]:  # "t m" each -> "b s m", "b"
    """Frames of several utterances side by side, zeros behind the shorter ones, and their lengths."""
    return pad_sequence(list(frames), batch_first=True), torch.tensor([len(each) for each in frames])


class PlannedSpeech(NamedTuple):
    """A batch of utterances of an epoch."""

    epoch: int
    numbers: NDArray[np.int64]  # "b"


@dataclass(frozen=True, eq=False)
class SpeechBatch(TensorBatch):
    """Frames of several utterances, and their transcripts between BOS and EOS, with PAD behind the shorter ones."""

    x: Tensor  # "b s m"
    lengths: Tensor  # "b"
    target: Tensor  # "b t+1"


def augmented(frames: Tensor, config: Transcribe, epoch: int, n: int) -> Tensor:  # "t m" -> "t m"
    """Frames with the masks of SpecAugment, a pure function of the seed, the epoch and the number of the utterance."""
    if not config.masks:
        return frames
    rng = np.random.default_rng([config.seed, epoch, n])
    return spec_augment(frames, rng, masks=config.masks, max_frames=config.mask_frames, max_bands=config.mask_bands)
