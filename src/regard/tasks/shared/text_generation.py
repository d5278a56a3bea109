"""Parts shared by tasks that write text: training loss, REINFORCE for hard attention, generated texts, vocabularies.

−log p(y | x) = −Σ_t log p(y_t | y_<t, x), by teacher forcing.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.call import NOTHING, Need
from regard.common import atomic_files
from regard.data.text.batching import source_batch
from regard.data.text.special_tokens import EOS, OWN_TOKENS, PAD, SpecialTokens
from regard.data.text.text_tokenizer import TextTokenizer
from regard.data.text.tokenizer import Tokenizer
from regard.decoding.protocol import Decoder, DecodingState, Hypothesis
from regard.decoding.search import Search, run_search
from regard.layers.rnn.decoder_base import DecoderOutput
from regard.losses import reinforce
from regard.losses.vocabulary import vocabulary_loss
from regard.training.run_folder import initial_folder


@dataclass(frozen=True)
class GeneratedText:
    """One hypothesis of a search, as text."""

    text: str
    tokens: tuple[int, ...]
    log_prob: float
    score: float
    finished: bool  # whether it ended within the limit of tokens
    margin: float = field(default=math.inf, compare=False)  # margin of the closest decision
    eos: int = EOS  # the token that ends a sentence

    @staticmethod
    def of(hypothesis: Hypothesis, tokenizer: TextTokenizer) -> "GeneratedText":
        text = tokenizer.decode(hypothesis.tokens)
        tokens, log_prob, score = hypothesis.tokens, hypothesis.log_prob, hypothesis.score
        eos = tokenizer.special.eos
        return GeneratedText(text, tokens, log_prob, score, hypothesis.finished, hypothesis.margin, eos)

    @property
    def with_eos(self) -> list[int]:
        """The tokens with the end of the sentence, if it was generated."""
        return [*self.tokens, self.eos] if self.finished else [*self.tokens]

    def json(self) -> dict[str, object]:
        return {"text": self.text, "score": self.score, "log_prob": self.log_prob, "finished": self.finished}


@dataclass(frozen=True)
class TextHypotheses:
    """The texts that a search has found for one input, the best first."""

    hypotheses: list[GeneratedText]
    numbered: bool = field(default=False, kw_only=True)  # whether all are printed, with their ranks and scores

    @property
    def best(self) -> GeneratedText:
        return self.hypotheses[0]

    def lines(self) -> str:
        """The best text, or a line per text; a line feed in a text would make two lines of it."""
        texts = [hypothesis.text.replace("\n", " ") for hypothesis in self.hypotheses]
        if not self.numbered:
            return texts[0]
        scored = zip(self.hypotheses, texts, strict=True)
        return "\n".join(f"{n}\t{hypothesis.score:.4f}\t{text}" for n, (hypothesis, text) in enumerate(scored, 1))

    def json(self) -> list[dict[str, object]]:
        return [hypothesis.json() for hypothesis in self.hypotheses]


def search_texts(
    model: Decoder,
    state: DecodingState,
    tokenizer: TextTokenizer,
    search: Search,
    limits: Tensor,
    numbers: Sequence[int],
    source_lengths: Tensor | None = None,
) -> list[list[GeneratedText]]:
    """The texts of `run_search`, by the special tokens of their tokenizer."""
    special = tokenizer.special
    marks: dict[str, Any] = {"bos": special.bos, "eos": special.eos, "forbidden": special.forbidden}
    rows = run_search(model, state, search, limits, numbers, source_lengths, **marks)
    return [[GeneratedText.of(hypothesis, tokenizer) for hypothesis in hypotheses] for hypotheses in rows]


@dataclass(frozen=True, eq=False)
class TokenAlignment:
    """weights[i, j]: the attention of target token i to source j. The last target token is the end of the sentence,
    if it was generated."""

    target: list[str]
    weights: Tensor = field(repr=False)  # "t s"
    source: list[str] = field(default_factory=list)  # empty if the sources have no names, as patches of an image


def shift_right(targets: Sequence[Sequence[int]], special: SpecialTokens = OWN_TOKENS) -> Tensor:  # -> "b t"
    """The inputs of a decoder that is forced to write these tokens: BOS and all but the last, padded."""
    longest = max(map(len, targets))
    return torch.tensor([[special.bos, *tokens[:-1], *[special.pad] * (longest - len(tokens))] for tokens in targets])


def between_marks(lines: Sequence[Sequence[int]], special: SpecialTokens = OWN_TOKENS) -> Tensor:  # -> "b t+1"
    """Lines of tokens between BOS and EOS, padded."""
    ids, _ = source_batch(lines, special)
    return torch.cat([torch.full((len(ids), 1), special.bos), ids], 1)


class TokenLoss(NamedTuple):
    """The cross-entropy of the tokens that are no padding."""

    total: Tensor  # scalar: smoothed, summed
    nll: Tensor  # "n", −log p of each token, without gradients
    keep: Tensor  # "b t", which tokens these are
    output: DecoderOutput


def token_loss(output: DecoderOutput, target: Tensor, vocabulary: nn.Linear, smoothing: float) -> TokenLoss:
    """Σ_t −log softmax(W r_t + b)[y_t], with label smoothing, of the states r_t of a teacher-forced decoder.

    `target` is "b t", with PAD behind the shorter ones.
    """
    keep = target != PAD
    total, nll = vocabulary_loss(vocabulary, output.states[keep], target[keep], smoothing=smoothing)
    return TokenLoss(total, nll, keep, output)


def forced_loss(
    model: Any, source: Sequence[Tensor], target: Tensor, smoothing: float, need: Need = NOTHING
) -> TokenLoss:  # "b t+1"
    """The `token_loss` of targets between BOS and EOS, which the decoder of the model is forced to write."""
    output = model.teacher_force(*source, target[:, :-1], need)
    return token_loss(output, target[:, 1:], model.output, smoothing)


@torch.no_grad()
def mean_nll(model: Any, batches: Iterable[tuple[Sequence[Tensor], Tensor]]) -> float:
    """−log p of a token, without smoothing, of sources and their targets between BOS and EOS."""
    total, count = 0.0, 0
    for source, target in batches:
        nll = forced_loss(model, source, target, 0.0).nll
        total, count = total + float(nll.sum()), count + len(nll)
    return total / count


def forced_nll(model: Any, source: Sequence[Tensor], targets: Sequence[Sequence[int]]) -> Tensor:  # -> "b"
    """−log p(y | x) of tokens that the decoder of the model is forced to write, differentiable by row."""
    target = between_marks(targets).to(source[0].device)
    output = model.teacher_force(*source, target[:, :-1])
    return negative_log_likelihood(output, target[:, 1:], model.output)


def forced_weights(model: Any, source: Sequence[Tensor], targets: Sequence[Sequence[int]]) -> Tensor:  # -> "b t s"
    """The attention of every token that the decoder of the model is forced to write."""
    forced = shift_right(targets).to(source[0].device)
    weights: Tensor | None = model.teacher_force(*source, forced, Need(weights=True)).weights
    assert weights is not None
    return weights.cpu()


def negative_log_likelihood(
    output: DecoderOutput, target: Tensor, vocabulary: nn.Linear, padding: int = PAD
) -> Tensor:  # "b t" -> "b"
    """−log p(y | x) of each target, differentiable by row."""
    logits = vocabulary(output.states).transpose(1, 2)  # "b v t"
    return F.cross_entropy(logits, target, ignore_index=padding, reduction="none").sum(1)


def hard_attention_loss(
    loss: TokenLoss, baseline: Tensor | None, entropy_weight: float, *, cumulative: bool = True
) -> Tensor:
    """Σ_t −(R_t − b_t) log p(s_t) − λ H(s_t): teaches a hard attention where to attend  (Xu et al. 2015, 4.1).

    R_t = Σ_{t' ≥ t} log p(y_t'), or log p(y_t) alone if a sample changes no later step (`cumulative` is false). The
    paper rewards every sample of a sentence with the likelihood of all its tokens (eq. 11 and 12); those before the
    sample do not depend on it, so leaving them out keeps the expectation and lowers the variance. b_t is `baseline`,
    the moving average of log p of a token, for each token that is left; None: the mean reward of the other sentences at
    this step, since including one's own would shrink the gradient. A single sentence then learns nothing.
    """
    log_prob, entropy, keep = loss.output.log_prob, loss.output.entropy, loss.keep
    assert log_prob is not None
    assert entropy is not None
    reward = torch.zeros_like(log_prob)
    reward[keep] = -loss.nll.to(reward.dtype)
    if cumulative:
        reward = reward.flip(1).cumsum(1).flip(1)
    if baseline is None:
        others = keep.sum(0).expand_as(keep) - 1
        level = torch.where(others > 0, (reward.sum(0) - reward) / others.clamp_min(1), reward)
    else:
        level = baseline * keep.to(reward.dtype).flip(1).cumsum(1).flip(1)
    mean = reinforce(log_prob[keep], reward[keep], level[keep], entropy=entropy[keep], entropy_weight=entropy_weight)
    return mean * len(loss.nll)


def write_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    """Saves a vocabulary in a run."""
    atomic_files.make_folder(path.parent)
    atomic_files.write_atomically(path, [tokenizer.to_json().encode()])


def read_tokenizer(path: Path) -> Tokenizer:
    """A vocabulary that a run saved."""
    if not path.exists():
        raise FileNotFoundError(f"{path.parent} holds no vocabulary ({path.name}); name the folder of a training run")
    try:
        return Tokenizer.from_json(path.read_text(encoding="utf-8"))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no vocabulary ({error}); restore it, or train in another folder") from error


def initial_tokenizer(folder: Path, name: str, train: Callable[[], Tokenizer]) -> Tokenizer:
    """The vocabulary that a new run begins with: that of the run it starts from, otherwise one of its own data."""
    initial = initial_folder(folder)
    return train() if initial is None else read_tokenizer(initial / name)
