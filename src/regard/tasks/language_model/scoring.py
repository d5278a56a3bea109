"""−log p of every token of a text, each scored once, with a stated window and stride or with a memory.

perplexity = exp(Σ −log p / tokens)        bits per character = Σ −log p / (characters · ln 2)
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.common.eval_mode import eval_mode
from regard.data.text.special_tokens import EOS
from regard.models.language_model import LanguageModel, positions_in_documents
from regard.tasks.language_model.data import document_numbers

# tokens that are scored in one batch
_BATCH_TOKENS = 4096


class TokenScores(NamedTuple):
    """−log p of all tokens but the first, and how many tokens of its window and document stand before each."""

    nll: NDArray[np.float64]  # "n"
    context: NDArray[np.int64]  # "n"


def windows(length: int, window: int, stride: int) -> list[tuple[int, int, int]]:
    """(start, first, end): each reads the tokens from start to before end and scores those after first up to end.

    The first window scores all its tokens, the others their last `stride`; the last one ends with the text.
    """
    spans, first = [], 0
    while first < length - 1:
        end = min(window if not first else first + stride, length - 1)
        spans.append((max(end - window, 0), first, end))
        first = end
    return spans


@torch.no_grad()
def score_tokens(
    model: LanguageModel,
    stream: NDArray[np.int32],
    *,
    window: int,
    stride: int,
    has_memory: bool,
    memory: int | None = None,
    begin: int = EOS,
    done: Callable[[int], object] = lambda _: None,
) -> TokenScores:  # "n+1" -> "n" each
    """`memory` tokens instead of the constructor's, for a model that has one; then windows do not overlap.

    `begin` is the token that begins a document: no token is predicted from the document before its own. `done` is
    called with the number of tokens that are scored.
    """
    device = next(model.parameters()).device
    tokens = torch.from_numpy(stream).long().to(device)
    documents = torch.from_numpy(document_numbers(stream, 1, begin)).to(device)  # "1 + n"
    parts, end = [], 0
    with eval_mode(model):
        if has_memory:
            scored = _segments(model, tokens, documents, window, memory)
        else:
            scored = _windows(model, tokens, documents, windows(len(stream), window, stride))
        for nll, context in scored:
            parts.append((nll.cpu().double().numpy(), context.cpu().numpy()))
            end += len(nll)
            done(end)
    losses, contexts = (np.concatenate(each) for each in zip(*parts, strict=True))
    in_document = positions_in_documents(documents[None, 1:-1])[0].cpu().numpy() + 1
    return TokenScores(losses, np.minimum(contexts, in_document))


# −log p of successive tokens, and how many tokens of its segment or window stand before each
_Scored = Iterator[tuple[Tensor, Tensor]]


def _segments(model: LanguageModel, tokens: Tensor, documents: Tensor, size: int, keep: int | None) -> _Scored:
    memory = None if keep is None else model.init_memory(keep)
    for _, start, end in windows(len(tokens), size, size):
        output = model.hidden_states(tokens[None, start:end], memory, documents=documents[None, : end + 1])
        memory = output.memory
        _, nll = model.token_loss(output.states[0], tokens[start + 1 : end + 1])
        yield nll, torch.arange(1, end - start + 1)


def _windows(model: LanguageModel, tokens: Tensor, documents: Tensor, spans: list[tuple[int, int, int]]) -> _Scored:
    size = max(_BATCH_TOKENS // (spans[0][2] - spans[0][0]), 1)
    for n in range(0, len(spans), size):
        batch = spans[n : n + size]
        ids = torch.stack([tokens[start : end + 1] for start, _, end in batch])  # "b t+1"
        numbers = torch.stack([documents[start : end + 1] for start, _, end in batch])
        states = model.hidden_states(ids[:, :-1], documents=numbers).states
        is_new = torch.zeros_like(ids[:, 1:], dtype=torch.bool)
        for row, (_, first, end) in enumerate(batch):
            is_new[row, ids.shape[1] - 1 - (end - first) :] = True
        _, nll = model.token_loss(states[is_new], ids[:, 1:][is_new])
        yield nll, is_new.nonzero()[:, 1] + 1


def summarize(scores: TokenScores, characters: int) -> dict[str, float]:
    """The mean −log p of a token, its exponential, and bits per character of the text."""
    total = float(scores.nll.sum())
    mean = total / len(scores.nll)
    # an untrained model may be worse than any float
    perplexity = math.exp(mean) if mean < 700 else math.inf
    return {"nll": mean, "perplexity": perplexity, "bits per character": total / (characters * math.log(2))}


def loss_by_context(scores: TokenScores) -> list[float]:
    """The mean −log p of tokens with 1, 2, … tokens of the window before them; NaN if no token was scored there."""
    counts = np.bincount(scores.context)[1:]
    sums = np.bincount(scores.context, scores.nll)[1:]
    return [float(total / count) if count else math.nan for total, count in zip(sums, counts, strict=True)]


def answer_nll(scores: TokenScores, stream: NDArray[np.int32], line_end: int) -> float:  # "n", "n+1"
    """The mean −log p of the last token of every line."""
    return float(scores.nll[:-1][stream[2:] == line_end].mean())
