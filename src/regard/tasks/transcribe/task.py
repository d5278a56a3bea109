"""The task transcribe: its training problem and its evaluation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from regard.common.wording import corrected
from regard.data.audio.wav import Sound
from regard.data.embedded.spelling import ALPHABET
from regard.data.splitting import Parts
from regard.data.text.batching import long_sample_warnings, plan_batches
from regard.data.text.special_tokens import PAD, SPECIAL
from regard.data.text.tokenizer import Tokenizer
from regard.decoding.search import Greedy, Search
from regard.inference.evaluation import Evaluation, Progress, sample_rows, timed
from regard.inference.evaluation_split import EvaluationSplit, record_splits
from regard.metrics.error_rate import cer, wer
from regard.models.encoder_decoder import EncoderDecoder
from regard.tasks.base import Task
from regard.tasks.shared.text_generation import (
    GeneratedText,
    between_marks,
    forced_loss,
    hard_attention_loss,
    initial_tokenizer,
    mean_nll,
    read_tokenizer,
    write_tokenizer,
)
from regard.tasks.transcribe.data import (
    Features,
    PlannedSpeech,
    Speech,
    SpeechBatch,
    SpeechFiles,
    SpeechFingerprint,
    augmented,
    check_alphabet,
    contents,
    fingerprint,
    frame_counts,
    padded,
    read_split,
    read_train_and_valid,
    unseen_letter_notes,
    unseen_letters,
)
from regard.tasks.transcribe.options import EvaluateTranscripts, Transcribe
from regard.tasks.transcribe.predictor import TOKENS, Transcriber
from regard.training.protocol import Loss, TrainingProblem, ValidationResult
from regard.training.run_folder import initial_folder

# the weight of the entropy of a hard attention, which keeps it undecided while it learns where to attend
_ENTROPY = 0.05
# utterances per forward pass of a validation
_BATCH = 32
# utterances whose delays are measured
_DELAYED = 200


@dataclass(frozen=True, eq=False)
class TranscribeProblem(TrainingProblem[EncoderDecoder, SpeechBatch]):
    """−log p(y | x) of transcripts, with label smoothing."""

    config: Transcribe
    train: Speech
    valid: Speech
    tokenizer: Tokenizer
    features: Features
    summary: str
    shared: Sequence[str] = ()
    unit: str = "letters"

    def build_model(self) -> EncoderDecoder:
        return self.config.model.build(self.config.mels, len(self.tokenizer))

    def warnings(self) -> Sequence[str]:
        long = long_sample_warnings([frame_counts(self.train.seconds)], self.config.batch)
        return [*long, *unseen_letter_notes(self.valid.texts, self.tokenizer)]

    def plan_epoch(self, epoch: int) -> Sequence[PlannedSpeech]:
        lengths = frame_counts(self.train.epoch(epoch).seconds)
        batches = plan_batches([lengths], self.config.batch, self.config.seed, epoch)
        return [PlannedSpeech(epoch, index) for index in batches]

    def load_batch(self, planned: PlannedSpeech, rank: int, world: int) -> SpeechBatch | None:
        index = planned.numbers[rank::world].tolist()
        if not index:
            return None
        speech = self.train.epoch(planned.epoch)
        frames = [
            augmented(self.features.frames(speech.sound(n, self.config.rate).samples), self.config, planned.epoch, n)
            for n in index
        ]
        return SpeechBatch(*padded(frames), between_marks(self.tokenizer.encode([speech.texts[n] for n in index])))

    def num_terms(self, batch: SpeechBatch) -> int:
        return int((batch.target[:, 1:] != PAD).sum())

    def loss(self, model: EncoderDecoder, batch: SpeechBatch) -> Loss:
        """The smoothed cross-entropy of every letter, without padding."""
        loss = forced_loss(model, [batch.x, batch.lengths], batch.target, self.config.smoothing)
        total = loss.total
        if loss.output.log_prob is not None:
            total = total + hard_attention_loss(loss, None, _ENTROPY)
        return Loss(total, len(loss.nll), {"nll": loss.nll.sum()})

    def validate(self, model: EncoderDecoder) -> ValidationResult:
        transcriber = Transcriber(model, self.tokenizer, self.features)
        count = min(len(self.valid), self.config.valid_lines)
        sounds = [self.valid.sound(n, self.config.rate) for n in range(count)]
        texts = self.valid.texts[:count]
        values, transcripts = error_rates(transcriber, sounds, texts, Greedy())
        # letters that the model cannot write have no probability
        if known := [n for n in range(count) if not unseen_letters(texts[n], self.tokenizer)]:
            values["nll"] = mean_nll(model, self._targets(transcriber, [(sounds[n], texts[n]) for n in known]))
        n = min(3, count - 1)
        sample = f"{transcripts[n].text}   (right: {texts[n]})"
        return ValidationResult(values, self.config.metric, self.config.metrics[self.config.metric], sample)

    def _targets(
        self, transcriber: Transcriber, utterances: Sequence[tuple[Sound, str]]
    ) -> Iterator[tuple[Sequence[Tensor], Tensor]]:
        """Batches of sounds and of their transcripts between BOS and EOS."""
        for start in range(0, len(utterances), _BATCH):
            sounds, texts = zip(*utterances[start : start + _BATCH], strict=True)
            x, lengths = transcriber.tensor(sounds)
            yield [x, lengths], between_marks(self.tokenizer.encode(texts)).to(x.device)


class TranscribeTask(Task[Transcribe, Transcriber]):
    """Trains, loads and evaluates transcribers."""

    def prepare(self, folder: Path, new: bool) -> TranscribeProblem:
        config = self.config
        train, valid = read_train_and_valid(config)
        # a run that was killed while it read its data has nothing to load yet
        new = new or not ((folder / TOKENS).exists() and SpeechFingerprint.is_saved(folder))
        # without files to validate on, those of train are held out, and their letters are known
        known = train.texts if config.valid is not None else [*train.texts, *valid.texts]
        letters = config.alphabet or (ALPHABET if config.train is None else "".join(known))
        if new:
            size = len(set(letters)) + SPECIAL
            tokenizer = initial_tokenizer(folder, TOKENS, lambda: Tokenizer.train("characters", [letters], size))
        else:
            tokenizer = read_tokenizer(folder / TOKENS)
        # test files are needed only after training, but raise before it
        test = read_split(config, "test") if config.test is not None else valid
        for speech in (train, valid) if config.valid is None else (train,):
            check_alphabet(speech, tokenizer, config.dataset_label)
        data = fingerprint(config, train, valid)
        if new:
            initial = initial_folder(folder)
            if initial is not None:
                # the weights of the run it starts from have learned these
                first = SpeechFingerprint.read(initial)
                data = replace(data, mean=first.mean, deviation=first.deviation)
            write_tokenizer(tokenizer, folder / TOKENS)
            data.write(folder)
        else:
            data = data.check_same(folder)
        shared = record_splits(config, folder, Parts(train, valid, test), "utterances", contents, new)
        count = len(train)
        train, dropped = _without_long(train, config)
        summary = f"{count - dropped:,} utterances to train on{' per epoch' if config.train is None else ''}, "
        summary += f"{min(len(valid), config.valid_lines):,} to validate by greedy search, {len(tokenizer):,} tokens"
        summary += f"; dropped {dropped:,} of more than {config.max_seconds:g} seconds" if dropped else ""
        return TranscribeProblem(config, train, valid, tokenizer, Features(config, data), summary, shared)

    def sketch(self) -> nn.Module:
        return self.config.model.build(self.config.mels, 11)

    def predictor(self, folder: Path) -> Transcriber:
        return Transcriber.of(self.config, folder)

    def evaluate(
        self, predictor: Transcriber, folder: Path, options: EvaluateTranscripts, progress: Progress
    ) -> Evaluation:
        split = self._speech(folder, options)
        speech = split.data
        sounds = [speech.sound(n, self.config.rate) for n in range(len(speech))]
        (scores, transcripts), seconds = timed(
            lambda done: error_rates(predictor, sounds, speech.texts, options.search, done), len(speech), progress
        )
        facts: dict[str, object] = {"beam": options.beam, "times": options.times}
        notes = unseen_letter_notes(speech.texts, predictor.tokenizer)
        if predictor.is_online and (delays := listening_delays(predictor, speech, self.config.rate)).size:
            mean, high = float(delays.mean()), float(np.percentile(delays, 95))
            facts |= {"delay_ms": mean, "delay_ms_95": high}
            notes.append(f"online, a letter is written {mean:.0f} ms after its end, 95 % of them within {high:.0f} ms")
        shown = sample_rows(len(speech))
        evaluation = Evaluation(
            scores,
            len(speech),
            "utterances",
            split.name,
            seconds,
            predictions=[each.text for each in transcripts],
            samples=[corrected(transcripts[n].text, speech.texts[n]) for n in shown],
            notes=notes,
            facts=facts,
        )
        return split.annotate(evaluation)

    def _speech(self, folder: Path, options: EvaluateTranscripts) -> EvaluationSplit[Speech]:
        """The speech to transcribe."""
        config = self.config
        if options.times > 1 and config.train is not None:
            raise ValueError(
                f"--times {options.times} is for embedded data, and {folder} is a run on files; leave it out"
            )

        split = EvaluationSplit[Speech].of(
            config,
            options,
            folder,
            "utterances",
            read_files=lambda files: SpeechFiles.read(files[0]),
            read_part=lambda part: read_split(config, part, options.times),
            contents=contents,
        )
        longer = f", {options.times} times as long as in training" if options.times > 1 else ""
        return replace(split, name=split.name + longer)


def error_rates(
    transcriber: Transcriber,
    sounds: Sequence[Sound],
    texts: Sequence[str],
    search: Search,
    done: Callable[[int], object] | None = None,
) -> tuple[dict[str, float], list[GeneratedText]]:
    """The character and the word error rate, and the transcripts."""
    transcripts = [best for best, *_ in transcriber.transcribe(sounds, search, done)]
    lines = [transcript.text for transcript in transcripts]
    return {"cer": cer(lines, texts), "wer": wer(lines, texts)}, transcripts


def listening_delays(transcriber: Transcriber, speech: Speech, rate: int) -> np.ndarray:  # -> "letters"
    """Milliseconds from the end of each letter to its writing, of utterances that are transcribed right.

    Empty if the ends of letters are not known.
    """
    delays: list[float] = []
    for n in range(min(len(speech), _DELAYED)):
        ends = speech.ends(n)
        if ends is None:
            break
        sound = speech.sound(n, rate)
        tokens = list(transcriber.listen(sound))
        if transcriber.tokenizer.decode(token.token for token in tokens) == speech.texts[n]:
            times = [transcriber.seconds_heard(token, sound) for token in tokens]
            delays += [1000 * (seconds - end) for seconds, end in zip(times, ends, strict=True)]
    return np.array(delays)


def _without_long(speech: Speech, config: Transcribe) -> tuple[Speech, int]:
    """The speech without utterances that are too long, and their number."""
    if not isinstance(speech, SpeechFiles):
        return speech, 0
    index = np.flatnonzero(speech.seconds <= config.max_seconds)
    if not len(index):
        raise ValueError(
            f"all {len(speech):,} files of {config.train} last more than max_seconds={config.max_seconds:g}; raise it"
        )
    return speech.take(index), len(speech) - len(index)
