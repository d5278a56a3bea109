"""Transcriber: the predictor of transcribe: sound in, transcripts and the attention of their letters out."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from regard.common.eval_mode import eval_mode
from regard.data.audio.log_mel import HOP, WINDOW
from regard.data.audio.wav import Sound, read_wav
from regard.data.text.special_tokens import BOS, EOS, PAD, UNK
from regard.data.text.tokenizer import Tokenizer
from regard.decoding.search import Beam, Greedy, Search
from regard.inference.batches import similar_batches
from regard.inference.predictor import Observe, PredictionSession, Predictor
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.listening.listen_attend_spell import ListenAttendSpell
from regard.models.listening.online import HeardToken, listen, start_listening
from regard.recording.recording import Recording
from regard.tasks.shared.text_generation import (
    GeneratedText,
    TextHypotheses,
    TokenAlignment,
    forced_nll,
    forced_weights,
    read_tokenizer,
    search_texts,
)
from regard.tasks.transcribe.data import Features, SpeechFingerprint, at_rate, check_long_enough, padded
from regard.tasks.transcribe.options import PredictTranscripts, Transcribe
from regard.viz.plots.spectrogram import draw_alignment

# the file of a run that holds the vocabulary
TOKENS = "tokens.json"
# utterances per forward pass
_BATCH = 32
# no transcript has more letters per second than this, and a few
_LETTERS_PER_SECOND, _MORE_LETTERS = 30, 10
# seconds of sound that a listener gets at once
_CHUNK = 0.08


@dataclass(frozen=True, eq=False)
class SoundInput:
    """Sound at the rate of the model, and the file that it comes from, if it comes from one."""

    sound: Sound
    path: Path | None = None


@dataclass(frozen=True, eq=False)
class Transcript(TextHypotheses):
    """The transcripts of one sound, the best first, and the tokens of the best, with the end of the sentence.

    `times` are those at which a listener wrote its letters, in seconds.
    """

    tokens: list[str]
    times: list[float] | None = None


class Transcriber(Predictor[SoundInput, Transcript]):
    """sound -> log-mel frames -> search -> text."""

    input_key: ClassVar[str] = "file"
    endpoint_class = "regard.tasks.transcribe.endpoint:SoundEndpoint"

    def __init__(self, model: EncoderDecoder, tokenizer: Tokenizer, features: Features) -> None:
        self.model: EncoderDecoder = model
        self.tokenizer, self.features = tokenizer, features

    @staticmethod
    def of(config: Transcribe, folder: Path) -> "Transcriber":
        """A transcriber with the vocabulary of a run, whose model has initial weights."""
        tokenizer = read_tokenizer(folder / TOKENS)
        features = Features(config, SpeechFingerprint.read(folder))
        return Transcriber(config.model.build(config.mels, len(tokenizer)), tokenizer, features)

    def read(self, argument: str) -> SoundInput:
        """The sound in the WAV file of this path, at the rate of the model."""
        sound = read_wav(Path(argument))
        check_long_enough(sound, argument)
        return SoundInput(at_rate(sound, self.features.bands.rate), Path(argument))

    # Prediction

    def predict(
        self, inputs: Sequence[SoundInput], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[Transcript]:
        options = PredictTranscripts() if options is None else options
        if options.online:
            outputs = [self._transcript(list(self.listen(example.sound)), example.sound) for example in inputs]
        else:
            search = Greedy() if options.beam == 1 else Beam(options.beam, nbest=options.top)
            transcripts = self.transcribe([example.sound for example in inputs], search)
            outputs = [Transcript(texts, self.tokenizer.pieces(texts[0].with_eos)) for texts in transcripts]
        if observe is not nullcontext:
            with observe():
                self.align([example.sound for example in inputs], [output.best for output in outputs])
        return outputs

    @torch.no_grad()
    def transcribe(
        self, sounds: Sequence[Sound], search: Search = Greedy(), done: Callable[[int], object] | None = None
    ) -> list[list[GeneratedText]]:
        """The transcripts of every sound, the best first; `done` is called with the number of sounds that have one."""
        transcripts: dict[int, list[GeneratedText]] = {}
        with eval_mode(self.model):
            for numbers in similar_batches([len(sound.samples) for sound in sounds], _BATCH, done):
                x, lengths = self.tensor([sounds[n] for n in numbers])
                state = self.model.init_state(x, lengths)
                limits = torch.tensor([self._limit(len(sounds[n].samples)) for n in numbers], device=x.device)
                encoded = self.model.encoded_lengths(lengths)
                texts = search_texts(self.model, state, self.tokenizer, search, limits, numbers, encoded)
                transcripts.update(zip(numbers, texts, strict=True))
        return [transcripts[n] for n in range(len(sounds))]

    def tensor(self, sounds: Sequence[Sound]) -> tuple[Tensor, Tensor]:  # -> "b s m", "b"
        """The sounds as the model reads them."""
        x, lengths = padded([self.features.frames(sound.samples) for sound in sounds])
        return x.to(self.device, self.dtype), lengths.to(self.device)

    def _limit(self, samples: int) -> int:
        """The letters of a transcript, at most, its end included."""
        return int(_LETTERS_PER_SECOND * samples / self.features.bands.rate) + _MORE_LETTERS

    def text(self, output: Transcript) -> str:
        return "\t".join(hypothesis.text for hypothesis in output.hypotheses)

    def summary(self, output: Transcript) -> str:
        return output.best.text

    def json(self, output: Transcript) -> dict[str, Any]:
        if output.times is not None:
            letters = zip(output.tokens, output.times, strict=True)
            return {
                "transcript": output.best.text,
                "letters": [{"letter": letter, "seconds": seconds} for letter, seconds in letters],
            }
        return {"transcripts": output.json()}

    def margin(self, output: Transcript) -> float:
        return output.best.margin

    def loss(self, inputs: Sequence[SoundInput], targets: Sequence[str]) -> Tensor:  # -> "b"
        """−log p(transcript | sound)."""
        source = self.tensor([example.sound for example in inputs])
        with eval_mode(self.model):
            return forced_nll(self.model, source, self.tokenizer.encode(targets))

    def session(self, options: Any, picture: Path | None) -> PredictionSession:
        # before anything is printed
        if options.online and not self.is_online:
            raise ValueError("--online is for runs that were trained with --online, and this one was not; leave it out")
        return super().session(options, picture)

    # Letters while it listens

    @property
    def is_online(self) -> bool:
        """Whether the model can write while it listens."""
        return isinstance(self.model, ListenAttendSpell) and not self.model.encoder.bidirectional

    def stream_text(self, example: SoundInput, options: Any = None) -> Generator[str, None, Transcript] | None:
        return self._letters(example) if options is not None and options.online else None

    def _letters(self, example: SoundInput) -> Generator[str, None, Transcript]:
        tokens = []
        for token in self.listen(example.sound):
            tokens.append(token)
            yield self.tokenizer.decode([token.token])
        return self._transcript(tokens, example.sound)

    def listen(self, sound: Sound) -> Iterator[HeardToken]:
        """The tokens of a sound that comes in chunks, as from a microphone, each as soon as it is heard."""
        assert isinstance(self.model, ListenAttendSpell)
        state, bands = start_listening(self.model, BOS), self.features.bands
        limit, size = self._limit(len(sound.samples)), round(_CHUNK * bands.rate)
        start, frames = 0, bands.frames(len(sound.samples))
        with eval_mode(self.model):
            for end in range(size, len(sound.samples) + size, size):
                count = bands.frames(min(end, len(sound.samples)))
                if count == start:
                    continue
                chunk = sound.samples[start * bands.hop : (count - 1) * bands.hop + bands.window]
                x = self.features.frames(chunk).to(self.device, self.dtype)
                tokens, state = listen(
                    self.model, x, state, eos=EOS, limit=limit, forbidden=(PAD, BOS, UNK), is_last=count == frames
                )
                yield from tokens
                start = count

    def seconds_heard(self, token: HeardToken, sound: Sound) -> float:
        """The seconds of sound that a token needed: up to the last frame of the state where the attention stopped."""
        if token.position is None:
            return sound.seconds
        return min((token.position + 1) * self.seconds_per_state - HOP + WINDOW, sound.seconds)

    def _transcript(self, tokens: Sequence[HeardToken], sound: Sound) -> Transcript:
        ids = tuple(token.token for token in tokens)
        text = GeneratedText(self.tokenizer.decode(ids), ids, 0.0, 0.0, False)
        times = [self.seconds_heard(token, sound) for token in tokens]
        return Transcript([text], self.tokenizer.pieces(ids), times)

    @property
    def seconds_per_state(self) -> float:
        """The seconds between two states of the encoder."""
        many = torch.tensor([1 << 16])
        return HOP * (1 << 16) / int(self.model.encoded_lengths(many))

    # The attention behind a transcript

    @torch.no_grad()
    def align(self, sounds: Sequence[Sound], transcripts: Sequence[GeneratedText]) -> list[TokenAlignment]:
        """The attention of every token to the states of the sound: the steps of the search again, all at once."""
        alignments: list[TokenAlignment] = []
        with eval_mode(self.model):
            for start in range(0, len(sounds), _BATCH):
                targets = [each.with_eos or [EOS] for each in transcripts[start : start + _BATCH]]
                x, lengths = self.tensor(sounds[start : start + _BATCH])
                weights = forced_weights(self.model, [x, lengths], targets)
                states = self.model.encoded_lengths(lengths).tolist()
                for tokens, rows, count in zip(targets, weights, states, strict=True):
                    names = [f"{n * self.seconds_per_state:.2f} s" for n in range(count)]
                    alignments.append(TokenAlignment(self.tokenizer.pieces(tokens), rows[: len(tokens), :count], names))
        return alignments

    def draw(self, recording: Recording, example: SoundInput, output: Transcript, path: Path) -> Path:
        (alignment,) = self.align([example.sound], [output.best])
        return draw_alignment(
            self.features.frames(example.sound.samples),
            alignment.weights,
            alignment.target,
            path,
            seconds=example.sound.seconds,
            highest=self.features.bands.rate / 2,
            title=output.best.text,
        )

    def label(self, recording: Recording, example: SoundInput, output: Transcript) -> Recording:
        lengths = torch.tensor([self.features.bands.frames(len(example.sound.samples))])
        count = int(self.model.encoded_lengths(lengths))
        names = [f"{n * self.seconds_per_state:.2f} s" for n in range(count)]
        return recording.with_labels(output.tokens, names)
