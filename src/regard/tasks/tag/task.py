"""The task tag: its training problem and its evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import nn

from regard.common.tag_schemes import TagScheme
from regard.common.wording import clipped, corrected, plural
from regard.data.tagging.tagged import TaggedSentence, stray_tags_warning, tags_of, with_well_formed_tags
from regard.data.text.subword_inputs import SubwordEncoder
from regard.data.text.words import WordEncoder
from regard.data.unseen_labels import unseen_notes
from regard.inference.evaluation import EvaluatedExample, Evaluation, Progress, sample_rows, timed
from regard.inference.evaluation_split import EvaluationSplit, record_splits
from regard.kernels import crf
from regard.metrics.classification import accuracy, accuracy_interval
from regard.metrics.spans import count_malformed, span_scores
from regard.models.tagger import Tagger, TaggerSizes
from regard.tasks.base import Task
from regard.tasks.shared.encoder import PretrainedEncoder, smallest_encoder
from regard.tasks.shared.encoder_options import EncoderOptions
from regard.tasks.shared.row_batches import BatchedByLength
from regard.tasks.shared.text_options import AttackTextFile, EvaluateTextFile
from regard.tasks.tag.data import TagBatch, TagVocabulary, contents, read, read_file
from regard.tasks.tag.options import Tag
from regard.tasks.tag.outputs import Tagging
from regard.tasks.tag.predictor import TagPredictor
from regard.training.protocol import Loss, ValidationResult


@dataclass(frozen=True, eq=False)
class TagProblem(BatchedByLength[Tagger, TagBatch]):
    """−log p(tags | words) of every sentence, and of its intent."""

    config: Tag
    vocabulary: TagVocabulary
    encoder: WordEncoder | SubwordEncoder
    train: Sequence[TaggedSentence]
    valid: Sequence[TaggedSentence]
    summary: str
    pretrained: PretrainedEncoder | None = None
    stray: Sequence[str] = ()
    shared: Sequence[str] = ()
    unit: str = "words"

    def build_model(self) -> Tagger:
        return build(self.config, self.vocabulary, self.pretrained)

    def warnings(self) -> Sequence[str]:
        return [*self.stray, *super().warnings()]

    def closing_notes(self) -> Sequence[str]:
        """The way in which `regard predict` splits text, and the number of training sentences split otherwise."""
        split = self.vocabulary.splitter(self.config.words)
        how = {"file": f"{self.vocabulary.affixes}, as in the training file", "spaces": "at spaces"}
        notes = [f"Text to tag is split {how.get(self.config.words, 'at spaces and punctuation')}."]
        changed = [each for each in self.train if split(each.text)[0] != tuple(each.words)]
        if changed:
            pairs = enumerate(zip(split(changed[0].text)[0], changed[0].words, strict=False))
            at = next((n for n, (word, right) in pairs if word != right), 0)
            shown = (" ".join(words[at : at + 4]) for words in (split(changed[0].text)[0], changed[0].words))
            notes.append(
                f"Of {plural(len(self.train), 'training sentence')}, the text of {len(changed):,} would be split "
                f"otherwise than the file splits it, as {next(shown)!r} for {next(shown)!r}."
            )
        return notes

    def lengths(self) -> list[NDArray[np.integer]]:  # "n"
        return [np.array([len(sentence) for sentence in self.train])]

    def load_rows(self, rows: NDArray[np.int64], rng: np.random.Generator) -> TagBatch:
        sentences = [self.train[n] for n in rows]
        count = sum(map(len, sentences))
        dropped = rng.random(count) < self.config.word_dropout if self.config.word_dropout else None
        return to_batch(sentences, self.vocabulary, self.encoder, dropped)

    def num_terms(self, batch: TagBatch) -> int:
        return int(batch.inputs.lengths.sum())

    def loss(self, model: Tagger, batch: TagBatch) -> Loss:
        emissions, intents = model(batch.inputs)
        emissions = emissions.float()
        total = crf.nll(emissions, batch.tags, batch.mask, model.potentials(emissions)).sum()
        sums: dict[str, Any] = {}
        if intents is not None and batch.intents is not None:
            total = total + F.cross_entropy(intents.float(), batch.intents, reduction="sum")
        return Loss(total, self.num_terms(batch), sums)

    def validate(self, model: Tagger) -> ValidationResult:
        predictor = TagPredictor(model, self.vocabulary, self.config, self.encoder)
        taggings = predictor.tag_words([sentence.words for sentence in self.valid])
        scores, _ = score(taggings, self.valid, self.vocabulary.tag_scheme)
        scores["nll"] = predictor.mean_nll(self.valid)
        sample = predictor.text(predictor.outputs([self.valid[0].text])[0])
        return ValidationResult(scores, "strict f1", True, sample)

    def describe_rows(self, rows: NDArray[np.int64]) -> str:
        first = self.train[rows[0]].text[:60]
        return f"{plural(len(rows), 'sentence')} of {self.config.dataset_label}, the first {first!r}"


def to_batch(
    sentences: Sequence[TaggedSentence],
    vocabulary: TagVocabulary,
    encoder: WordEncoder | SubwordEncoder,
    dropped: NDArray[np.bool_] | None = None,
) -> TagBatch:
    """The tensors of tagged sentences."""
    inputs = encoder.inputs([sentence.words for sentence in sentences], dropped)
    numbers = {tag: n for n, tag in enumerate(vocabulary.tags)}
    tags = np.zeros((len(sentences), int(inputs.lengths.max())), np.int64)
    for n, sentence in enumerate(sentences):
        tags[n, : len(sentence)] = [numbers[tag] for tag in sentence.tags]
    intents = None
    if vocabulary.intents:
        intents = torch.tensor([vocabulary.intents.index(str(sentence.intent)) for sentence in sentences])
    return TagBatch(inputs, torch.from_numpy(tags), intents)


def build(config: Tag, vocabulary: TagVocabulary, pretrained: PretrainedEncoder | None) -> Tagger:
    """The model with initial weights; those of an encoder come from its folder if the run has none yet."""
    options = config.model
    if isinstance(options, EncoderOptions):
        assert pretrained is not None
        return options.build(pretrained.build(options), vocabulary.sizes, scheme=vocabulary.tag_scheme)
    return options.build(vocabulary.sizes, scheme=vocabulary.tag_scheme)


def word_encoder(vocabulary: TagVocabulary, pretrained: PretrainedEncoder | None) -> WordEncoder | SubwordEncoder:
    """Words to the inputs of the model."""
    if pretrained is None:
        return vocabulary.encoder()
    return SubwordEncoder(pretrained.tokenizer, pretrained.longest, vocabulary.characters)


def check_tokens(encoder: SubwordEncoder, sentences: Sequence[TaggedSentence], path: Path | None) -> None:
    """Raises at the first sentence that is longer than the encoder reads."""
    for sentence in sentences:
        line = f":{sentence.lines[0]}" if sentence.lines else ""
        start = " ".join(sentence.words)[:30]
        encoder.check_length(sentence.words, f"{path}{line}: the sentence" if path else f"the sentence {start!r}")


class TagTask(Task[Tag, TagPredictor]):
    """Trains, loads and evaluates taggers."""

    def prepare(self, folder: Path, new: bool) -> TagProblem:
        config = self.config
        splits = read(config)
        options = config.model
        pretrained = PretrainedEncoder.prepare(options, folder, new) if isinstance(options, EncoderOptions) else None
        known = TagVocabulary.of_initial(folder)
        vocabulary = TagVocabulary.of(config, splits) if known is None else known.checked(config, splits)
        vocabulary = vocabulary.saved(folder, new)
        shared = record_splits(config, folder, splits, "sentences", contents, new)
        longest = max(map(len, splits.train))
        named = "" if vocabulary.scheme == "none" else f" in {vocabulary.scheme}"
        summary = f"{plural(len(splits.train), 'sentence')} to train on, the longest of {plural(longest, 'word')}, "
        summary += f"{len(splits.valid):,} to validate, {plural(len(vocabulary.tags), 'tag')}{named}, "
        summary += plural(len(vocabulary.words), "word")
        if vocabulary.intents:
            summary += f", {plural(len(vocabulary.intents), 'intent')}"
        encoder = word_encoder(vocabulary, pretrained)
        parts = ((splits.train, config.train), (splits.valid, config.valid or config.train))
        if isinstance(encoder, SubwordEncoder):
            for part, path in parts:
                check_tokens(encoder, part, path)
        scheme = vocabulary.tag_scheme
        stray = [stray_tags_warning(part, path, scheme) for part, path in parts if path is not None]
        train, valid = (with_well_formed_tags(part, scheme) for part, _ in parts)
        strays = [each for each in stray if each is not None]
        return TagProblem(config, vocabulary, encoder, train, valid, summary, pretrained, strays, shared)

    def sketch(self) -> nn.Module:
        sizes, scheme = TaggerSizes(11, 9, 3), TagScheme("IOB2", ["O", "B-X", "I-X"])
        options = self.config.model
        if isinstance(options, EncoderOptions):
            return options.build(smallest_encoder(options), sizes, scheme=scheme)
        return options.build(sizes, scheme=scheme)

    def predictor(self, folder: Path) -> TagPredictor:
        vocabulary = TagVocabulary.read(folder)
        is_pretrained = isinstance(self.config.model, EncoderOptions)
        pretrained = PretrainedEncoder.of_run(folder) if is_pretrained else None
        model = build(self.config, vocabulary, pretrained)
        return TagPredictor(model, vocabulary, self.config, word_encoder(vocabulary, pretrained))

    def example(self, folder: Path) -> str:
        return read(self.config).valid[0].text

    def evaluate(
        self, predictor: TagPredictor, folder: Path, options: EvaluateTextFile, progress: Progress
    ) -> Evaluation:
        split, stray = self._sentences(predictor, folder, options)
        sentences = split.data
        taggings, seconds = timed(
            lambda done: predictor.tag_words([sentence.words for sentence in sentences], done), len(sentences), progress
        )
        scheme = predictor.vocabulary.tag_scheme
        scores, intervals = score(taggings, sentences, scheme)
        known = [sentence for sentence in sentences if predictor.vocabulary.knows(sentence)]
        if known:
            scores["nll"] = predictor.mean_nll(known)
        malformed = count_malformed([each.tags for each in taggings], scheme)
        notes = [
            "strict f1 leaves malformed spans out, lenient f1 reads them as conlleval; precision and recall are strict",
            f"{malformed:,} of {len(taggings):,} predicted sequences {'is' if malformed == 1 else 'are'} malformed",
        ]
        if stray is not None:
            notes.append(stray)
        left_out = plural(len(sentences) - len(known), "sentence")
        notes += unseen_notes("tags or intents", predictor.vocabulary.unknown(sentences), left_out)
        predictions = [" ".join(each.tags) for each in taggings]
        samples = [_sample(sentences[n], taggings[n], scheme) for n in sample_rows(len(taggings))]
        facts = {"malformed": malformed, "scheme": predictor.vocabulary.scheme}
        evaluation = Evaluation(
            scores, len(sentences), "sentences", split.name, seconds, predictions, samples, notes, facts, intervals,
            "spans", lambda: [_example(*pair, scheme) for pair in zip(sentences, taggings, strict=True)],
        )  # fmt: skip
        return split.annotate(evaluation)

    def attack_examples(
        self, predictor: TagPredictor, folder: Path, options: AttackTextFile
    ) -> tuple[list[str], list[str], str]:
        """The sentences whose words the predictor splits as their file does; tags of others have no words."""
        split, _ = self._sentences(predictor, folder, options)
        known = filter(predictor.vocabulary.knows, split.data)
        whole = [each for each in known if predictor.split(each.text)[0] == tuple(each.words)]
        return [each.text for each in whole], [" ".join(each.tags) for each in whole], split.title

    def _sentences(
        self, predictor: TagPredictor, folder: Path, options: EvaluateTextFile
    ) -> tuple[EvaluationSplit[Sequence[TaggedSentence]], str | None]:
        """The sentences to tag, and a sentence about tags that their scheme forbids."""

        def read_files(files: tuple[Path, ...]) -> Sequence[TaggedSentence]:
            sentences = read_file(self.config, files[0])
            predictor.vocabulary.check_form(sentences, files[0])
            if isinstance(predictor.encoder, SubwordEncoder):
                check_tokens(predictor.encoder, sentences, files[0])
            return sentences

        split = EvaluationSplit[Sequence[TaggedSentence]].of(
            self.config,
            options,
            folder,
            "sentences",
            read_files=read_files,
            read_part=lambda part: getattr(read(self.config), part),
            contents=contents,
        )
        scheme = TagScheme(predictor.vocabulary.scheme, tags_of(split.data))
        stray = stray_tags_warning(split.data, split.files[0], scheme) if split.files else None
        return replace(split, data=with_well_formed_tags(split.data, scheme)), stray


def score(
    taggings: Sequence[Tagging], sentences: Sequence[TaggedSentence], scheme: TagScheme
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Span scores, the accuracy of tags and that of intents, in percent, and 95 % intervals."""
    predicted, right = [each.tags for each in taggings], [sentence.tags for sentence in sentences]
    strict, lenient = (span_scores(predicted, right, scheme, reading) for reading in ("strict", "lenient"))
    flat, gold = np.concatenate([*map(np.array, predicted)]), np.concatenate([*map(np.array, right)])
    scores = {
        "strict f1": strict.f1,
        "lenient f1": lenient.f1,
        "precision": strict.precision,
        "recall": strict.recall,
        "accuracy": accuracy(flat, gold),
    }
    intervals = {"strict f1": strict.interval, "lenient f1": lenient.interval}
    intents = [
        (each.intent, sentence.intent) for each, sentence in zip(taggings, sentences, strict=True) if each.intent
    ]
    if intents:
        guesses, truths = zip(*intents, strict=True)
        scores["intent accuracy"] = accuracy(guesses, truths)
        intervals["intent accuracy"] = accuracy_interval(guesses, truths)
    return scores, intervals


def _example(sentence: TaggedSentence, tagging: Tagging, scheme: TagScheme) -> EvaluatedExample:
    """The spans that were missed, and those that are wrong, of one sentence; its score is the share of right tags."""
    words = sentence.words
    target, output = (
        {f"{label}: {' '.join(words[start:end])} ({start + 1}–{end})" for start, end, label in scheme.spans(tags)}
        for tags in (sentence.tags, tagging.tags)
    )
    right = sum(map(str.__eq__, sentence.tags, tagging.tags))
    return EvaluatedExample(
        sentence.text,
        " ".join(sentence.tags),
        " ".join(tagging.tags),
        100.0 if target == output and sentence.intent == tagging.intent else min(100.0 * right / len(words), 99.0),
        missed=tuple(sorted(target - output)),
        wrong=tuple(sorted(output - target)),
    )


def _sample(sentence: TaggedSentence, tagging: Tagging, scheme: TagScheme) -> str:
    def named(tags: Sequence[str]) -> str:
        spans = scheme.spans(tags)
        return ", ".join(f"{label}: {' '.join(sentence.words[a:b])}" for a, b, label in spans) or "no spans"

    return f"{clipped(sentence.text, 100)} → {corrected(named(tagging.tags), named(sentence.tags))}"
