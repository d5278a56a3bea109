"""The sentences of a run: their splits, the vocabulary that the run records, and tensors of batches."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor

from regard.common.tag_schemes import NO_SCHEME, OUTSIDE, TagScheme
from regard.common.word_splitting import WordSplitter, split_words
from regard.data.embedded import fields
from regard.data.splitting import held_out, require_held_out, split_items
from regard.data.tagging.tagged import (
    TaggedSentence,
    TaggedSplits,
    check_lengths,
    check_scheme_is_whole,
    check_tags,
    find_scheme,
    label_bare_tags,
    read_tagged,
    tags_of,
)
from regard.data.tagging.word_affixes import WordAffixes
from regard.data.text.special_tokens import SPECIAL
from regard.data.text.subword_inputs import SubwordInputs
from regard.data.text.words import WordEncoder, WordInputs, repeated_characters, repeated_words
from regard.data.unseen_labels import unseen
from regard.models.tagger import TaggerSizes
from regard.tasks.shared.data_fingerprint import DataFingerprint, sha256_of
from regard.tasks.tag.options import Tag, TransformerTaggerOptions
from regard.training.protocol import TensorBatch


def read(config: Tag) -> TaggedSplits:
    """The sentences to train on, to validate and to test on."""
    if config.dataset != "files":
        return fields.splits(config.seed)
    assert config.train is not None
    train = read_file(config, config.train)
    if config.valid is None:
        held = held_out(contents(train), config.valid_share, config.seed)
        require_held_out(held, f"train={config.train}", "sentences")
        train, valid = split_items(train, held)
    else:
        valid = read_file(config, config.valid)
    return TaggedSplits(train, valid, valid if config.test is None else read_file(config, config.test))


def read_file(config: Tag, path: Path) -> list[TaggedSentence]:
    """The sentences of one file in the format of the run, none too long."""
    sentences = read_tagged(path, config.column, config.word_column)
    if config.scheme != NO_SCHEME:
        sentences = label_bare_tags(sentences)
    check_lengths(sentences, path, config.max_length)
    if isinstance(config.model, TransformerTaggerOptions):
        _check_positions(sentences, path, config.model)
    return sentences


@dataclass(frozen=True, kw_only=True)
class TagVocabulary(DataFingerprint):
    """The tags, words and characters of a run, and fingerprints of its sentences."""

    file: ClassVar[str] = "tags.json"
    unit: ClassVar[str] = "sentences"

    scheme: str
    tags: list[str]
    intents: list[str]
    words: list[str]
    characters: list[str]
    affixes: WordAffixes = field(default_factory=WordAffixes)  # affixes that --words file splits off

    @staticmethod
    def digest(sentences: Sequence[TaggedSentence]) -> str:
        return sha256_of(f"{' '.join(each.words)}\t{' '.join(each.tags)}\t{each.intent}\n" for each in sentences)

    @staticmethod
    def of(config: Tag, splits: TaggedSplits) -> "TagVocabulary":
        # a tag or an intent that only validation has is known too: it counts as missed, and is no error of the file
        both = [*splits.train, *splits.valid]
        scheme = find_scheme(splits.train) if config.scheme == "auto" else config.scheme
        if config.scheme == "auto" and scheme == NO_SCHEME and config.train is not None:
            check_scheme_is_whole(splits.train, config.train)
        tags = tags_of(both)
        if scheme != NO_SCHEME:
            # every label has all its tags, so that a decoder can write any span of it
            tags = _complete(scheme, tags, config)
        elif len(tags) < 2:
            raise ValueError(
                f"train={config.train} has one tag, {tags[0]!r}, so there is nothing to learn; name another --column"
            )
        sentences = [sentence.words for sentence in splits.train]
        affixes = WordAffixes.of(sentences) if config.words == "file" else WordAffixes()
        vocabulary = TagVocabulary(
            scheme=scheme,
            tags=tags,
            intents=sorted({sentence.intent for sentence in both if sentence.intent is not None}),
            words=repeated_words(sentences, config.vocabulary),
            characters=repeated_characters(sentences),
            affixes=affixes,
        ).for_data(splits)
        vocabulary._check_splits(config, splits)
        return vocabulary

    def checked(self, config: Tag, splits: TaggedSplits) -> "TagVocabulary":
        """The same tags, intents, words and characters for other sentences, which must have no tags beyond these."""
        self._check_splits(config, splits)
        if unknown := sorted(set(tags_of(splits.train)) - set(self.tags)):
            raise ValueError(
                f"{config.dataset_label} has the tag {unknown[0]!r}, which the run to start from does not know; it "
                f"knows {', '.join(self.tags[:20])}: take the tag out, or train from scratch"
            )
        return self.for_data(splits)

    def _check_splits(self, config: Tag, splits: TaggedSplits) -> None:
        for part, path in ((splits.train, config.train), (splits.valid, config.valid or config.train)):
            if path is not None:
                self.check(part, path)

    @property
    def tag_scheme(self) -> TagScheme:
        return TagScheme(self.scheme, self.tags)

    def splitter(self, how: Literal["file", "spaces", "punctuation"]) -> WordSplitter:
        """The function that splits a text into words."""
        return self.affixes.split if how == "file" else partial(split_words, how=how)

    def encoder(self) -> WordEncoder:
        return WordEncoder(self.words, self.characters)

    @property
    def sizes(self) -> TaggerSizes:
        return TaggerSizes(SPECIAL + len(self.words), SPECIAL + len(self.characters), len(self.tags), len(self.intents))

    def knows(self, sentence: TaggedSentence) -> bool:
        """Whether all tags and the intent of a sentence are those of this run."""
        return set(sentence.tags) <= set(self.tags) and (not self.intents or sentence.intent in self.intents)

    def unknown(self, sentences: Sequence[TaggedSentence]) -> list[str]:
        """Tags and intents of sentences that this run does not know, in their order."""
        intents = (sentence.intent for sentence in sentences if self.intents and sentence.intent is not None)
        tags = (tag for sentence in sentences for tag in sentence.tags)
        return [*unseen(tags, self.tags), *unseen(intents, self.intents)]

    def check_form(self, sentences: Sequence[TaggedSentence], path: Path) -> None:
        """Raises at the first tag that is none of the scheme; tags that the run does not know may occur."""
        for sentence in sentences:
            for tag, line in zip(sentence.tags, sentence.lines, strict=True):
                if (problem := self.tag_scheme.problem(tag)) is not None:
                    raise ValueError(f"{path}:{line}: {problem}")

    def check(self, sentences: Sequence[TaggedSentence], path: Path) -> None:
        """Raises at the first tag or intent that this run does not know."""
        check_tags(sentences, path, self.tags)
        for sentence in sentences:
            if self.intents and sentence.intent not in self.intents:
                raise ValueError(
                    f"{path}: line {sentence.lines[0]} has the intent {sentence.intent!r}, which is none of the "
                    f"training sentences; theirs: {', '.join(self.intents)}"
                )


def _complete(scheme: str, tags: Sequence[str], config: Tag) -> list[str]:
    """The tags of a scheme for all labels that occur, in a fixed order."""
    empty = TagScheme(scheme, ())
    for tag in tags:
        if (problem := empty.problem(tag)) is not None:
            raise ValueError(f"train={config.train}: {problem}")
    labels = sorted({empty.label(tag) for tag in tags} - {""})
    letters = {"IOB1": "BI", "IOB2": "BI", "BIOES": "BIES", "BILOU": "BILU"}[scheme]
    return [OUTSIDE, *(f"{letter}-{label}" for label in labels for letter in letters)]


def contents(sentences: Sequence[TaggedSentence]) -> list[str]:
    """The content of every sentence, by which copies are known; their tags may differ."""
    return [sentence.text for sentence in sentences]


@dataclass(frozen=True, eq=False)
class TagBatch(TensorBatch):
    """Sentences with their tags and, if there are any, intents."""

    inputs: WordInputs | SubwordInputs
    tags: Tensor  # "b t"
    intents: Tensor | None  # "b"

    @property
    def mask(self) -> Tensor:  # "b t"
        return torch.arange(self.tags.shape[1], device=self.tags.device) < self.inputs.lengths.unsqueeze(1)


def _check_positions(sentences: Sequence[TaggedSentence], path: Path, model: TransformerTaggerOptions) -> None:
    """Raises if a sentence has more words than the model has positions."""
    count = max((len(sentence) for sentence in sentences), default=0)
    if model.positions in ("learned", "half-wave") and count > model.longest:
        raise ValueError(
            f"{path} has a sentence of {count} words, and positions={model.positions!r} has longest={model.longest} "
            f"positions; shorten it, or train with longest={count} or positions='sinusoidal'"
        )
