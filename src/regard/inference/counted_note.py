"""CountedNote: a sentence about the inputs or outputs of a prediction, with their number."""

from dataclasses import dataclass

from regard.common.wording import plural


@dataclass(frozen=True)
class CountedNote:
    """A sentence that begins with a number: "1 text is empty", "2 texts are empty"."""

    noun: str
    one: str
    many: str | None = None  # where it differs from the sentence about one
    nouns: str | None = None  # a plural that has no -s alone

    def text(self, count: int) -> str:
        sentence = self.one if count == 1 or self.many is None else self.many
        return f"{plural(count, self.noun, self.nouns)} {sentence}"


_UNKNOWN = (
    "was not in the vocabulary, so the model could not read it",
    "were not in the vocabulary, so the model could not read them",
)
UNKNOWN_TOKENS, UNKNOWN_WORDS = CountedNote("token", *_UNKNOWN), CountedNote("word", *_UNKNOWN)
EMPTY_TEXTS = CountedNote("text", "is empty", "are empty")
