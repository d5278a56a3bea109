"""The splits of generated texts: as many of every class, none twice.  No torch here."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from regard.data.text.labelled import LabelledSplits, LabelledTexts


def generated_splits(
    generate: Callable[[int], tuple[str, int | None]], classes: tuple[str, ...], train: int, valid: int, test: int
) -> LabelledSplits:
    """The texts that `generate` makes of the classes in turn, each with the number of the sentence that decides it.

    The first are for the test, which therefore does not depend on how many are trained on.
    """
    for name, count in (("train", train), ("valid", valid), ("test", test)):
        if count < 1:
            raise ValueError(f"{name} must be 1 or more, got {count}; try {name}=1000")
    generated: dict[str, tuple[int, int | None]] = {}
    while len(generated) < train + valid + test:
        label = len(generated) % len(classes)
        text, sentence = generate(label)
        generated.setdefault(text, (label, sentence))
    texts = list(generated)
    labels = np.array([label for label, _ in generated.values()], np.int64)
    sentences = [sentence for _, sentence in generated.values()]
    evidence = None if None in sentences else np.array(sentences, np.int64)
    tested, validated, trained = (
        LabelledTexts(texts[start:end], labels[start:end], classes, None if evidence is None else evidence[start:end])
        for start, end in pairwise((0, test, test + valid, len(texts)))
    )
    return LabelledSplits(trained, validated, tested)
