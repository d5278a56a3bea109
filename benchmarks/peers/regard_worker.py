"""regard behind the workers' protocol: `fit` trains with the loss of Translate, and its Interpreter translates."""

import itertools
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

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
from regard.training.protocol import Loss, ValidationResult


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
    """The numbers in the files are words, so text in and text out cost here what they cost the others."""
    words = (folder / "vocabulary.txt").read_text(encoding="ascii").split()
    one = Tokenizer("words", words, None)
    pairs = read_pairs([folder / "train.src", folder / "train.trg"])
    corpus, _ = Corpus.of(pairs, one, one, max_length=10**6, folder=None)
    task = Translate(
        train=(folder / "train.src", folder / "train.trg"),
        tokens="words",
        smoothing=setting.smoothing,
        batch=even(corpus, setting.sentences) if own else None,
    )
    return TranslateProblem(task, Vocabularies(one, one), corpus, Pairs([], []), corpus, corpus.stretch, "")


def even(corpus: Corpus, sentences: int) -> int:
    """The bound on a batch's tokens that gives about so many sentences a batch."""
    lengths = corpus.source.lengths, corpus.target.lengths
    wanted = len(corpus) / sentences
    low, high = 1, 1 << 20
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if len(plan_batches(*lengths, middle, seed=0, epoch=0)) > wanted else (low, middle)
    return high


class Work:
    """Translation with a model of the setting's sizes, perhaps in the batches of others, and counted."""

    told = ""
    counted = "tokens"

    def __init__(self, setting: Setting, folder: Path, own: bool) -> None:
        self.setting, self.own = setting, own
        self.translation = translation(setting, folder, own)
        self.places = self.tokens = 0

    def model(self) -> nn.Module:
        self.translator = built(self.setting, len(self.translation.vocabularies.source))
        return self.translator

    def batches(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        if self.own:
            return self.translation.batches(epoch)
        count = len(self.translation.corpus)
        return np.split(np.arange(count), range(self.setting.sentences, count, self.setting.sentences))

    def batch(self, planned: Any, rank: int, world: int) -> PairBatch | None:
        batch = self.translation.batch(planned, rank, world)
        assert batch is not None
        self.places += batch.target[:, 1:].numel()
        self.tokens += batch.tokens
        return batch

    def count(self, batch: PairBatch) -> int:
        return self.translation.count(batch)

    def loss(self, model: nn.Module, batch: PairBatch) -> Loss:
        return self.translation.loss(model, batch)

    def validate(self, model: nn.Module) -> ValidationResult:
        raise AssertionError("nothing is validated here")


@dataclass(frozen=True)
class Task:
    work: Work
    seed: int

    def prepare(self, folder: Path, new: bool = True) -> Work:
        return self.work


class Regard:
    """One regard model in training: `fit` itself, asked for one event after the other."""

    def load(self, setting: dict[str, Any], data: str, seed: int, own: bool) -> Answer:
        self.setting = Setting(**setting)
        self.work = Work(self.setting, Path(data), own)
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
        events = fit(Task(self.work, seed), scratch() / "run", training)
        next(events)  # Started: the model is there
        self.steps = (event for event in events if isinstance(event, StepLogged))
        self.model = self.work.translator
        return {
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "versions": {
                "regard": regard.__version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
        }

    def train(self, steps: int) -> Answer:
        tokens, places = self.work.tokens, self.work.places
        start = time.process_time()
        done = list(itertools.islice(self.steps, steps))
        seconds = time.process_time() - start
        return {
            "tokens": self.work.tokens - tokens,
            "places": self.work.places - places,
            "cpu_seconds": seconds,
            "loss": sum(event.loss for event in done) / len(done),
        }

    def decode(self, start: int, stop: int, beam: int, alpha: float, longest: int) -> Answer:
        began = time.process_time()
        vocabularies = self.work.translation.vocabularies
        stretch = self.work.translation.stretch
        interpreter = Translator(self.model, vocabularies, batch=self.setting.sentences, stretch=stretch, most=longest)
        said = interpreter.translate(self.test[start:stop], Beam(beam, length_penalty=alpha))
        seconds = time.process_time() - began
        # the end of sentence counts, as it does for the others
        tokens = sum(len(best.tokens) + best.finished for best, *_ in said)
        return {"sentences": len(said), "tokens": tokens, "cpu_seconds": seconds}


if __name__ == "__main__":
    ours = Regard()
    serve({"load": ours.load, "train": ours.train, "decode": ours.decode})
