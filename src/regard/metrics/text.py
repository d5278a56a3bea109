"""Metrics of translations against references, each a percentage."""

import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

Answers = Sequence[Sequence[str]]  # all correct targets of each line


# sacrebleu's tokenizers for BLEU
Cut = Literal["13a", "char", "zh", "ja-mecab"]

# letters of scripts without spaces between words: Thai, Lao, Tibetan, Myanmar, Khmer, kana, Han
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KANA = "\u3041-\u3096\u30a1-\u30fa\uff66-\uff9d"
_OTHERS = "\u0e01-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff"
# spaces separate phrases in such text; text that is split into words has one every two to six letters
_SPARSE = 8


def bleu(predictions: Sequence[str], answers: Answers, cut: Cut = "13a") -> float:
    """Corpus BLEU, cased, tokenized by 13a or by `cut`  (Papineni et al. 2002; Post 2018)."""
    return _bleu(cut).corpus_score(list(predictions), _columns(answers)).score


def signature(answers: Answers, cut: Cut = "13a") -> str:
    """The configuration of BLEU as sacrebleu writes it, so that others can reproduce it."""
    metric = _bleu(cut)
    metric.corpus_score(["a"], [["a"]] * max(map(len, answers)))
    return str(metric.get_signature())


def cut_for(targets: Sequence[str]) -> Cut:
    """13a, which splits at spaces; for text (almost) without spaces between words zh for Chinese, otherwise char."""
    text = "".join(targets)
    han, kana, others = (len(re.findall(f"[{letters}]", text)) for letters in (_HAN, _KANA, _OTHERS))
    unspaced = han + kana + others
    # spaces beside words of other scripts, such as names, do not count
    spaces = len(re.findall(f"(?<=[{_HAN}{_KANA}{_OTHERS}])\\s+(?=[{_HAN}{_KANA}{_OTHERS}])", text))
    if 2 * unspaced <= sum(map(str.isalpha, text)) or _SPARSE * spaces > unspaced:
        return "13a"
    # Japanese always has kana, which zh does not split
    return "zh" if 20 * (kana + others) < han else "char"


def chosen_cut(cut: Cut | None, targets: Sequence[str]) -> Cut:
    """The tokenizer of BLEU that was chosen, or the one that suits the targets; raises if its library is missing."""
    if cut is None:
        return cut_for(targets)
    _bleu(cut)
    return cut


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


def chrf(predictions: Sequence[str], answers: Answers) -> float:
    """Corpus chrF2: the F score of character n-grams  (Popović 2015)."""
    try:
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise _needs_sacrebleu("chrf") from error
    return CHRF().corpus_score(list(predictions), _columns(answers)).score


def sentence_chrf(prediction: str, answers: Sequence[str]) -> float:
    """chrF2 of one line."""
    try:
        from sacrebleu.metrics.chrf import CHRF
    except ImportError as error:
        raise _needs_sacrebleu("chrf") from error
    return CHRF().sentence_score(prediction, list(answers)).score


def exact(predictions: Sequence[str], answers: Answers) -> float:
    """Lines that equal a reference exactly."""
    return _percent(sum(line in right for line, right in zip(predictions, answers, strict=True)), len(predictions))


def symbols(predictions: Sequence[str], answers: Answers) -> float:
    """Characters at the place where a reference has them, per character of the longer of both: no edit is forgiven."""
    right = length = 0
    for line, references in zip(predictions, answers, strict=True):
        places = [(sum(map(str.__eq__, line, answer)), max(len(line), len(answer))) for answer in references]
        best = max(places, key=lambda each: each[0] / max(each[1], 1))
        right, length = right + best[0], length + best[1]
    return _percent(right, length)


def line_error(predictions: Sequence[str], answers: Answers) -> float:
    """Lines that equal no reference: "wer" of pronunciation, where a line is a word; no edits of words are counted."""
    return 100.0 - exact(predictions, answers)


def per(predictions: Sequence[str], answers: Answers) -> float:
    """Edits to the nearest reference, per token of that reference, tokens split at spaces: the phoneme error rate."""
    edits = length = 0
    for line, right in zip(predictions, answers, strict=True):
        nearest = min((distance(line.split(), answer.split()), len(answer.split())) for answer in right)
        edits, length = edits + nearest[0], length + nearest[1]
    return _percent(edits, length)


def distance(first: Sequence[str], second: Sequence[str]) -> int:
    """The fewest insertions, deletions and replacements that turn the first into the second  (Levenshtein 1966)."""
    row = list(range(len(second) + 1))
    for n, a in enumerate(first, 1):
        diagonal, row[0] = row[0], n
        for m, b in enumerate(second, 1):
            diagonal, row[m] = row[m], min(row[m] + 1, row[m - 1] + 1, diagonal + (a != b))
    return row[-1]


# name -> the metric, and whether more is better
SCORES: dict[str, tuple[Callable[[Sequence[str], Answers], float], bool]] = {
    "bleu": (bleu, True),
    "chrf": (chrf, True),
    "exact": (exact, True),
    "symbols": (symbols, True),
    "per": (per, False),
    "wer": (line_error, False),
}


def scored(names: Sequence[str], predictions: Sequence[str], answers: Answers, cut: Cut = "13a") -> dict[str, float]:
    """The scores of these names; `cut` is the tokenizer of BLEU."""
    return {
        name: bleu(predictions, answers, cut) if name == "bleu" else SCORES[name][0](predictions, answers)
        for name in names
    }


def _needs_sacrebleu(name: str) -> ImportError:
    return ImportError(f"{name} needs sacrebleu; install it with: pip install 'regard[train]'")


def _columns(answers: Answers) -> list[list[str]]:
    """sacrebleu takes the first reference of every line, then the second …; lines with fewer repeat their first."""
    num_references = max(map(len, answers), default=1)
    return [[right[n] if n < len(right) else right[0] for right in answers] for n in range(num_references)]


def _percent(count: int, of: int) -> float:
    return 100.0 * count / of if of else 0.0
