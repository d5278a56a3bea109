"""regard behind the workers' protocol: `fit` trains, and its own search decodes."""

import itertools
import platform
import tempfile
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
from benchmarks.peers import text
from benchmarks.peers.talk import Answer, Setting, serve
from regard.data.batches import Batch, collate, plan, source_batch
from regard.data.corpus import Corpus, Side
from regard.data.special import BOS, EOS, PAD, SPECIAL
from regard.layers.beam import beam as search
from regard.layers.search import Found
from regard.losses.vocabulary import likelihood
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer
from regard.models.translator import Translator
from regard.tasks.task import Loss, Score
from regard.train.events import Stepped
from regard.train.fit import fit
from regard.train.training import Training


def built(setting: Setting, vocabulary: int) -> Translator:
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
    return Seq2Seq(
        vocabulary,
        vocabulary,
        width=setting.width,
        hidden=setting.width,
        encoder_hidden=setting.width,
        layers=setting.layers,
        decoder=decoders[setting.attention, setting.input_feeding],
        dropout=setting.dropout,
        tied="all",
    )


def even(corpus: Corpus, sentences: int) -> int:
    """The bound on a batch's tokens that gives about so many sentences a batch."""
    lengths = corpus.source.lengths, corpus.target.lengths
    wanted = len(corpus) / sentences
    low, high = 1, 1 << 20
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if len(plan(*lengths, middle, seed=0, epoch=0)) > wanted else (low, middle)
    return high


def side(path: Path) -> Side:
    rows = text.read(path)
    starts = np.cumsum([0, *map(len, rows)])
    return Side(np.fromiter(itertools.chain.from_iterable(rows), np.int32, int(starts[-1])), starts)


class Work:
    """The text as the data of a task for `fit`, which counts what it gives out."""

    def __init__(self, setting: Setting, folder: Path, own: bool) -> None:
        self.setting, self.own = setting, own
        self.corpus = Corpus(side(folder / "train.src"), side(folder / "train.trg"))
        self.vocabulary = SPECIAL + len(text.read(folder / "vocabulary.txt"))
        self.most = even(self.corpus, setting.sentences) if own else 0
        self.places = self.tokens_seen = 0

    def model(self) -> nn.Module:
        self.translator = built(self.setting, self.vocabulary)
        return self.translator

    def batches(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        if self.own:
            return plan(self.corpus.source.lengths, self.corpus.target.lengths, self.most, seed=0, epoch=epoch)
        return np.split(
            np.arange(len(self.corpus)), range(self.setting.sentences, len(self.corpus), self.setting.sentences)
        )

    def batch(self, planned: Any, rank: int, world: int) -> Batch | None:
        batch = collate(self.corpus, planned)
        self.places += batch.target[:, 1:].numel()
        self.tokens_seen += batch.tokens
        return batch.shard(rank, world)

    def count(self, batch: Batch) -> int:
        return batch.tokens

    def loss(self, model: Any, batch: Batch) -> Loss:
        wanted = batch.target[:, 1:]
        states = model.teach(batch.source, batch.source_lengths, batch.target[:, :-1]).states
        real = torch.arange(wanted.shape[1]) < batch.target_lengths.unsqueeze(-1)
        layer, smoothing = model.output, self.setting.smoothing
        total, _ = likelihood(states[real], layer.weight, wanted[real], bias=layer.bias, smoothing=smoothing)
        return Loss(total, batch.tokens)

    def validate(self, model: nn.Module) -> Score:
        raise AssertionError("nothing is validated here")


@dataclass(frozen=True)
class Task:
    work: Work
    seed: int

    def prepare(self, folder: Path) -> Work:
        return self.work


class Regard:
    """One regard model in training: `fit` itself, asked for one event after the other."""

    def load(self, setting: dict[str, Any], data: str, seed: int, own: bool) -> Answer:
        self.setting = Setting(**setting)
        self.work = Work(self.setting, Path(data), own)
        self.test = text.read(Path(data) / "test.src")
        training = Training(
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
        run = Path(tempfile.mkdtemp(prefix="regard-")) / "run"
        events = fit(Task(self.work, seed), run, training)
        next(events)  # Started: the model is there
        self.steps = (event for event in events if isinstance(event, Stepped))
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
        tokens, places = self.work.tokens_seen, self.work.places
        start = time.process_time()
        done = list(itertools.islice(self.steps, steps))
        seconds = time.process_time() - start
        return {
            "tokens": self.work.tokens_seen - tokens,
            "places": self.work.places - places,
            "cpu_seconds": seconds,
            "loss": sum(event.loss for event in done) / len(done),
        }

    def decode(self, start: int, stop: int, beam: int, alpha: float, longest: int) -> Answer:
        began = time.process_time()
        self.model.eval()
        found: list[Found] = []
        some = self.test[start:stop]
        for first in range(0, len(some), self.setting.sentences):
            source, lengths = source_batch(some[first : first + self.setting.sentences])
            with torch.inference_mode():
                found += [
                    best
                    for best, *_ in search(
                        self.model,
                        self.model.start(source, lengths),
                        bos=BOS,
                        eos=EOS,
                        limits=torch.full_like(lengths, longest),
                        size=beam,
                        length_penalty=alpha,
                        forbidden=(PAD, BOS),
                    )
                ]
        seconds = time.process_time() - began
        self.model.train()
        # the end of sentence counts, as it does for the others
        tokens = sum(len(one.tokens) + one.finished for one in found)
        return {"sentences": len(found), "tokens": tokens, "cpu_seconds": seconds}


if __name__ == "__main__":
    ours = Regard()
    serve({"load": ours.load, "train": ours.train, "decode": ours.decode})
