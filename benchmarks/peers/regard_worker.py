"""The worker of regard: `fit` trains with the loss of Translate, and its Translator translates."""

import itertools
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

import regard
from benchmarks.peers.talk import Answer, Setting, scratch, serve
from regard.data.text.batching import PairBatch, plan_batches
from regard.data.text.corpus import Corpus
from regard.data.text.pairs import Pairs, read_pairs
from regard.data.text.tokenizer import Tokenizer
from regard.decoding.search import Beam
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer
from regard.tasks.translate.options import Translate
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.task import TranslateProblem
from regard.tasks.translate.vocabularies import Vocabularies
from regard.training.config import TrainingConfig
from regard.training.events import StepLogged
from regard.training.fit import fit
from regard.training.protocol import Loss, TrainingProblem, ValidationResult


def built(setting: Setting, vocabulary: int) -> EncoderDecoder:
    if setting.kind == "transformer":
        return Transformer(
            vocabulary,
            vocabulary,
            width=setting.width,
            layers=setting.layers,
            heads=setting.heads,
            feed=setting.feed_forward,
            dropout=setting.dropout,
            tied="all",
        )
    decoders = {("bahdanau", True): "bahdanau", ("luong", False): "luong", ("luong", True): "luong-feeding"}
    same = setting.attention == "bahdanau" and setting.order == "peer"
    return Seq2Seq(
        vocabulary,
        vocabulary,
        width=setting.width,
        hidden=setting.width,
        encoder_hidden=setting.width,
        layers=setting.layers,
        decoder="luong-feeding" if same else decoders[setting.attention, setting.input_feeding],
        attention="additive" if same else None,
        dropout=setting.dropout,
        tied="all",
    )


def translation(setting: Setting, folder: Path, own: bool) -> TranslateProblem:
    """The token ids in the files are words, so that reading and writing text costs as much as in the other system."""
    words = (folder / "vocabulary.txt").read_text(encoding="ascii").split()
    one = Tokenizer("words", words, None)
    pairs = read_pairs([folder / "train.src", folder / "train.trg"])
    corpus, _ = Corpus.of(pairs, one, one, max_length=10**6, folder=None)
    task = Translate.of(
        train=(folder / "train.src", folder / "train.trg"),
        tokens="words",
        smoothing=setting.smoothing,
        batch=even(corpus, setting.sentences) if own else None,
    )
    return TranslateProblem(task, Vocabularies(one, one), corpus, Pairs([], []), corpus, corpus.max_length_ratio, "")


def even(corpus: Corpus, sentences: int) -> int:
    """The limit of tokens per batch that gives about this many sentences per batch."""
    lengths = corpus.source.lengths, corpus.target.lengths
    wanted = len(corpus) / sentences
    low, high = 1, 1 << 20
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if len(plan_batches(lengths, middle, seed=0, epoch=0)) > wanted else (low, middle)
    return high


class PeerProblem(TrainingProblem[EncoderDecoder, PairBatch]):
    """Translation with a model of the setting, in its own batches or those of JoeyNMT; counts tokens."""

    summary = ""
    unit = "tokens"

    def __init__(self, setting: Setting, folder: Path, own: bool) -> None:
        self.setting, self.own = setting, own
        self.translation = translation(setting, folder, own)
        self.places = self.tokens = 0

    def build_model(self) -> EncoderDecoder:
        self.translator = built(self.setting, len(self.translation.vocabularies.source))
        return self.translator

    def plan_epoch(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        if self.own:
            return self.translation.plan_epoch(epoch)
        count = len(self.translation.corpus)
        return np.split(np.arange(count), range(self.setting.sentences, count, self.setting.sentences))

    def load_batch(self, planned: Any, rank: int, world: int) -> PairBatch | None:
        batch = self.translation.load_batch(planned, rank, world)
        assert batch is not None
        self.places += batch.target[:, 1:].numel()
        self.tokens += batch.tokens
        return batch

    def num_terms(self, batch: PairBatch) -> int:
        return self.translation.num_terms(batch)

    def loss(self, model: EncoderDecoder, batch: PairBatch) -> Loss:
        return self.translation.loss(model, batch)

    def validate(self, model: EncoderDecoder) -> ValidationResult:
        raise AssertionError("this problem is not validated")


@dataclass(frozen=True)
class PeerTask:
    """A task for `fit` whose problem is already prepared."""

    name: ClassVar[str] = "peer"
    run_files: ClassVar[tuple[str, ...]] = ()

    problem: PeerProblem
    seed: int

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self.problem.setting), "own": self.problem.own, "seed": self.seed}

    def preparation_notice(self, folder: Path, new: bool) -> str:
        return ""

    def prepare(self, folder: Path, new: bool = True) -> PeerProblem:
        return self.problem


class Regard:
    """One regard model in training: the events of `fit`, one at a time."""

    def load(self, setting: dict[str, Any], data: str, seed: int, own: bool) -> Answer:
        self.setting = Setting(**setting)
        self.problem = PeerProblem(self.setting, Path(data), own)
        self.test = (Path(data) / "test.src").read_text(encoding="ascii").splitlines()
        training = TrainingConfig(
            steps=10**9,
            lr=self.setting.rate,
            schedule="constant",
            warmup=0,
            clip=self.setting.clip,
            threads=1,
            log_every=1,
            validate_every=10**9,
            save_every=10**9,
        )
        events = fit(PeerTask(self.problem, seed), scratch() / "run", training)
        next(events)  # Started: the model exists
        self.steps = (event for event in events if isinstance(event, StepLogged))
        self.model = self.problem.translator
        return {
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "versions": {"regard": regard.__version__, "torch": torch.__version__, "python": platform.python_version()},
        }

    def train(self, steps: int) -> Answer:
        tokens, places = self.problem.tokens, self.problem.places
        start = time.process_time()
        done = list(itertools.islice(self.steps, steps))
        seconds = time.process_time() - start
        return {
            "tokens": self.problem.tokens - tokens,
            "places": self.problem.places - places,
            "cpu_seconds": seconds,
            "loss": sum(event.loss for event in done) / len(done),
        }

    def decode(self, start: int, stop: int, beam: int, alpha: float, longest: int) -> Answer:
        began = time.process_time()
        vocabularies = self.problem.translation.vocabularies
        stretch = self.problem.translation.stretch
        interpreter = Translator(self.model, vocabularies, batch=self.setting.sentences, stretch=stretch, most=longest)
        said = interpreter.translate(self.test[start:stop], Beam(beam, length_penalty=alpha))
        seconds = time.process_time() - began
        # the end-of-sentence token counts, as in the other system
        tokens = sum(len(best.tokens) + best.finished for best, *_ in said)
        return {"sentences": len(said), "tokens": tokens, "cpu_seconds": seconds}


if __name__ == "__main__":
    ours = Regard()
    serve({"load": ours.load, "train": ours.train, "decode": ours.decode})
