"""Sentences of a text, by its punctuation.  No torch here."""

import re

# full stops, question and exclamation marks with closing quotes and brackets; Han marks need no space behind them
_MARKS, _HAN_MARKS = r"""[.!?…]+["'”’»)\]]*""", r"""[。！？]+["'”’»」』)\]]*"""
_NO_SMALL = "(?![a-zà-öø-ÿ])"
_END = re.compile(rf"{_MARKS}\s+{_NO_SMALL}|{_HAN_MARKS}\s*|\s*\n\s*")
# the white space between sentences, for the library `tokenizers`: \K leaves the marks before it out of the match
SENTENCE_SPACE = rf"{_MARKS}\K\s+{_NO_SMALL}\s*|{_HAN_MARKS}\K\s*|\s*\n\s*"


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
