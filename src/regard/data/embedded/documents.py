"""Generated documents -> what became of a parcel; one sentence in three to eight decides.  No torch here.

    Someone asked whether the crate was lost. The driver wore a green coat. We can confirm that the parcel reached the
    customer. It is not certain that the box went back to the sender.                                     -> delivered

The deciding sentence states an outcome. Others state outcomes of other classes that are asked, doubted, denied or of
another case, in the same words, and some have the words of deciding sentences and no outcome. A bag of words therefore
has little to go by, while every document has one answer, in the sentence that `evidence` numbers.
"""

import numpy as np

from regard.data.embedded._generated import generated_splits
from regard.data.text.labelled import LabelledSplits

OUTCOMES = {
    "delivered": (
        "{thing} reached the customer",
        "{thing} was delivered",
        "{thing} arrived at the right address",
        "the customer signed for {thing}",
        "{thing} was handed over at the door",
    ),
    "returned": (
        "{thing} went back to the sender",
        "{thing} was returned",
        "the sender received {thing} again",
        "the driver brought {thing} back to the shop",
        "{thing} was sent back",
    ),
    "lost": (
        "{thing} was lost",
        "{thing} disappeared on the way",
        "{thing} could not be found",
        "nobody ever saw {thing} again",
        "{thing} went missing",
    ),
    "damaged": (
        "{thing} was damaged",
        "{thing} broke on the way",
        "{thing} was crushed in the van",
        "water got into {thing}",
        "{thing} fell off the lorry",
    ),
}
CLASSES = tuple(OUTCOMES)
THINGS = ("the parcel", "the crate", "the box", "the package", "the order", "the shipment")
# sentences that decide; {clause} is an outcome
DECIDING = (
    "In the end {clause}.",
    "We can confirm that {clause}.",
    "It is certain that {clause}.",
    "The final note says that {clause}.",
    "As it turned out, {clause}.",
    "It is true that {clause}.",
    "The clerk found out that {clause}.",
    "Everybody agrees now that {clause}.",
)
# sentences with an outcome that does not count
DISTRACTING = (
    "In the end nobody asked whether {clause}.",
    "We cannot confirm that {clause}.",
    "It is not certain that {clause}.",
    "The final note does not say that {clause}.",
    "As it turned out, it was wrong that {clause}.",
    "It is not true that {clause}.",
    "The clerk never found out whether {clause}.",
    "Nobody agrees now that {clause}.",
    "Someone asked whether {clause}.",
    "In another case {clause}.",
    "At first the clerk believed that {clause}.",
    "It was only a rumour that {clause}.",
)
# sentences without an outcome
FILLING = (
    "In the end the rain stopped.",
    "We can confirm that the office closes at six.",
    "It is certain that the road was closed.",
    "The final note is two pages long.",
    "As it turned out, the clerk was ill on Monday.",
    "It is true that the driver wore a green coat.",
    "The clerk found out that the phone was broken.",
    "Everybody agrees now that the form is too long.",
    "The customer called twice.",
    "The driver did not ask for the way.",
    "At first nobody answered.",
    "The case was opened on a Tuesday.",
    "There was a rumour about a strike.",
    "The weather was not bad.",
)
SENTENCES = range(3, 9)


def splits(seed: int = 0, train: int = 4_000, valid: int = 500, test: int = 1_000) -> LabelledSplits:
    """Documents, as many of every class, none twice; pure in its arguments."""
    rng = np.random.default_rng(seed)
    return generated_splits(lambda label: _document(label, rng), CLASSES, train, valid, test)


def _document(label: int, rng: np.random.Generator) -> tuple[str, int]:
    """A document of a class, and the number of its deciding sentence."""

    def pick(choices: tuple[str, ...]) -> str:
        return choices[rng.integers(len(choices))]

    def state(frames: tuple[str, ...], outcome: int) -> str:
        return pick(frames).format(clause=pick(OUTCOMES[CLASSES[outcome]]).format(thing=pick(THINGS)))

    count = int(rng.integers(SENTENCES.start, SENTENCES.stop))
    # every other class is as likely to be mentioned, one at least
    others = [other for other in rng.permutation(len(CLASSES)).tolist() if other != label]
    mentioned = others[: int(rng.integers(1, min(len(others), count - 1) + 1))]
    sentences = [state(DECIDING, label), *(state(DISTRACTING, other) for other in mentioned)]
    fillers = rng.permutation(len(FILLING))[: count - len(sentences)]
    sentences += [FILLING[n] for n in fillers]
    order = rng.permutation(count).tolist()
    return " ".join(sentences[n] for n in order), order.index(0)
