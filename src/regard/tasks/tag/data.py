"""The sentences of a run: their splits, the vocabulary that the run records, and tensors of batches."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.common import atomic_files
from regard.common.dataclass_json import dataclass_from_file
from regard.common.tag_schemes import NO_SCHEME, OUTSIDE, TagScheme
from regard.data.embedded import fields
from regard.data.text.special_tokens import PAD, SPECIAL, UNK
from regard.data.text.tagged import (
    TaggedSentence,
    TaggedSplits,
    check_lengths,
    check_tags,
    find_scheme,
    read_tagged,
    tags_of,
)
from regard.models.tagger import TaggerInputs, TaggerSizes
from regard.tasks.tag.options import Tag

_FILE = "tags.json"
# words and single marks; letters, digits and the marks inside numbers stay together
_WORDS = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+(?:['’][^\W\d_]+)*|[^\w\s]|_|\S")


def read(config: Tag) -> TaggedSplits:
    """The sentences to train on, to validate and to test on."""
    if config.dataset != "files":
        return fields.splits(config.seed)
    assert config.train is not None
    train = read_file(config, config.train)
    if config.valid is None:
        train, valid = _hold_out(train, config)
    else:
        valid = read_file(config, config.valid)
    return TaggedSplits(train, valid, valid if config.test is None else read_file(config, config.test))


def read_file(config: Tag, path: Path) -> list[TaggedSentence]:
    """The sentences of one file in the format of the run, none too long."""
    sentences = read_tagged(path, config.column, config.word_column)
    check_lengths(sentences, path, config.max_length)
    return sentences


def _hold_out(sentences: Sequence[TaggedSentence], config: Tag) -> tuple[list[TaggedSentence], list[TaggedSentence]]:
    """Two parts without a common text."""
    texts = sorted({sentence.text for sentence in sentences})
    count = max(1, round(config.valid_share * len(texts)))
    if len(texts) < 2:
        raise ValueError(
            f"train={config.train} has no sentence to hold out: all of its {len(sentences)} are equal; "
            "give more sentences, or --valid as well"
        )
    chosen = np.random.default_rng(config.seed).permutation(len(texts))[: min(count, len(texts) - 1)]
    held = {texts[n] for n in chosen.tolist()}
    return [s for s in sentences if s.text not in held], [s for s in sentences if s.text in held]


@dataclass(frozen=True)
class TagVocabulary:
    """The tags, words and characters of a run, and fingerprints of its sentences."""

    scheme: str
    tags: list[str]
    intents: list[str]
    words: list[str]
    characters: list[str]
    train: int
    valid: int
    train_sha256: str
    valid_sha256: str

    @staticmethod
    def of(config: Tag, splits: TaggedSplits) -> "TagVocabulary":
        scheme = find_scheme(splits.train) if config.scheme == "auto" else config.scheme
        tags = tags_of(splits.train)
        if scheme != NO_SCHEME:
            # every label has all its tags, so that a decoder can write any span of it
            tags = _complete(scheme, tags, config)
        elif len(tags) < 2:
            raise ValueError(
                f"train={config.train} has one tag, {tags[0]!r}, so there is nothing to learn; name another --column"
            )
        counts = Counter(normal(word) for sentence in splits.train for word in sentence.words)
        words = [word for word, count in counts.most_common(config.vocabulary) if count > 1] or list(counts)
        characters = Counter(character for sentence in splits.train for word in sentence.words for character in word)
        intents = sorted({sentence.intent for sentence in splits.train if sentence.intent is not None})
        found = TagVocabulary(
            scheme,
            tags,
            intents,
            words,
            sorted(character for character, count in characters.items() if count > 1),
            *(len(splits.train), len(splits.valid), _digest(splits.train), _digest(splits.valid)),
        )
        for sentences, path in ((splits.train, config.train), (splits.valid, config.valid or config.train)):
            if path is not None:
                found.check(sentences, path)
        return found

    @staticmethod
    def read(folder: Path) -> "TagVocabulary":
        return dataclass_from_file(TagVocabulary, folder / _FILE, "tags")

    @staticmethod
    def saved(folder: Path) -> bool:
        return (folder / _FILE).exists()

    def write(self, folder: Path) -> None:
        atomic_files.write_atomically(folder / _FILE, [json.dumps(asdict(self), ensure_ascii=False).encode(), b"\n"])

    @property
    def tag_scheme(self) -> TagScheme:
        return TagScheme(self.scheme, self.tags)

    @property
    def sizes(self) -> TaggerSizes:
        return TaggerSizes(SPECIAL + len(self.words), SPECIAL + len(self.characters), len(self.tags), len(self.intents))

    def check(self, sentences: Sequence[TaggedSentence], path: Path) -> None:
        """Raises at the first tag or intent that this run does not know, or that its scheme forbids there."""
        check_tags(sentences, path, self.tag_scheme)
        for sentence in sentences:
            if self.intents and sentence.intent not in self.intents:
                raise ValueError(
                    f"{path}: line {sentence.lines[0]} has the intent {sentence.intent!r}, which is none of the "
                    f"training sentences; theirs: {', '.join(self.intents)}"
                )

    def check_same(self, splits: TaggedSplits, folder: Path) -> None:
        """Raises if the run of the folder began with other sentences."""
        for name, sentences in (("train", splits.train), ("valid", splits.valid)):
            if getattr(self, f"{name}_sha256") != _digest(sentences):
                raise ValueError(
                    f"the {name} data of {folder} has changed: it had {getattr(self, name)} sentences, now "
                    f"{len(sentences)}, and other content; put the files back as they were, or train in another folder"
                )

    def check_held_out(self, valid: Sequence[TaggedSentence], folder: Path) -> None:
        """Raises if the run held out other sentences than these, which it may have learned from."""
        if _digest(valid) != self.valid_sha256:
            raise ValueError(
                f"{folder} held out other sentences than these: its files have changed since; give sentences that it "
                "has not learned from, by --test"
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


def _digest(sentences: Sequence[TaggedSentence]) -> str:
    digest = hashlib.sha256()
    for sentence in sentences:
        digest.update(f"{' '.join(sentence.words)}\t{' '.join(sentence.tags)}\t{sentence.intent}\n".encode())
    return digest.hexdigest()


def normal(word: str) -> str:
    """The word as its vector is looked up: lower case, every digit 0. Its characters are read as they are."""
    return re.sub(r"\d", "0", word.lower())


def split_words(text: str, how: str) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """The words of a text and their places in it."""
    found = list(re.finditer(r"\S+", text) if how == "spaces" else _WORDS.finditer(text))
    return tuple(match.group() for match in found), tuple(match.span() for match in found)


class WordEncoder:
    """Words to their numbers, and to those of their characters."""

    def __init__(self, vocabulary: TagVocabulary) -> None:
        self.words = {word: SPECIAL + n for n, word in enumerate(vocabulary.words)}
        self.characters = {character: SPECIAL + n for n, character in enumerate(vocabulary.characters)}

    def inputs(self, sentences: Sequence[Sequence[str]], dropped: np.ndarray | None = None) -> TaggerInputs:
        """The tensors of sentences; `dropped` marks words, in their order, whose vector is the unknown one."""
        lengths = [len(sentence) for sentence in sentences]
        shape = (len(sentences), max(lengths, default=0))
        words, spellings = np.full(shape, PAD, np.int64), np.zeros(shape, np.int64)
        rows: dict[str, int] = {}
        for n, sentence in enumerate(sentences):
            words[n, : len(sentence)] = [self.words.get(normal(word), UNK) for word in sentence]
            spellings[n, : len(sentence)] = [rows.setdefault(word, len(rows)) for word in sentence]
        if dropped is not None:
            inside = np.arange(shape[1]) < np.array(lengths)[:, None]
            words[inside] = np.where(dropped, UNK, words[inside])
        characters = np.full((max(len(rows), 1), max([1, *map(len, rows)])), PAD, np.int64)
        for word, row in rows.items():
            characters[row, : len(word)] = [self.characters.get(character, UNK) for character in word]
        tensors = map(torch.from_numpy, (words, spellings, characters, np.array(lengths, np.int64)))
        return TaggerInputs(*tensors)


@dataclass(frozen=True, eq=False)
class TagBatch:
    """Sentences with their tags and, if there are any, intents."""

    inputs: TaggerInputs
    tags: Tensor  # "b t"
    intents: Tensor | None  # "b"

    @property
    def mask(self) -> Tensor:  # "b t"
        return torch.arange(self.tags.shape[1], device=self.tags.device) < self.inputs.lengths.unsqueeze(1)

    def to(self, device: torch.device) -> "TagBatch":
        intents = None if self.intents is None else self.intents.to(device)
        return TagBatch(self.inputs.to(device), self.tags.to(device), intents)
