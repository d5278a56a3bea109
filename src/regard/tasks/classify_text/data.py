"""The texts of a run: their splits, their tokens sentence by sentence, and the facts that the run records of them."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.common.word_splitting import split_words
from regard.data.embedded import TEXTS
from regard.data.splitting import held_out, require_held_out
from regard.data.text.labelled import LabelledSplits, LabelledTexts, read_labelled, with_classes
from regard.data.text.sentences import split_sentences
from regard.data.text.special_tokens import PAD, SPECIAL, UNK
from regard.data.text.subwords import SubwordTokenizer
from regard.data.text.tokenizer import Kind, Tokenizer
from regard.tasks.classify_text.options import WORD_KINDS, ClassifyText
from regard.tasks.shared.data_fingerprint import DataFingerprint, sha256_of
from regard.tasks.shared.text_class_predictor import TokenizedText
from regard.training.protocol import LabelledBatch

# texts are sorted by shape within pools of about this many batches, so that they have other neighbours in every epoch
_POOL = 256

# the tokens of every sentence of a text
Sentences = list[list[int]]


def read(config: ClassifyText, classes: Sequence[str] | None = None) -> LabelledSplits:
    """The texts to train on, to validate and to test on; no text that is held out is also one to train on.

    With `classes`, such as those of a trained model, labels of the training texts must be among them. Files to validate
    and to test on may have others, which count as missed.
    """
    if config.dataset != "files":
        splits = TEXTS[config.dataset].splits(config.seed, **config.recall_sizes)
        if classes is None or tuple(classes) == splits.train.classes:
            return splits
        parts = (with_classes(part, classes, config.dataset) for part in (splits.train, splits.valid, splits.test))
        return LabelledSplits(*parts)
    assert config.train is not None
    train = read_labelled(config.train, classes, columns=config.columns, refuses_unseen=True)
    if len(train.classes) < 2:
        raise ValueError(
            f"train={config.train} has one class, {train.classes[0]!r}, so there is nothing to learn; "
            "give texts of another class as well"
        )
    if config.valid is None:
        held = held_out(train.texts, config.valid_share, config.seed, labels=train.labels)
        require_held_out(held, f"train={config.train}", "texts")
        train, valid = train[np.flatnonzero(~held)], train[np.flatnonzero(held)]
    else:
        valid = read_labelled(config.valid, train.classes, "valid", config.columns)
    test = valid
    if config.test is not None:
        test = read_labelled(config.test, train.classes, "test", config.columns)
    return LabelledSplits(train, valid, test)


@dataclass(frozen=True, kw_only=True)
class TextFacts(DataFingerprint):
    """The classes of a run, the number of its texts, and their fingerprints."""

    file: ClassVar[str] = "texts.json"
    unit: ClassVar[str] = "texts"

    classes: list[str]

    @staticmethod
    def digest(data: LabelledTexts) -> str:
        rows = zip(data.labels.tolist(), data.texts, strict=True)
        return sha256_of(f"{data.classes[label]}\t{text}\n" for label, text in rows)


def contents(data: LabelledTexts) -> Sequence[str]:
    """The content of every text, by which copies are known; its class may differ."""
    return data.texts


def train_tokenizer(config: ClassifyText, texts: Sequence[str], tokens: Kind | None = None) -> Tokenizer:
    """The vocabulary of the training texts, of another kind of tokens than the model's if one is named.

    Words that occur less often than `min_count` are left out, unless all do: they are unknown already in training, so
    the model learns to read texts with unknown words.
    """
    tokens = tokens or config.tokens
    vocabulary = config.vocabulary
    if tokens in WORD_KINDS:
        is_folded = tokens == "folded-words"
        counts = Counter(
            chain.from_iterable(split_words(t.lower(), "runs")[0] if is_folded else t.split() for t in texts)
        )
        frequent = sum(count >= config.min_count for count in counts.values())
        vocabulary = min(vocabulary, SPECIAL + 1 + (frequent or len(counts)))
    return Tokenizer.train(tokens, texts, vocabulary)


def encode(tokenizer: Tokenizer | SubwordTokenizer, texts: Sequence[str], max_length: int) -> list[TokenizedText]:
    """The tokens of every text, sentence by sentence, at most `max_length` in all; those of an encoder stand between
    its begin and end.

    A text without a token, such as an empty one, is encoded as one unknown token.
    """
    sentences = [split_sentences(text) for text in texts]
    flat = list(chain.from_iterable(sentences))
    begin: Sequence[int] = ()
    end: Sequence[int] = ()
    unknown: int | None = UNK
    if isinstance(tokenizer, SubwordTokenizer):
        ids_of_sentences = iter([ids for ids, _ in tokenizer.subwords(flat)])
        begin, end, unknown = tokenizer.frame.begin, tokenizer.frame.end, tokenizer.unknown
    else:
        ids_of_sentences = iter(tokenizer.encode(flat))
    room = max(max_length - len(begin) - len(end), 0)
    encoded = []
    for each in sentences:
        whole = [next(ids_of_sentences) for _ in each]
        kept = _truncate(whole, room)
        num_unknown = sum(sentence.count(unknown) for sentence in kept if unknown is not None)
        num_cut = max(sum(map(len, whole)) - room, 0)
        framed = kept or [[UNK if unknown is None else unknown] if not begin else []]
        tokens: Sentences = [[*begin, *framed[0]], *framed[1:]]
        tokens[-1].extend(end)
        encoded.append(TokenizedText(tokens, num_unknown, num_cut, not kept))
    return encoded


def sentences_of(tokenizer: Tokenizer | SubwordTokenizer, texts: Sequence[str], max_length: int) -> list[Sentences]:
    """The tokens of `encode` alone."""
    return [text.tokens for text in encode(tokenizer, texts, max_length)]


def _truncate(sentences: Sentences, max_length: int) -> Sentences:
    """The first `max_length` tokens; a sentence without tokens stays if others follow, so that the rest keep their
    numbers.
    """
    kept, room = [], max_length
    for sentence in sentences:
        kept.append(sentence[:room])
        room -= len(kept[-1])
    while kept and not kept[-1]:
        kept.pop()
    return kept


def plan_document_batches(
    texts: Sequence[Sentences], cells: int, seed: int, epoch: int
) -> list[NDArray[np.int64]]:  # "n" each
    """The batches of an epoch of texts that are padded by sentence: every text once, similar shapes together.

    `cells` bounds texts × most sentences × longest sentence; a larger text has a batch of its own. A pure function of
    its arguments.
    """
    rng = np.random.default_rng([seed, epoch])
    shapes = np.array([(len(text), max(map(len, text))) for text in texts], np.int64).reshape(-1, 2)
    order = rng.permutation(len(texts))
    size = max(1, round(_POOL * cells / max(1.0, float(shapes.prod(1).mean())))) if len(texts) else 1
    batches: list[NDArray[np.int64]] = []
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        s, t = shapes[rows].T
        # the longest sentence ascends for one number of sentences and descends for the next: neighbours are similar
        rows = rows[np.lexsort([np.where(s % 2, t, -t), s])]
        first, most = 0, shapes[rows[0]]
        for n, row in enumerate(rows):
            most = np.maximum(most, shapes[row])
            if n > first and (n + 1 - first) * int(most.prod()) > cells:
                batches.append(rows[first:n])
                first, most = n, shapes[row]
        batches.append(rows[first:])
    return [batches[n] for n in rng.permutation(len(batches))]


def drop_words(
    texts: Sequence[Sentences],
    share: float,
    rng: np.random.Generator,
    unknown: int = UNK,
    kept: Collection[int] = (),
) -> list[Sentences]:
    """Texts in which this share of the tokens, drawn at random, are unknown; those that are `kept` never are."""
    if not share:
        return list(texts)
    count = sum(len(sentence) for text in texts for sentence in text)
    dropped = iter((rng.random(count) < share).tolist())
    return [
        [[unknown if next(dropped) and token not in kept else token for token in sentence] for sentence in text]
        for text in texts
    ]


def pad(texts: Sequence[Sentences], by_sentence: bool) -> tuple[Tensor, Tensor]:  # -> "b t", "b" or "b s t", "b s"
    """The tokens of texts with PAD behind them, and their lengths; of every sentence, or of whole texts."""
    rows = [text if by_sentence else [list(chain.from_iterable(text))] for text in texts]
    s, t = max(map(len, rows)), max(len(row) for text in rows for row in text)
    tokens = np.full((len(rows), s, t), PAD, np.int64)
    lengths = np.zeros((len(rows), s), np.int64)
    for n, text in enumerate(rows):
        for i, row in enumerate(text):
            tokens[n, i, : len(row)] = row
            lengths[n, i] = len(row)
    return (
        (torch.from_numpy(tokens), torch.from_numpy(lengths))
        if by_sentence
        else (torch.from_numpy(tokens[:, 0]), torch.from_numpy(lengths[:, 0]))
    )


@dataclass(frozen=True, eq=False)
class TextBatch(LabelledBatch):
    """Texts and their classes."""

    tokens: Tensor  # "b t", or by sentence "b s t"
    lengths: Tensor  # "b", or by sentence "b s"
    labels: Tensor  # "b"
