"""The task respond: its training problem and its evaluation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from regard.common.wording import plural
from regard.data.text.batching import plan_batches
from regard.data.text.text_tokenizer import TextTokenizer
from regard.data.text.tokenizer import Tokenizer
from regard.decoding.search import Beam, Greedy
from regard.inference.evaluation import Done, Evaluation, Progress, sample_rows, timed
from regard.inference.evaluation_split import record_splits
from regard.models.responding.responder import Responder
from regard.tasks.base import Task
from regard.tasks.respond.data import (
    DialogueReader,
    EncodedReply,
    PlannedReplies,
    ReplyBatch,
    ReplyFacts,
    first_reply,
    token_lengths,
    whole_dialogues,
)
from regard.tasks.respond.options import DecoderOptions, EvaluateReplies, FlatOptions, Respond
from regard.tasks.respond.predictor import RespondPredictor
from regard.tasks.respond.scoring import count_tokens, named_values, reply_scores, unigram_nll
from regard.tasks.shared.dialogue_data import contents, evaluation_dialogues, read
from regard.tasks.shared.text_generation import GeneratedText, initial_tokenizer, read_tokenizer, write_tokenizer
from regard.training.protocol import BaselineReport, Loss, TrainingProblem, ValidationResult

if TYPE_CHECKING:
    from regard.tasks.respond.decoder import PretrainedDecoder

_TOKENS = "tokens.json"
# generated dialogues to train on
_BOOKINGS = 6_000


@dataclass(frozen=True, eq=False)
class RespondProblem(TrainingProblem[Responder, ReplyBatch]):
    """−log p(reply | turns before it), with label smoothing; the turns themselves are not predicted."""

    config: Respond
    reader: DialogueReader
    replies: Sequence[EncodedReply]
    valid: Sequence[EncodedReply]
    decoder: "PretrainedDecoder | None"
    counts: Sequence[int]  # per token, in all replies to train on
    learns_dialogues: bool  # whether `replies` are the last ones, and those in their histories are learned with them
    summary: str
    shared: Sequence[str] = ()
    unit: str = "tokens"

    def build_model(self) -> Responder:
        return _build(self.config, self.reader.tokenizer, self.decoder)

    def plan_epoch(self, epoch: int) -> Sequence[PlannedReplies]:
        draws = np.random.default_rng([self.config.seed, epoch, 1]).random(len(self.replies))
        # batches are planned by the lengths of whole histories, so that fewer turns do not change the steps per epoch
        batches = plan_batches(token_lengths(self.replies), self.config.batch, self.config.seed, epoch)
        turns = self.config.turns_in(epoch)
        return [PlannedReplies(rows, draws[rows], turns) for rows in batches]

    def warnings(self) -> Sequence[str]:
        turns = sum(reply.history.num_cut for reply in self.replies)
        replies = sum(reply.is_cut for reply in self.replies)
        if not turns and not replies:
            return ()
        return (
            f"{plural(replies, 'reply', 'replies')} to train on and {plural(turns, 'turn')} before replies have more "
            f"than words={self.config.words} tokens: of replies the first are learned, of turns the last are read; "
            "give a larger --words to use all",
        )

    def load_batch(self, planned: PlannedReplies, rank: int, world: int) -> ReplyBatch | None:
        rows, draws = (part[rank::world].tolist() for part in (planned.rows, planned.draws))
        kept = [self.config.turns_kept(planned.turns, draw) for draw in draws]
        replies = [self.replies[n].with_turns(turns) for n, turns in zip(rows, kept, strict=True)]
        if not replies:
            return None
        firsts = None
        if self.learns_dialogues:
            firsts = [
                first_reply(reply, draw if self.config.is_bidirectional else 0.0)
                for reply, draw in zip(replies, draws, strict=True)
            ]
        return ReplyBatch.of(replies, self.reader.tokenizer.special, firsts)

    def num_terms(self, batch: ReplyBatch) -> int:
        return batch.num_replied

    def loss(self, model: Responder, batch: ReplyBatch) -> Loss:
        total, nll = model.token_loss(
            batch.history, batch.target, batch.lengths, batch.first, smoothing=self.config.smoothing
        )
        return Loss(total, self.num_terms(batch), {"nll": nll.sum()})

    def validate(self, model: Responder) -> ValidationResult:
        predictor = RespondPredictor(model, self.reader)
        nll = float(np.concatenate(predictor.token_nlls(self.valid)).mean())
        reply = self.valid[len(self.valid) // 2]
        ((best, *_),) = predictor.generate([reply.history])
        decode = self.reader.tokenizer.decode
        sample = f"{decode(reply.history.turns[-1])} → {best.text}   (right: {decode(reply.tokens)})"
        return ValidationResult({"perplexity": _perplexity(nll), "nll": nll}, "perplexity", False, sample)

    def baselines(self) -> BaselineReport:
        unigram = _perplexity(unigram_nll(self.counts, self.valid))
        return BaselineReport("perplexity", False, {"unigram model of the replies": unigram})


class RespondTask(Task[Respond, RespondPredictor]):
    """Trains, loads and evaluates models that write the next turn of a dialogue."""

    def prepare(self, folder: Path, new: bool) -> RespondProblem:
        config = self.config
        splits = read(config, _BOOKINGS)
        # a run that was killed while it read its data has nothing to load yet
        new = new or not ReplyFacts.is_saved(folder)
        decoder = None
        tokenizer: TextTokenizer
        if isinstance(config.model, DecoderOptions):
            # imports the tasks of all decoders
            from regard.tasks.respond.decoder import PretrainedDecoder

            decoder = PretrainedDecoder.prepare(config, folder, new)
            tokenizer = decoder.tokenizer
        elif new:
            turns = (turn for dialogue in splits.train for turn in dialogue)
            train = partial(Tokenizer.train, config.tokens, turns, config.vocabulary)
            tokenizer = initial_tokenizer(folder, _TOKENS, train)
        else:
            tokenizer = read_tokenizer(folder / _TOKENS)
        reader = DialogueReader(tokenizer, config.turns, config.words)
        replies, valid = (reader.replies(part, config.replies) for part in (splits.train, splits.valid))
        for name, part in (("train", replies), ("valid", valid)):
            if not part:
                raise ValueError(
                    f"{name} has no reply with words in the turns={config.turns} before it, so there is nothing to "
                    "learn; give more turns, or other dialogues"
                )
        counts = count_tokens(replies, len(tokenizer))
        facts = ReplyFacts(counts=counts).for_data(splits)
        if new:
            if decoder is not None:
                decoder.write(folder)
            elif isinstance(tokenizer, Tokenizer):
                write_tokenizer(tokenizer, folder / _TOKENS)
            facts.write(folder)
        else:
            facts.check_same(folder)
        shared = record_splits(config, folder, splits, "dialogues", contents, new)
        summary = f"{len(splits.train):,} dialogues to train on with {len(replies):,} replies, {len(splits.valid):,} "
        summary += f"to validate with {len(valid):,}, {len(tokenizer):,} tokens"
        if splits.num_short:
            summary += f"; {plural(splits.num_short, 'dialogue')} without a reply left out"
        # a flat model reads the same text for all replies of one speaker, so that one pass learns them all; a
        # bidirectional one those behind a turn that is drawn in every epoch
        whole = whole_dialogues(replies, splits.train) if config.replies == "second" and config.is_flat else None
        learned = replies if whole is None else whole
        return RespondProblem(config, reader, learned, valid, decoder, counts, whole is not None, summary, shared)

    def sketch(self) -> nn.Module:
        options = self.config.model
        if isinstance(options, DecoderOptions):  # the folder decides
            options = FlatOptions(width=8, layers=1, heads=1, dropout=0.0, history="causal", init_std=0.02)
        return options.build(11, longest=max(self.config.longest, 6))

    def predictor(self, folder: Path) -> RespondPredictor:
        decoder = None
        if isinstance(self.config.model, DecoderOptions):
            from regard.tasks.respond.decoder import PretrainedDecoder

            decoder = PretrainedDecoder.of_run(folder)
        tokenizer = read_tokenizer(folder / _TOKENS) if decoder is None else decoder.tokenizer
        reader = DialogueReader(tokenizer, self.config.turns, self.config.words)
        return RespondPredictor(_build(self.config, tokenizer, decoder), reader)

    def example(self, folder: Path) -> str:
        dialogue = read(self.config).valid[0]
        return "\t".join(dialogue[: max(len(dialogue) // 2, 1)])

    def evaluate(
        self, predictor: RespondPredictor, folder: Path, options: EvaluateReplies, progress: Progress
    ) -> Evaluation:
        config, facts = self.config, ReplyFacts.read(folder)
        if options.turns is not None and options.turns > config.turns:
            raise ValueError(
                f"--turns {options.turns} is more than the {config.turns} that this run was trained with; "
                f"try --turns {config.turns}"
            )
        split = evaluation_dialogues(config, folder, options)
        dialogues = split.data
        replies = predictor.reader.replies(dialogues, config.replies, options.turns)
        if not replies:
            raise ValueError(f"{split.name} has no reply to score; give other dialogues, or more turns")
        search = Greedy() if options.beam == 1 else Beam(options.beam, length_penalty=options.length_penalty)
        histories = [reply.history for reply in replies]

        def compute(done: Done) -> tuple[Any, list[list[GeneratedText]]]:
            nlls = predictor.token_nlls(replies, done)
            return nlls, predictor.generate(histories, search, done=lambda count: done(len(replies) + count))

        (nlls, hypotheses), seconds = timed(compute, 2 * len(replies), progress)
        texts = [best.text for best, *_ in hypotheses]
        nll, baseline = float(np.concatenate(nlls).mean()), unigram_nll(facts.counts, replies)
        variety = reply_scores(texts)
        scores = {"perplexity": _perplexity(nll), "nll": nll, **variety.scores}
        tokens = sum(len(reply.tokens) for reply in replies)
        method = "greedy search" if options.beam == 1 else f"beam {options.beam}"
        turns = config.turns if options.turns is None else options.turns
        notes = [
            f"a unigram model of the replies, the baseline: perplexity {_perplexity(baseline):.2f}",
            f"perplexity per token, {tokens:,} tokens with the ends of turns; at most {plural(turns, 'turn')} read",
            f"distinct-n: different n-grams of words / words in all {len(texts):,} replies; {method}",
            f"most common: the share of the most common reply, {variety.most_common!r}",
        ]
        if config.dataset == "bookings":
            values = named_values(dialogues, replies, texts, config.seed)
            # the states of other dialogues, those of --test, are not known
            if values.num_scored:
                scores["values"] = values.share
                notes.append(
                    f"values: {values.num_right:,} of {values.num_scored:,} replies name all values of the state that "
                    "the right one names, and no other; of the replies whose values follow from the dialogue: the "
                    "right one names values, and all of them are in the state"
                )
        if num_cut := sum(reply.is_cut for reply in replies):
            notes.append(
                f"of {plural(num_cut, 'reply', 'replies')} the first {config.words} tokens are scored, and no end"
            )
        decode = predictor.tokenizer.decode
        samples = [
            f"{decode(replies[n].history.turns[-1])} → {texts[n]}   right: {decode(replies[n].tokens)}"
            for n in sample_rows(len(replies))
        ]
        numbers = {"tokens": tokens, "turns": turns, "beam": options.beam}
        json = {"baseline": {"unigram": _perplexity(baseline)}, **numbers}
        count, name = len(replies), split.name
        return split.annotate(Evaluation(scores, count, "replies", name, seconds, texts, samples, notes, json))


def _build(config: Respond, tokenizer: TextTokenizer, decoder: "PretrainedDecoder | None") -> Responder:
    if isinstance(config.model, DecoderOptions):
        assert decoder is not None
        return decoder.build()
    return config.model.build(len(tokenizer), longest=config.longest)


def _perplexity(nll: float) -> float:
    # an untrained model may be worse than any float
    return math.exp(nll) if nll < 700 else math.inf
