"""Triggers: the same few words before every text, which make a model get many of them wrong."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.attacks.text.base import AttackedText, TextAttack
from regard.attacks.text.hotflip import flip_gains
from regard.attacks.text.victim import TextVictim
from regard.common import checks
from regard.inference.edited_text import EditedText


@dataclass(frozen=True)
class Triggers(TextAttack):
    """Words t_1 … t_n before all texts, chosen by Σ_texts e_v · ∂loss/∂e_{t_i}  (Wallace et al. 2019).

    One trigger is found per group of texts, such as those of a class, by the first `batch` of them. In each of at most
    `rounds` the words are replaced one after the other: the `k` best by the mean gradient are evaluated on the batch,
    and the one of the highest mean loss stays. Texts that the trigger does not break stay clean.
    """

    words: int = 3
    k: int = 64
    rounds: int = 3
    batch: int = 32

    def __post_init__(self) -> None:
        checks.positive_ints("Triggers", k=self.k, words=self.words, rounds=self.rounds, batch=self.batch)

    def run(
        self, victim: TextVictim, texts: Sequence[str], targets: Sequence[Any], seed: int, first: int
    ) -> list[AttackedText]:
        vectors = victim.vectors("Triggers")
        was_wrong = victim.scores([EditedText(text) for text in texts], targets).is_wrong.tolist()
        groups: dict[Hashable, list[int]] = {}
        for n, target in enumerate(targets):
            groups.setdefault(victim.predictor.target_group(target), []).append(n)
        results = [AttackedText(EditedText(text), 0, 1) for text in texts]
        for rows in groups.values():
            first_words = [next(iter(victim.vocabulary.numbers))] * self.words
            # a text that leaves no room for words before it stays as it is
            has_room = {n: victim.predictor.can_read(_before(texts[n], first_words).text) for n in rows}
            attacked = [n for n in rows if not was_wrong[n] and has_room[n]]
            if not attacked:
                continue
            few = attacked[: self.batch]
            before = victim.queries
            trigger = self._search(victim, vectors, [texts[n] for n in few], [targets[n] for n in few], first_words)
            spent = (victim.queries - before) // len(few)
            triggered = [_before(texts[n], trigger) for n in attacked]
            is_wrong = victim.scores(triggered, [targets[n] for n in attacked]).is_wrong.tolist()
            for n, text, wrong in zip(attacked, triggered, is_wrong, strict=True):
                queries = 2 + (spent if n in few else 0)
                results[n] = AttackedText(text, self.words, queries) if wrong else results[n]._replace(queries=queries)
        return results

    def _search(
        self,
        victim: TextVictim,
        vectors: Tensor,
        texts: Sequence[str],
        targets: Sequence[Any],
        trigger: list[str],
    ) -> list[str]:
        """The words after all rounds, from those of `trigger` on."""
        vocabulary = victim.vocabulary
        usable = torch.tensor(
            [text is not None and not c for text, c in zip(vocabulary.texts, vocabulary.continues, strict=True)],
            device=vectors.device,
        )
        numbers = vocabulary.numbers
        best = self._mean_loss(victim, texts, targets, [trigger])[0]
        for _ in range(self.rounds):
            improved = False
            for word in range(self.words):
                gradient = self._gradient(victim, vectors, texts, targets, trigger, word)
                gains = flip_gains(vectors, gradient[None], [numbers[trigger[word]]])[0]
                count = min(self.k, int(usable.sum()))
                tokens = gains.masked_fill(~usable, -torch.inf).topk(count).indices.tolist()
                candidates = [[*trigger[:word], str(vocabulary.texts[v]), *trigger[word + 1 :]] for v in tokens]
                losses = self._mean_loss(victim, texts, targets, candidates)
                highest = max(range(count), key=losses.__getitem__)
                if losses[highest] > best:
                    trigger, best, improved = candidates[highest], losses[highest], True
            if not improved:
                break
        return trigger

    def _gradient(
        self,
        victim: TextVictim,
        vectors: Tensor,
        texts: Sequence[str],
        targets: Sequence[Any],
        trigger: Sequence[str],
        word: int,
    ) -> Tensor:  # -> "d"
        """The mean gradient with respect to the vector of a word of the trigger, or of the first token of the word."""
        start = sum(len(each) + 1 for each in trigger[:word])
        total = torch.zeros_like(vectors[0])
        for text, target in zip(texts, targets, strict=True):
            places, gradient = victim.gradient(_before(text, trigger), target)
            total += gradient[next(n for n, place in enumerate(places) if place.end > start)]
        return total / len(texts)

    def _mean_loss(
        self, victim: TextVictim, texts: Sequence[str], targets: Sequence[Any], triggers: Sequence[Sequence[str]]
    ) -> list[float]:
        rows = [_before(text, trigger) for trigger in triggers for text in texts]
        loss = victim.scores(rows, [*targets] * len(triggers)).loss
        return loss.view(len(triggers), len(texts)).mean(1).tolist()


def _before(text: str, trigger: Sequence[str]) -> EditedText:
    return EditedText(text).replace(0, 0, " ".join(trigger) + " ")
