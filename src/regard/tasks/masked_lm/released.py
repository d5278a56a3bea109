"""Released masked language models: a folder with a BERT in transformers' layout as a predictor."""

import numpy as np
import torch
from numpy.typing import NDArray

from regard.common.eval_mode import eval_mode
from regard.data.text.masking import choose_tokens
from regard.data.text.running_text import read_documents
from regard.data.text.special_tokens import SPECIAL
from regard.data.text.subwords import PretrainedSubwords
from regard.inference.evaluation import Done, Evaluation, Progress, timed
from regard.metrics.classification import accuracy, accuracy_interval
from regard.metrics.intervals import nats_interval
from regard.models.bert import BERTMaskedLM
from regard.models.pretrained.loading import PretrainedModel
from regard.models.pretrained.tokenizer_files import load_tokenizer
from regard.tasks.masked_lm.masked_texts import ReleasedMaskedTexts
from regard.tasks.masked_lm.predictor import MaskedLMPredictor
from regard.tasks.masked_lm.scoring import masked_log_p
from regard.tasks.shared.text_options import EvaluateTextFiles

# the share of the tokens that an evaluation masks, and its seed
_SHARE, _SEED = 0.15, 15


def released_masked_lm(loaded: PretrainedModel) -> MaskedLMPredictor:
    """The predictor guesses tokens of text alone; the probabilities are among all tokens, as the model has them."""
    assert isinstance(loaded.model, BERTMaskedLM)
    texts = ReleasedMaskedTexts(PretrainedSubwords(load_tokenizer(loaded.config)))
    return MaskedLMPredictor(loaded.model, texts, longest=loaded.model.encoder.positions.longest)


@torch.no_grad()
def evaluate_masked_lm(predictor: MaskedLMPredictor, options: EvaluateTextFiles, progress: Progress) -> Evaluation:
    """The accuracy and −log p of masked tokens: 15 % of every row of the text, as long as the model reads."""
    texts = predictor.texts
    rows = _rows(predictor, read_documents(options.test), " ".join(map(str, options.test)))
    candidates = np.asarray(texts.candidates)
    rng = np.random.default_rng(_SEED)
    targets, guesses, nll = [], [], []

    def guess(done: Done) -> None:
        for n, row in enumerate(rows, 1):
            is_text = np.isin(row, candidates)
            chosen = choose_tokens(np.where(is_text, SPECIAL, 0)[None], None, _SHARE, rng)
            log_p = masked_log_p(predictor.model, row[None], chosen, texts.mask)
            targets.append(row[chosen[0]])
            guesses.append(candidates[log_p[:, candidates].argmax(-1)])
            nll.append(-log_p[np.arange(len(log_p)), targets[-1]])
            done(n)

    with eval_mode(predictor.model):
        _, seconds = timed(guess, len(rows), progress)
    right, predicted, nats = np.concatenate(targets), np.concatenate(guesses), np.concatenate(nll)
    common = int(np.bincount(np.concatenate(rows)[np.isin(np.concatenate(rows), candidates)]).argmax())
    baseline = accuracy(np.full_like(right, common), right)
    notes = [
        f"{100 * _SHARE:g} % of the tokens are masked, in rows of {predictor.longest} tokens",
        f"the most frequent token of this text, {texts.pieces([common])[0]!r}, is right in {baseline:.2f} %",
    ]
    pieces = zip(texts.pieces(right.tolist()), texts.pieces(predicted.tolist()), strict=True)
    return Evaluation(
        {"accuracy": accuracy(predicted, right), "nll": float(nats.mean())},
        len(right),
        "masked tokens",
        " ".join(map(str, options.test)),
        seconds,
        [f"{token}\t{guess}" for token, guess in pieces],
        notes=notes,
        facts={"mask_share": _SHARE, "most_frequent": baseline},
        intervals={"accuracy": accuracy_interval(predicted, right), "nll": nats_interval(nats)},
    )


def _rows(predictor: MaskedLMPredictor, documents: list[str], names: str) -> list[NDArray[np.int64]]:  # "t" each
    """The tokens of all lines, one after the other, in rows between begin and end."""
    texts = predictor.texts
    assert isinstance(texts, ReleasedMaskedTexts)
    frame = texts.tokenizer.frame
    lines = [line for document in documents for line in document.splitlines() if line.strip()]
    ids = [token for part in texts.tokenizer.subwords(lines) for token in part.ids]
    if not np.isin(ids, texts.candidates).any():
        raise ValueError(f"{names} has no token that the vocabulary knows; give other text")
    size = predictor.longest - frame.size()
    return [np.array([*frame.begin, *ids[n : n + size], *frame.end], np.int64) for n in range(0, len(ids), size)]
