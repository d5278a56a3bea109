"""The baselines of every evaluation: a bag of words, the last answer that the story names, the most frequent answer.

p(answer) = softmax(W [question; story] + b), of the counts of words in the question and in the story.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.questions.babi import Question, words_of
from regard.tasks.answer.data import StoryEncoder
from regard.tasks.shared.classification import fit_logistic, load_baseline

# questions of a network that its bag of words is fitted to
_MOST = 8000


def fit_baselines(encoders: Sequence[StoryEncoder], questions: Sequence[Sequence[Question]]) -> nn.Module:
    """A bag of words per network, the same for the same questions."""
    model = _build(encoders)
    for layer, encoder, network_questions in zip(model, encoders, questions, strict=True):
        chosen = [
            network_questions[n] for n in range(0, len(network_questions), max(1, -(-len(network_questions) // _MOST)))
        ]
        labels = np.array([encoder.numbers[question.answer] for question in chosen], np.int64)
        weights, bias = fit_logistic(_counts(encoder, chosen), labels, len(encoder.answers))
        layer.load_state_dict({"weight": weights.mT.contiguous(), "bias": bias})
    return model


def read_baselines(folder: Path, encoders: Sequence[StoryEncoder]) -> nn.ModuleList:
    return load_baseline(_build(encoders), folder)


@torch.no_grad()
def bag_of_words_answers(layer: nn.Module, encoder: StoryEncoder, questions: Sequence[Question]) -> list[str]:
    logits = _counts(encoder, questions) @ layer.weight.mT + layer.bias  # type: ignore[operator]
    return [encoder.answers[n] for n in logits.argmax(-1).tolist()]


def last_named(questions: Sequence[Question], answers: Sequence[str], frequent: str) -> list[str]:
    """The answer that each story names last; the most frequent answer if it names none."""
    by_word = {answer.lower(): answer for answer in answers}
    named = []
    for question in questions:
        words = (word for sentence in reversed(question.sentences) for word in reversed(words_of(sentence)))
        named.append(next((by_word[word] for word in words if word in by_word), frequent))
    return named


def _counts(encoder: StoryEncoder, questions: Sequence[Question]) -> Tensor:  # -> "n f", sparse
    rows, columns = [], []
    for n, question in enumerate(questions):
        question_ids = encoder.encode(question.question)
        story_ids = [encoder.vocabulary + word for sentence in question.sentences for word in encoder.encode(sentence)]
        columns += question_ids + story_ids
        rows += [n] * (len(question_ids) + len(story_ids))
    index = torch.tensor([rows, columns])
    size = (len(questions), 2 * encoder.vocabulary)
    return torch.sparse_coo_tensor(index, torch.ones(len(rows)), size, check_invariants=True).coalesce()


def _build(encoders: Sequence[StoryEncoder]) -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(2 * each.vocabulary, len(each.answers)) for each in encoders)
