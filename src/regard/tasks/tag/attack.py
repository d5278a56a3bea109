"""Scores of tagged sentences under attack: only the tags of words that no edit touched count."""

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.common.word_splitting import WordSplitter
from regard.inference.edited_text import EditedText
from regard.inference.token_predictor import TextScores
from regard.kernels import crf


def kept_tags(edited: EditedText, tags: Sequence[int], splitter: WordSplitter) -> list[int | None] | None:
    """The tag of each word of the edited text; None for one that an edit touched, or in place of all if the words
    beside the edits are split otherwise than before.
    """
    before = {span[0]: n for n, span in enumerate(splitter(edited.original)[1])}
    kept: list[int | None] = []
    for start, end in splitter(edited.text)[1]:
        if edited.is_edited(start, end):
            kept.append(None)
            continue
        shift = sum(edit.end - edit.start - len(edit.before) for edit in edited.edits if edit.end <= start)
        if start - shift not in before:
            return None
        kept.append(tags[before[start - shift]])
    return kept


def tag_scores(
    emissions: Tensor, potentials: crf.Potentials, kept: Sequence[Sequence[int | None] | None]
) -> TextScores:  # "b t k"
    """−log p(tags of the untouched words), all tags of the others summed out, and whether the best path has others.

    A row whose words are split otherwise, None, has the lowest loss and is not wrong.
    """
    emissions = emissions.cpu().double()
    potentials = crf.Potentials(*(score.cpu().double() for score in potentials))
    inside = torch.zeros(emissions.shape[:2], dtype=torch.bool)
    gold = torch.full(emissions.shape[:2], -1)
    for n, tags in enumerate(kept):
        for i, tag in enumerate(tags or ()):
            inside[n, i] = True
            gold[n, i] = -1 if tag is None else tag
    is_other = (torch.arange(emissions.shape[-1]) != gold[..., None]) & (gold >= 0)[..., None]
    loss = crf.nll(emissions, None, inside, potentials) - crf.nll(
        emissions.masked_fill(is_other, -torch.inf), None, inside, potentials
    )
    path, _ = crf.viterbi(emissions.detach(), inside, potentials)
    is_wrong = ((path != gold) & (gold >= 0)).any(1)
    is_split = torch.tensor([tags is None for tags in kept])
    return TextScores(loss.masked_fill(is_split, -torch.inf), is_wrong & ~is_split)
