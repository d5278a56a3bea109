"""The task translate: its training problem, its data, its evaluation."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.data.embedded import EMBEDDED
from regard.data.text.batching import PairBatch, collate, long_sample_warnings, plan_batches
from regard.data.text.corpus import Corpus, among_all
from regard.data.text.holdout import hold_out
from regard.data.text.pairs import Pairs, Splits, read_pairs
from regard.decoding.search import Beam, Greedy, Search
from regard.inference.evaluation import EvaluatedExample, Evaluation, Progress, sample_rows, timed
from regard.inference.evaluation_split import EvaluationSplit, record_splits
from regard.metrics.text import SCORES, Cut, chosen_cut, cut_for, scored, sentence_chrf, signature
from regard.models.encoder_decoder import EncoderDecoder
from regard.tasks.base import Task
from regard.tasks.shared.text_generation import TokenLoss, hard_attention_loss, token_loss
from regard.tasks.translate.fingerprint import CorpusFingerprint, contents
from regard.tasks.translate.model_options import UniversalOptions
from regard.tasks.translate.options import AttackTranslations, EvaluateTranslations, Translate
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.vocabularies import Vocabularies
from regard.training.protocol import Loss, TrainingProblem, ValidationResult
from regard.training.run_folder import initial_folder

# the weight of the entropy of a hard attention, which keeps it undecided while it learns where to attend
_ENTROPY = 0.05
# lines of a batch that an error names
_MAX_NAMED_LINES = 12
# the scores of a validation and of an evaluation, by data set; the deciding score comes first
_VALIDATED = {
    "files": ("bleu", "chrf"),
    "dates": ("exact",),
    "reverse": ("exact",),
    "copy": ("exact", "symbols"),
    "repeat-copy": ("exact", "symbols"),
    "sort": ("exact",),
    "hull": ("exact",),
    "pronounce": ("per", "wer"),
}
_EVALUATED = {**_VALIDATED, "files": ("bleu", "chrf", "exact")}
# sequences of one length that are generated for an evaluation
_OF_LENGTH = 1000


@dataclass(frozen=True, eq=False)
class TranslateProblem(TrainingProblem[EncoderDecoder, PairBatch]):
    """−log p(y | x) of pairs of sentences, with label smoothing."""

    config: Translate
    vocabularies: Vocabularies
    corpus: Corpus
    valid: Pairs
    valid_corpus: Corpus
    stretch: float  # stretch of the corpus
    summary: str
    unit: str = "tokens"
    bleu: Cut = "13a"
    held: tuple[int, ...] = ()  # training lines that are held out for validation
    shared: Sequence[str] = ()

    def build_model(self) -> EncoderDecoder:
        sizes = len(self.vocabularies.source), len(self.vocabularies.target)
        return self.config.model.build(*sizes, shared=self.vocabularies.shared, max_length=self.config.max_length)

    def plan_epoch(self, epoch: int) -> Sequence[NDArray[np.int64]]:
        lengths = self.corpus.source.lengths, self.corpus.target.lengths
        return plan_batches(lengths, self.config.batch, self.config.seed, epoch)

    def warnings(self) -> Sequence[str]:
        return long_sample_warnings((self.corpus.source.lengths, self.corpus.target.lengths), self.config.batch)

    def load_batch(self, planned: NDArray[np.int64], rank: int, world: int) -> PairBatch | None:
        batch = collate(self.corpus, planned)
        return batch if world == 1 else batch.shard(rank, world)

    def locate(self, planned: Sequence[NDArray[np.int64]]) -> str:
        """The lines of these batches in the files, counted from 1."""
        rows = among_all(np.concatenate(planned), self.corpus.left_out)
        lines = np.sort(among_all(rows, np.array(self.held, np.int64))) + 1
        noun = ("line" if self.config.dataset == "files" else "pair") + ("s" if len(lines) > 1 else "")
        first = ", ".join(map(str, lines[:_MAX_NAMED_LINES].tolist()))
        more = f" and {len(lines) - _MAX_NAMED_LINES:,} more" if len(lines) > _MAX_NAMED_LINES else ""
        return f"{noun} {first}{more} of {self.config.dataset_label}"

    def num_terms(self, batch: PairBatch) -> int:
        return batch.tokens

    def loss(self, model: EncoderDecoder, batch: PairBatch) -> Loss:
        """The smoothed cross-entropy of every target token, without padding."""
        loss = _batch_loss(model, batch, self.config.smoothing)
        total = loss.total
        if loss.output.log_prob is not None:
            cumulative = self.config.model.samples_change_states
            total = total + hard_attention_loss(loss, None, _ENTROPY, cumulative=cumulative)
        if loss.output.ponder is not None:
            assert isinstance(self.config.model, UniversalOptions)
            total = total + self.config.model.ponder * loss.output.ponder
        return Loss(total, batch.tokens, {"nll": loss.nll.sum()})

    def validate(self, model: EncoderDecoder) -> ValidationResult:
        longest = self.config.model.max_tokens(self.config.max_length)
        translator = Translator(model, self.vocabularies, stretch=self.stretch, longest=longest)
        values, translations = evaluate(translator, self.valid, Greedy(), self.reported, bleu=self.bleu)
        values["nll"] = self._nll(model)
        n = min(3, len(translations) - 1)
        sample = f"{self.valid.source[n]} → {translations[n]}   (right: {self.valid.target[n]})"
        metric = self.config.metric
        return ValidationResult(values, metric, self.config.metrics[metric], sample)

    def resolved_options(self) -> dict[str, Any] | None:
        # the tokenisation of BLEU depends on the targets
        return {"bleu": self.bleu} if self.config.dataset == "files" or self.config.metric == "bleu" else None

    @property
    def reported(self) -> tuple[str, ...]:
        """The scores of a validation, the deciding one first."""
        return _scores(self.config, _VALIDATED)

    @torch.no_grad()
    def _nll(self, model: EncoderDecoder) -> float:
        """−log p of a target token, without smoothing."""
        device = next(model.parameters()).device
        total = 0.0
        lengths = self.valid_corpus.source.lengths, self.valid_corpus.target.lengths
        for index in plan_batches(lengths, max(self.config.batch, 2048), 0, 0):
            total += float(_batch_loss(model, collate(self.valid_corpus, index).to(device), 0.0).total)
        return total / max(int((lengths[1] + 1).sum()), 1)


class TranslateTask(Task[Translate, Translator]):
    """Trains, loads and evaluates translators."""

    def prepare(self, folder: Path, new: bool) -> TranslateProblem:
        config = self.config
        splits = read(config)
        # a run that was killed while it read its data has nothing to load yet
        new = new or not (Vocabularies.saved(folder) and CorpusFingerprint.is_saved(folder))
        initial = initial_folder(folder)
        if not new:
            vocabularies = Vocabularies.load(folder)
        else:
            vocabularies = Vocabularies.train(config, splits.train) if initial is None else Vocabularies.load(initial)
            vocabularies.save(folder)
        sides = vocabularies.source, vocabularies.target
        corpus, dropped = Corpus.of(splits.train, *sides, config.max_length, folder)
        stretch = max(corpus.max_length_ratio, config.least_stretch)
        # the tokenisation of BLEU that suits the targets, if none is given
        targets = splits.valid.target[: config.valid_lines] if config.dataset == "files" else ()
        fingerprint = CorpusFingerprint(stretch=stretch, bleu=chosen_cut(config.bleu, targets)).for_data(splits)
        fingerprint = fingerprint.saved(folder, new)
        shared = record_splits(config, folder, splits, "pairs", contents, new)
        first = slice(config.valid_lines)
        references = splits.valid.references
        valid = Pairs(
            splits.valid.source[first], splits.valid.target[first], None if references is None else references[first]
        )
        if not any(contents(valid)):
            raise ValueError(f"valid has {len(valid)} lines and none with two sides; give pairs to validate on")
        # every length counts; a pair with an empty side is translated, but has no likelihood
        longest = max(map(len, (*valid.source, *valid.target))) * 4 + 1
        valid_corpus, _ = Corpus.of(valid, *sides, longest, None)
        _check_positions(config, valid_corpus)
        if config.model_name == "pointer":
            for each in (corpus, valid_corpus):
                _check_pointable(each, vocabularies)
        sizes = " and ".join(f"{len(side):,}" for side in sides)
        summary = f"{len(corpus):,} pairs to train on, {len(valid):,} to validate by greedy search, {sizes} tokens"
        if dropped.too_long or dropped.empty:
            summary += f"; {dropped}"
        if config.bleu not in (None, fingerprint.bleu):
            raise ValueError(
                f"bleu was {fingerprint.bleu!r} when {folder} began and is {config.bleu!r} now; "
                "leave it out, or train anew"
            )
        if config.bleu is None and fingerprint.bleu != "13a":
            summary += f"; BLEU is cut by {fingerprint.bleu}, as the targets are written without spaces; "
            summary += "--bleu says otherwise"
        return TranslateProblem(
            config,
            vocabularies,
            corpus,
            valid,
            valid_corpus,
            fingerprint.stretch,
            summary,
            bleu=fingerprint.bleu,
            held=splits.held,
            shared=shared,
        )

    def sketch(self) -> nn.Module:
        return self.config.model.build(11, 11, shared=False, max_length=self.config.max_length)

    def predictor(self, folder: Path) -> Translator:
        return Translator.of(self.config, Vocabularies.load(folder), CorpusFingerprint.read(folder).stretch)

    def example(self, folder: Path) -> str:
        # no other file is read
        valid = (
            read_pairs(self.config.valid, names=self.config.columns) if self.config.valid else read(self.config).valid
        )
        return valid.source[0]

    def evaluate(
        self, predictor: Translator, folder: Path, options: EvaluateTranslations, progress: Progress
    ) -> Evaluation:
        split = self._pairs(folder, options)
        names, cut = _scores(self.config, _EVALUATED), CorpusFingerprint.read(folder).bleu
        evaluation = evaluate_pairs(predictor, split.data, split.name, options, progress, names=names, cut=cut)
        return split.annotate(evaluation)

    def attack_examples(
        self, predictor: Translator, folder: Path, options: AttackTranslations
    ) -> tuple[list[str], list[Any], str]:
        split = self._pairs(folder, options)
        return list(split.data.source), options.targets(len(split.data)), split.title

    def _pairs(self, folder: Path, options: EvaluateTranslations | AttackTranslations) -> EvaluationSplit[Pairs]:
        """The pairs to translate."""
        if isinstance(options, EvaluateTranslations) and options.length is not None and not options.test:
            return EvaluationSplit(*_pairs_of_length(self.config, options.length, options.repeats))
        return EvaluationSplit.of(
            self.config,
            options,
            folder,
            "pairs",
            read_files=partial(read_pairs, names=getattr(options, "columns", None) or self.config.columns),
            read_part=lambda part: getattr(read(self.config), part),
            contents=contents,
        )


def evaluate_pairs(
    predictor: Translator,
    pairs: Pairs,
    split: str,
    options: EvaluateTranslations,
    progress: Progress,
    *,
    names: Sequence[str] = _EVALUATED["files"],
    cut: Cut | None = None,
) -> Evaluation:
    """The scores of these names on pairs, which `split` names; `cut` is the tokenisation of BLEU, None: by the text."""
    search = Greedy() if options.beam == 1 else Beam(options.beam, length_penalty=options.length_penalty)
    cut = cut_for(pairs.target) if cut is None else cut
    (scores, translations), seconds = timed(
        lambda done: evaluate(predictor, pairs, search, names, done, cut), len(pairs), progress
    )
    tokens = sum(len(ids) + 1 for ids in predictor.vocabularies.target.encode(translations))
    method = "greedy search" if options.beam == 1 else f"beam {options.beam}"
    facts: dict[str, Any] = {"beam": options.beam, "tokens_per_second": tokens / seconds}
    if options.beam > 1:
        method += "; the scores of the training are those of greedy search, --beam 1"
    notes = [f"{tokens / seconds:,.0f} tokens/s; {method}"]
    if "bleu" in scores:
        facts["signature"] = signature(pairs.answers, cut)
        notes.append(facts["signature"])
    samples = [_sample(pairs, translations, n) for n in sample_rows(len(translations))]
    return Evaluation(scores, len(pairs), "lines", split, seconds, translations, samples, notes, facts, kind="text",
        examples=lambda: _examples(pairs, translations))  # fmt: skip


def _examples(pairs: Pairs, translations: Sequence[str]) -> list[EvaluatedExample]:
    """The translations with the chrF of each."""
    return [
        EvaluatedExample(source, answers[0], output, sentence_chrf(output, answers))
        for source, answers, output in zip(pairs.source, pairs.answers, translations, strict=True)
    ]


def evaluate(
    translator: Translator,
    pairs: Pairs,
    search: Search,
    names: Sequence[str],
    done: Callable[[int], object] | None = None,
    bleu: Cut = "13a",
) -> tuple[dict[str, float], list[str]]:
    """The scores of these names on pairs, and the translations; `done` is called with how many are done."""
    translations = [best.text for best, *_ in translator.translate(pairs.source, search, done=done)]
    return scored(names, translations, pairs.answers, bleu), translations


def _pairs_of_length(config: Translate, length: int, repeats: int | None) -> tuple[Pairs, str]:
    """New pairs of one length, and their name."""
    data = EMBEDDED.get(config.dataset)
    if data is None or data.of_length is None:
        sized = " and ".join(name for name, data in EMBEDDED.items() if data.of_length is not None)
        raise ValueError(
            f"--length {length} is for runs on {sized}, and this one is on {config.dataset_label}; leave it out, or "
            "give pairs of that length by --test"
        )
    if repeats is not None and config.repeats is None:
        raise ValueError(
            f"--repeats {repeats} is for runs on repeat-copy, and this one is on {config.dataset}; leave it out"
        )
    if repeats is not None and config.repeats is not None and repeats > config.repeats:
        raise ValueError(
            f"--repeats {repeats} is more than this run has seen; give --repeats {config.repeats} at most, or train "
            f"with --repeats {repeats}"
        )
    repeats = config.repeats if repeats is None else repeats
    sizes = {} if repeats is None else {"repeats": repeats}
    splits = read(config)
    known = {line for part in (splits.train, splits.valid, splits.test) for line in part.source}
    times = "" if repeats is None else f", {repeats} times"
    pairs = data.of_length(config.seed, _OF_LENGTH, length, known, **sizes)
    return pairs, f"new sequences of {length} {data.symbols}{times}"


def read(config: Translate) -> Splits:
    """The pairs to train on, to validate and to test; no training source of files is also one to validate on."""
    if config.dataset != "files":
        return EMBEDDED[config.dataset].splits(config.seed, **config.sizes)
    train = read_pairs(config.train, names=config.columns)
    for side, lines in (("source", train.source), ("target", train.target)):
        if not any(line.strip() for line in lines):
            raise ValueError(
                f"train={' '.join(map(str, config.train))} has no text on the side of the {side}, in "
                f"{len(lines):,} lines; give lines to learn from"
            )
    held: tuple[int, ...] = ()
    if config.valid:
        valid = read_pairs(config.valid, names=config.columns)
    else:
        train, valid, held = hold_out(train, config.valid_lines, config.seed)
    return Splits(train, valid, read_pairs(config.test, names=config.columns) if config.test else valid, held=held)


def _scores(config: Translate, by_dataset: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    names = by_dataset[config.dataset]
    return tuple(dict.fromkeys((config.metric, *names) if config.metric in SCORES else names))


def _check_positions(config: Translate, valid: Corpus) -> None:
    """Raises before training if a validation line has more tokens than the model has positions."""
    longest = 1 + int(max(valid.source.lengths.max(), valid.target.lengths.max()))
    positions = config.model.max_tokens(config.max_length)
    if positions is not None and longest > positions:
        raise ValueError(
            f"positions='learned' knows {positions} positions at max_length={config.max_length}, a line to validate on "
            f"has {longest} tokens; raise max_length to {longest // 2}, drop the line, or choose positions='sinusoidal'"
        )


def _check_pointable(corpus: Corpus, vocabularies: Vocabularies) -> None:
    """Raises before training if a target has a token more often than its source."""
    for n in range(len(corpus)):
        missing = Counter(corpus.target[n].tolist()) - Counter(corpus.source[n].tolist())
        if missing:
            source, target = (
                side.decode(line[n].tolist())
                for side, line in ((vocabularies.source, corpus.source), (vocabularies.target, corpus.target))
            )
            piece = vocabularies.target.pieces(missing)[0]
            raise ValueError(
                f"model='pointer' points at tokens of the source, each once, and the target {target!r} has {piece!r} "
                f"more often than its source {source!r}; take model='seq2seq', or other tokens"
            )


def _batch_loss(model: EncoderDecoder, batch: PairBatch, smoothing: float) -> TokenLoss:
    output = model.teacher_force(batch.source, batch.source_lengths, batch.target[:, :-1])
    return token_loss(output, batch.target[:, 1:], model.output, smoothing)


def _sample(pairs: Pairs, translations: Sequence[str], n: int) -> str:
    answers = pairs.answers[n]
    right = "" if translations[n] in answers else f"   right: {' or '.join(dict.fromkeys(answers))}"
    return f"{pairs.source[n]} → {translations[n]}{right}"
