"""Scores of translations against what is right, each a percentage."""

import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

Answers = Sequence[Sequence[str]]  # everything that is right for each line


# how sacrebleu cuts text into what BLEU counts
Cut = Literal["13a", "char", "zh", "ja-mecab"]

# letters of scripts that put no spaces between words: Thai, Lao, Tibetan, Myanmar, Khmer, kana, Han
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u3096\u30a1-\u30fa\uff66-\uff9d"
_OTHERS = "\u0e01-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
# in such text a space stands between phrases: cut into words it has one in every two to six letters
_SPARSE = 8


def bleu(said: Sequence[str], answers: Answers, cut: Cut = "13a") -> float:
    """Corpus BLEU, cased, of words as 13a cuts them, or as `cut` does  (Papineni et al. 2002; Post 2018)."""
    return _bleu(cut).corpus_score(list(said), _columns(answers)).score


def signature(answers: Answers, cut: Cut = "13a") -> str:
    """How BLEU was counted, as sacrebleu writes it, so that others can count it the same way."""
    metric = _bleu(cut)
    metric.corpus_score(["a"], [["a"]] * max(map(len, answers)))
    return str(metric.get_signature())


def cut_for(targets: Sequence[str]) -> Cut:
    """13a, which goes by spaces; for text with (almost) none between words zh if it is Chinese, char if not."""
    text = "".join(targets)
    han, kana, others = (len(re.findall(f"[{letters}]", text)) for letters in (_HAN, _KANA, _OTHERS))
    unspaced = han + kana + others
    # beside words of other scripts, such as names, they tell nothing
    spaces = len(re.findall(f"(?<=[{_HAN}{_KANA}{_OTHERS}])\\s+(?=[{_HAN}{_KANA}{_OTHERS}])", text))
    if 2 * unspaced <= sum(map(str.isalpha, text)) or _SPARSE * spaces > unspaced:
        return "13a"
    # no Japanese does without kana, and zh leaves it whole
    return "zh" if 20 * (kana + others) < han else "char"


def _bleu(cut: Cut) -> "BLEU":
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError as error:
        raise _needs_sacrebleu("bleu") from error
    if cut == "ja-mecab" and not (find_spec("MeCab") and find_spec("ipadic")):
        raise ImportError(
            "bleu='ja-mecab' needs mecab-python3 and ipadic; install them with: pip install 'sacrebleu[ja]', "
            "or take bleu='char'"
        )
    return BLEU(tokenize=cut)


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


def scored(names: Sequence[str], said: Sequence[str], answers: Answers, cut: Cut = "13a") -> dict[str, float]:
    """The scores of these names; `cut` is how BLEU cuts text."""
    return {name: bleu(said, answers, cut) if name == "bleu" else SCORES[name][0](said, answers) for name in names}


def _needs_sacrebleu(name: str) -> ImportError:
    return ImportError(f"{name} needs sacrebleu; install it with: pip install 'regard[train]'")


def _columns(answers: Answers) -> list[list[str]]:
    """sacrebleu wants the first answer of every line, then the second …; lines with fewer repeat their first."""
    most = max(map(len, answers), default=1)
    return [[right[n] if n < len(right) else right[0] for right in answers] for n in range(most)]


def _percent(count: int, of: int) -> float:
    return 100.0 * count / of if of else 0.0
