"""Generated texts of sixteen words, two or three of which decide -> what they are about.  No torch here.

    later violin almost choir brought harbour before ...                                                     -> music

Each text has two or three words of its own topic, one word of another, and words of no topic, in any order. So it is
known which words decide, and attributions can be measured against them: `deciding_words`.
"""

import numpy as np

from regard.data.embedded._generated import generated_splits
from regard.data.text.labelled import LabelledSplits

TOPICS = {
    "music": "violin choir melody concert drum opera flute singer rhythm chorus piano trumpet",
    "kitchen": "oven kettle recipe spoon butter onion flour pan stew pepper cook dough",
    "harbour": "ship anchor dock sailor ferry lighthouse cargo captain pier mast buoy tide",
    "garden": "rose hedge lawn seed tulip gardener compost rake orchard ivy pond shrub",
}
CLASSES = tuple(TOPICS)
WORDS = {topic: tuple(words.split()) for topic, words in TOPICS.items()}
NEUTRAL = (
    "the a one some every this that here there now then later before after again often seldom never always maybe "
    "almost rather quite very still yet also only even just she he they we you it who which what while because "
    "until about under over near beyond between without against along across toward was were is are had has will "
    "would could said asked told found left came went stayed brought took gave saw heard felt thought knew waited "
    "turned opened closed moved walked slept old new small large quiet early late slow quick warm cold other same "
    "first last next many few morning evening winter summer street window door table letter story"
)
FILLERS = tuple(NEUTRAL.split())
LENGTH = 16
DECIDING = range(2, 4)


def splits(seed: int = 0, train: int = 4_000, valid: int = 500, test: int = 1_000) -> LabelledSplits:
    """Texts, as many of every class, none twice; pure in its arguments."""
    rng = np.random.default_rng(seed)
    return generated_splits(lambda label: (_text(label, rng), None), CLASSES, train, valid, test)


def deciding_words(text: str, topic: str) -> list[int]:
    """The places of the words that speak for a topic."""
    return [n for n, word in enumerate(text.split()) if word in WORDS[topic]]


def _text(label: int, rng: np.random.Generator) -> str:
    def pick(words: tuple[str, ...], count: int) -> list[str]:
        return [words[n] for n in rng.choice(len(words), count, replace=False)]

    count = int(rng.integers(DECIDING.start, DECIDING.stop))
    others = [topic for topic in CLASSES if topic != CLASSES[label]]
    distracting = pick(WORDS[others[rng.integers(len(others))]], 1)
    words = [*pick(WORDS[CLASSES[label]], count), *distracting, *pick(FILLERS, LENGTH - count - 1)]
    return " ".join(words[n] for n in rng.permutation(LENGTH))
