"""Translation: the work of a Translate task, its data read and cut into tokens."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.embedded import EMBEDDED
from regard.data.text.batching import PairBatch, collate, plan_batches
from regard.data.text.corpus import Corpus, among_all
from regard.data.text.holdout import hold_out
from regard.data.text.pairs import Pairs, Splits, read_pairs
from regard.data.text.special_tokens import PAD
from regard.decoding.search import Greedy, Search
from regard.layers.rnn.decoder_base import DecoderOutput
from regard.losses import linear_cross_entropy, reinforce
from regard.metrics.text import SCORES, Cut, cut_for, scored, signature
from regard.models.encoder_decoder import EncoderDecoder
from regard.tasks.translate.fingerprint import CorpusFingerprint
from regard.tasks.translate.model import build, longest, places
from regard.tasks.translate.options import Translate
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.vocabularies import Vocabularies
from regard.training.protocol import Loss, ValidationResult

# how much a hard attention is paid for staying undecided while it learns where to look
_ENTROPY = 0.05
# of a batch that is told, so many lines are named
_NAMED = 12
# what is reported beside the loss, by the kind of data
_REPORTED = {"files": ("bleu", "chrf"), "dates": ("exact",), "reverse": ("exact",), "pronounce": ("per", "wer")}


@dataclass(frozen=True, eq=False)
class TranslateProblem:
    """What training asks of a translation task."""

    task: Translate
    vocabularies: Vocabularies
    corpus: Corpus
    valid: Pairs
    valid_corpus: Corpus
    stretch: float  # of the corpus
    told: str  # what was read and what was dropped
    counted: str = "tokens"
    bleu: Cut = "13a"
    held: tuple[int, ...] = ()  # lines to learn from that are validated on instead

    @staticmethod
    def of(task: Translate, folder: Path, new: bool) -> "TranslateProblem":
        splits = read(task)
        # a run that was killed while it read has nothing to load yet
        new = new or not (Vocabularies.saved(folder) and CorpusFingerprint.saved(folder))
        vocabularies = Vocabularies.train(task, splits.train) if new else Vocabularies.load(folder)
        if new:
            vocabularies.save(folder)
        sides = vocabularies.source, vocabularies.target
        corpus, dropped = Corpus.of(splits.train, *sides, task.max_length, folder)
        facts = CorpusFingerprint.of(splits, corpus.stretch, _cut(task, splits.valid))
        if new:
            facts.write(folder)
        else:
            facts = facts.same(folder)
        some = slice(task.valid_lines)
        right = splits.valid.references
        valid = Pairs(splits.valid.source[some], splits.valid.target[some], None if right is None else right[some])
        if not any(one.strip() and other.strip() for one, other in zip(valid.source, valid.target, strict=True)):
            raise ValueError(f"valid has {len(valid)} lines and none with two sides; give pairs to validate on")
        # however long a line is it counts; one with an empty side is translated, but has no likelihood to tell
        longest = max(map(len, (*valid.source, *valid.target))) * 4 + 1
        valid_corpus, _ = Corpus.of(valid, *sides, longest, None)
        _room(task, valid_corpus)
        words = " and ".join(f"{len(side):,}" for side in sides)
        told = f"{len(corpus):,} pairs to train on, {len(valid):,} to validate, {words} tokens"
        told += f"; {dropped}" if dropped.too_long or dropped.empty else ""
        if task.bleu not in (None, facts.bleu):
            raise ValueError(
                f"bleu was {facts.bleu!r} when {folder} began and is {task.bleu!r} now; leave it out, or train anew"
            )
        if task.bleu is None and facts.bleu != "13a":
            told += f"; BLEU is cut by {facts.bleu}, as the targets are written without spaces; --bleu says otherwise"
        return TranslateProblem(
            task,
            vocabularies,
            corpus,
            valid,
            valid_corpus,
            facts.stretch,
            told,
            bleu=facts.bleu,
            held=splits.held,
        )

    def model(self) -> EncoderDecoder:
        return build(self.task, len(self.vocabularies.source), len(self.vocabularies.target), self.vocabularies.shared)

    def batches(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        lengths = self.corpus.source.lengths, self.corpus.target.lengths
        return plan_batches(*lengths, self.task.choice("batch"), self.task.seed, epoch)

    def batch(self, planned: NDArray[np.int64], rank: int, world: int) -> PairBatch | None:
        batch = collate(self.corpus, planned)
        return batch if world == 1 else batch.shard(rank, world)

    def named(self, planned: Sequence[NDArray[np.int64]]) -> str:
        """The lines of these batches in the files, counted from 1."""
        read = among_all(np.concatenate(planned), self.corpus.left_out)
        lines = np.sort(among_all(read, np.array(self.held, np.int64))) + 1
        what = ("line" if self.task.kind == "files" else "pair") + ("s" if len(lines) > 1 else "")
        some = ", ".join(map(str, lines[:_NAMED].tolist()))
        more = f" and {len(lines) - _NAMED:,} more" if len(lines) > _NAMED else ""
        return f"{what} {some}{more} of {self.task.source}"

    def count(self, batch: PairBatch) -> int:
        return batch.tokens

    def loss(self, model: nn.Module, batch: PairBatch) -> Loss:
        """The smoothed cross-entropy of every target token, computed for no padding."""
        assert isinstance(model, EncoderDecoder)
        total, nll, taught, keep = _likelihood(model, batch, self.task.choice("smoothing"))
        if taught.log_prob is not None:
            total = total + self._drawn(taught, nll, keep)
        return Loss(total, batch.tokens, {"nll": nll.sum()})

    def _drawn(self, taught: DecoderOutput, nll: Tensor, keep: Tensor) -> Tensor:
        """What teaches a hard attention where to look: it is paid the likelihood it led to  (Xu et al. 2015, 4.1)."""
        assert taught.log_prob is not None
        assert taught.entropy is not None
        reward = torch.zeros_like(taught.log_prob)
        reward[keep] = -nll.to(reward.dtype)
        if self.task.decoder != "luong":
            # a draw changes every later step where states carry what was found
            reward = reward.flip(1).cumsum(1).flip(1)
        # beside the mean of the others, as one's own reward in it would shrink the gradient; a lone sentence is
        # its own measure and teaches nothing
        others = keep.sum(0).expand_as(keep) - 1
        level = torch.where(others > 0, (reward.sum(0) - reward) / others.clamp_min(1), reward)
        loss = reinforce(
            taught.log_prob[keep],
            reward[keep],
            level[keep],
            entropy=taught.entropy[keep],
            entropy_weight=_ENTROPY,
        )
        return loss * len(nll)

    def validate(self, model: nn.Module) -> ValidationResult:
        assert isinstance(model, EncoderDecoder)
        interpreter = Translator(model, self.vocabularies, stretch=self.stretch, longest=longest(self.task))
        values, said = evaluate(interpreter, self.valid, Greedy(), self.reported, bleu=self.bleu)
        values["nll"] = self._nll(model)
        main = self.task.choice("metric")
        higher = SCORES[main][1] if main in SCORES else False
        at = min(3, len(said) - 1)
        sample = f"{self.valid.source[at]} → {said[at]}   (right: {self.valid.target[at]})"
        return ValidationResult(values, main, higher, sample)

    @property
    def reported(self) -> tuple[str, ...]:
        """The scores that are told, the deciding one first."""
        main = self.task.choice("metric")
        names = (main, *_REPORTED[self.task.kind]) if main in SCORES else _REPORTED[self.task.kind]
        return tuple(dict.fromkeys(names))

    @torch.no_grad()
    def _nll(self, model: EncoderDecoder) -> float:
        """−log p of a target token, without smoothing."""
        device = next(model.parameters()).device
        total = 0.0
        lengths = self.valid_corpus.source.lengths, self.valid_corpus.target.lengths
        planned = plan_batches(*lengths, max(self.task.choice("batch"), 2048), 0, 0)
        for index in planned:
            batch = collate(self.valid_corpus, index).to(device)
            total += float(_likelihood(model, batch, 0.0)[0])
        return total / max(int((lengths[1] + 1).sum()), 1)


prepare = TranslateProblem.of


def fresh(task: Translate, folder: Path) -> EncoderDecoder:
    """The model of a run, without its weights."""
    return task.interpreter(folder).model


def rehearse(task: Translate) -> None:
    """Builds the model for a few words, trains and decodes one step: what cannot be is told before any data is read."""
    source, lengths = torch.tensor([[5, 6, 2], [5, 2, 0]]), torch.tensor([3, 2])
    with torch.random.fork_rng(devices=[]):
        model = build(task, 11, 11, shared=False)
        model.teacher_force(source, lengths, source[:, :2])
        model.step(source[:, :1], model.init_state(source, lengths))


def evaluate(
    interpreter: Translator,
    pairs: Pairs,
    search: Search,
    names: Sequence[str],
    done: Callable[[int], object] | None = None,
    bleu: Cut = "13a",
) -> tuple[dict[str, float], list[str]]:
    """The scores of these names on pairs, and what was said; `done` is told how many are translated."""
    said = [found[0].text for found in interpreter.translate(pairs.source, search, done=done)]
    return scored(names, said, pairs.answers, bleu), said


def read_one(task: Translate, split: str) -> Pairs:
    """The pairs of one split, "train", "valid" or "test"; of files no other is read, unless it is a part of it."""
    if task.kind == "files" and split == "test" and task.test:
        return read_pairs(task.test)
    if task.kind == "files" and split != "train" and task.valid:
        return read_pairs(task.valid)
    return getattr(read(task), split)


def read(task: Translate) -> Splits:
    """The pairs to train on, to validate and to test; of files no source to train on is one to validate on."""
    if task.kind != "files":
        return EMBEDDED[task.kind].splits(task.seed)
    train = read_pairs(task.train)
    _some_text(task, train)
    held: tuple[int, ...] = ()
    if task.valid:
        valid = read_pairs(task.valid)
    else:
        train, valid, held = hold_out(train, task.valid_lines, task.seed)
    return Splits(train, valid, read_pairs(task.test) if task.test else valid, held=held)


def _cut(task: Translate, valid: Pairs) -> Cut:
    """How BLEU cuts text, as was said or as the targets are written."""
    if task.bleu is None:
        return cut_for(valid.target[: task.valid_lines]) if task.kind == "files" else "13a"
    signature([("a",)], task.bleu)  # what lacks for it is told before training, not at its first score
    return task.bleu


def _room(task: Translate, valid: Corpus) -> None:
    """A line to validate on that has no place is told before training, not after its first hours."""
    longest = 1 + int(max(valid.source.lengths.max(), valid.target.lengths.max()))
    if task.positions == "learned" and longest > places(task):
        raise ValueError(
            f"positions='learned' knows {places(task)} places at max_length={task.max_length}, a line to validate on "
            f"has {longest} tokens; raise max_length to {longest // 2}, drop the line, or choose positions='sinusoidal'"
        )


def _likelihood(
    model: EncoderDecoder, batch: PairBatch, smoothing: float
) -> tuple[Tensor, Tensor, DecoderOutput, Tensor]:
    taught = model.teacher_force(batch.source, batch.source_lengths, batch.target[:, :-1])
    targets = batch.target[:, 1:]
    keep = targets != PAD
    states = taught.states[keep]
    total, nll = linear_cross_entropy(
        states, model.output.weight, targets[keep], bias=model.output.bias, smoothing=smoothing
    )
    return total, nll, taught, keep


def _some_text(task: Translate, pairs: Pairs) -> None:
    """Refuses files without text, from which no vocabulary is learned."""
    for side, lines in (("source", pairs.source), ("target", pairs.target)):
        if not any(line.strip() for line in lines):
            raise ValueError(
                f"train={' '.join(map(str, task.train))} has no text on the side of the {side}, in "
                f"{len(lines):,} lines; give lines to learn from"
            )
