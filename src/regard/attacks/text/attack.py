"""attack_texts: edits of texts that a predictor gets wrong, and how often they were found."""

from collections.abc import Sequence
from typing import Any

import torch

from regard.attacks.draws import seeded_model
from regard.attacks.text.base import TextAttack, TextAttackResult
from regard.attacks.text.victim import TextVictim
from regard.common.eval_mode import eval_mode
from regard.common.wording import plural
from regard.inference.edited_text import EditedText
from regard.inference.token_predictor import TokenPredictor

# the share of texts from which on a zero gradient is reported
_MANY = 0.05


def attack_texts(
    predictor: TokenPredictor,
    texts: Sequence[str],
    targets: Sequence[Any] | None,
    attack: TextAttack,
    seed: int = 0,
    *,
    first: int = 0,
    batch: int = 256,
) -> TextAttackResult:
    """`regard.attack` on texts; targets None are the model's own predictions."""
    _check(predictor, texts, targets)
    with eval_mode(predictor.model), seeded_model(predictor.device, seed):
        resolved = predictor.attack_targets(texts, targets)
        victim = TextVictim(predictor, batch)
        attacked = attack.run(victim, texts, resolved, seed, first)
        clean = victim.scores([EditedText(text) for text in texts], resolved)
        verdict = victim.scores([each.text for each in attacked], resolved)
        is_reread = [
            attack.chooses_tokens and _is_reread(predictor, text, each.text)
            for text, each in zip(texts, attacked, strict=True)
        ]
    warnings = []
    if bool(clean.is_wrong.all()):
        warnings.append("every text is wrong before the attack, so none was attacked; give other texts or targets")
    if len(victim.texts_without_gradient) >= _MANY * len(texts):
        count = plural(len(victim.texts_without_gradient), "text")
        warnings.append(
            f"the gradient of {count} of {len(texts)} is zero, so it cannot lead an attack; the result may overrate "
            "the model; use HotFlip(k=None), which evaluates every flip, or CharacterEdits(), which uses no gradient"
        )
    return TextAttackResult(
        [each.text for each in attacked],
        clean.is_wrong,
        verdict.is_wrong,
        verdict.loss,
        torch.tensor([each.distance for each in attacked]),
        torch.tensor([each.queries + 1 for each in attacked]),
        torch.tensor(is_reread),
        tuple(warnings),
    )


def _is_reread(predictor: TokenPredictor, clean: str, edited: EditedText) -> bool:
    """Whether the tokens of an edited text are others than those of the clean one with one new token per edit, and per
    word that was inserted at the beginning.
    """
    before, after = (predictor.token_places(text) for text in (clean, edited.text))
    inserted = sum(len(edited.text[edit.start : edit.end].split()) for edit in edited.edits if not edit.before)
    changed = sum(a.token != b.token for a, b in zip(before, after[inserted:], strict=False))
    return len(after) != len(before) + inserted or changed != sum(bool(edit.before) for edit in edited.edits)


def _check(predictor: TokenPredictor, texts: Sequence[str], targets: Sequence[Any] | None) -> None:
    if isinstance(texts, str) or not all(isinstance(text, str) for text in texts) or not len(texts):
        raise TypeError(f"inputs must be a list of texts, one at least, got {texts!r:.60}; write [text]")
    if targets is not None and len(targets) != len(texts):
        raise ValueError(
            f"targets must be one per text, got {len(targets)} for {len(texts)} texts; leave them out, and the "
            "predictions of the model are taken"
        )
    for n, text in enumerate(texts, 1):
        if not text.strip() or not predictor.token_places(text):
            raise ValueError(f"inputs must be texts with a token at least, and text {n} is {text!r:.60}; leave it out")
        if not predictor.can_read(text):
            raise ValueError(f"inputs must be texts that the model reads whole, and text {n} is too long; shorten it")
