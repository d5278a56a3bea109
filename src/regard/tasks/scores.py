"""Scores of translations against what is right, each a percentage."""

from collections.abc import Callable, Sequence

Answers = Sequence[Sequence[str]]  # everything that is right for each line


def bleu(said: Sequence[str], answers: Answers) -> float:
    """Corpus BLEU, cased, tokenised by 13a  (Papineni et al. 2002; Post 2018)."""
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise _needs_sacrebleu("bleu") from error
    return BLEU().corpus_score(list(said), _columns(answers)).score


def chrf(said: Sequence[str], answers: Answers) -> float:
    """Corpus chrF2: the F score of character n-grams  (Popović 2015)."""
    try:
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise _needs_sacrebleu("chrf") from error
    return CHRF().corpus_score(list(said), _columns(answers)).score


def exact(said: Sequence[str], answers: Answers) -> float:
    """Lines that are right to the letter."""
    return _percent(sum(one in right for one, right in zip(said, answers, strict=True)), len(said))


def wer(said: Sequence[str], answers: Answers) -> float:
    """Lines that are wrong: the word error rate of pronunciation, where a line is a word."""
    return 100.0 - exact(said, answers)


def per(said: Sequence[str], answers: Answers) -> float:
    """Edits to the nearest answer, per token of that answer, tokens cut at spaces: the phoneme error rate."""
    edits = length = 0
    for one, right in zip(said, answers, strict=True):
        nearest = min((distance(one.split(), answer.split()), len(answer.split())) for answer in right)
        edits, length = edits + nearest[0], length + nearest[1]
    return _percent(edits, length)


def distance(one: Sequence[str], other: Sequence[str]) -> int:
    """The fewest insertions, deletions and replacements that make one of the other  (Levenshtein 1966)."""
    row = list(range(len(other) + 1))
    for n, a in enumerate(one, 1):
        before, row[0] = row[0], n
        for m, b in enumerate(other, 1):
            before, row[m] = row[m], min(row[m] + 1, row[m - 1] + 1, before + (a != b))
    return row[-1]


# name -> how it is counted, and whether more is better
SCORES: dict[str, tuple[Callable[[Sequence[str], Answers], float], bool]] = {
    "bleu": (bleu, True),
    "chrf": (chrf, True),
    "exact": (exact, True),
    "per": (per, False),
    "wer": (wer, False),
}


def _needs_sacrebleu(name: str) -> ImportError:
    return ImportError(f"{name} needs sacrebleu; install it with: pip install 'regard[train]'")


def _columns(answers: Answers) -> list[list[str]]:
    """sacrebleu wants the first answer of every line, then the second …; lines with fewer repeat their first."""
    most = max(map(len, answers), default=1)
    return [[right[n] if n < len(right) else right[0] for right in answers] for n in range(most)]


def _percent(count: int, of: int) -> float:
    return 100.0 * count / of if of else 0.0
