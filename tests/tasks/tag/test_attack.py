"""Scores of tagged sentences under attack: by all sequences of tags, one by one."""

from functools import partial
from itertools import pairwise, product

import torch

from regard.common.word_splitting import split_words
from regard.inference.edited_text import EditedText
from regard.kernels.crf import Potentials
from regard.tasks.tag.attack import kept_tags, tag_scores


def test_tags_stay_with_the_words_that_no_edit_touched() -> None:
    text = EditedText("a trip, to B").replace(2, 6, "journey")
    assert kept_tags(text, [4, 5, 6, 7, 8], split_words) == [4, None, 6, 7, 8]
    before = EditedText("a b").replace(0, 0, "x y ")
    assert kept_tags(before, [4, 5], split_words) == [None, None, 4, 5]
    # a word that runs into the next one is not the one it was
    assert kept_tags(EditedText("a.b c").replace(1, 2, "x"), [4, 5, 6, 7], split_words) == [None, 7]
    assert kept_tags(EditedText("a b").replace(0, 1, "x'"), [4, 5], split_words) == [None, None, 5]


def test_a_text_whose_other_words_are_split_otherwise_has_no_tags() -> None:
    # the mark joins the number behind it to the one before
    assert kept_tags(EditedText("1 , 2").replace(1, 4, "."), [4, 5, 6], split_words) == [None]
    text = EditedText("1 x2").replace(1, 3, ".")
    assert kept_tags(text, [4, 5], partial(split_words, how="spaces")) == [None]


def test_scores_are_those_of_all_sequences() -> None:
    torch.manual_seed(0)
    emissions = 3 * torch.randn(3, 4, 3, dtype=torch.float64)
    potentials = Potentials(*(torch.randn(size, dtype=torch.float64) for size in ((3, 3), (3,), (3,))))
    kept: list[list[int | None] | None] = [[2, None, 0, 1], [1, 0, None], None]
    loss, is_wrong = tag_scores(emissions, potentials, kept)
    for n, tags in enumerate(kept[:2]):
        assert tags is not None
        scores = {
            path: sum(emissions[n, i, tag] for i, tag in enumerate(path))
            + sum(potentials.transitions[a, b] for a, b in pairwise(path))
            + potentials.start[path[0]]
            + potentials.end[path[-1]]
            for path in product(range(3), repeat=len(tags))
        }
        right = [p for p in scores if all(gold in (None, tag) for gold, tag in zip(tags, p, strict=True))]
        log_z, log_right = (torch.stack([scores[p] for p in some]).logsumexp(0) for some in (list(scores), right))
        torch.testing.assert_close(loss[n], log_z - log_right)
        assert bool(is_wrong[n]) == (max(scores, key=scores.__getitem__) not in right)
    assert loss[2] == -torch.inf
    assert not is_wrong[2]
