"""Sentences of a text, by its punctuation.  No torch here."""

import re

# a full stop, question or exclamation mark, closing quotes and brackets, and white space; Han marks need no space
_END = re.compile(
    r"""[.!?…]+["'”’»)\]]*\s+(?![a-zà-öø-ÿ])|[。！？]+["'”’»」』)\]]*\s*|\s*\n\s*""",
)


def split_sentences(text: str) -> list[str]:
    """The sentences in order, without the white space around them; a text without any words has none.

    A sentence ends at a full stop, a question or an exclamation mark before white space, unless a small letter follows,
    and at every line break. Abbreviations are not known: "Dr. Who" is two sentences.
    """
    sentences, start = [], 0
    for end in [*(match.end() for match in _END.finditer(text)), len(text)]:
        sentence = text[start:end].strip()
        if sentence:
            sentences.append(sentence)
        start = end
    return sentences
