"""The evaluation of a language model on documents: each token scored once, with a stated window and stride."""

import math
from collections.abc import Sequence
from typing import Any

from regard.data.embedded import recall
from regard.data.text.running_text import token_stream
from regard.inference.evaluation import Evaluation, Progress, timed
from regard.tasks.language_model.options import EvaluateLanguageModel
from regard.tasks.language_model.predictor import LanguageModelPredictor
from regard.tasks.language_model.scoring import answer_nll, loss_by_context, score_tokens, summarize
from regard.viz.plots.curve import curve
from regard.viz.plots.figure_file import check_figure_path

# the sizes of a sample: characters of the held-out text, and tokens that continue them
PROMPT, SAMPLE = 40, 60


def check_options(predictor: LanguageModelPredictor, options: EvaluateLanguageModel, segment: int) -> None:
    """Raises, before any text is read, if the options do not suit the model."""
    if options.picture is not None:
        check_figure_path(options.picture)
    _window(predictor, options, segment)


def evaluate_text(
    predictor: LanguageModelPredictor,
    documents: Sequence[str],
    split: str,
    options: EvaluateLanguageModel,
    segment: int,
    memory: int | None,
    progress: Progress,
    *,
    has_answers: bool = False,
) -> Evaluation:
    """The scores of all tokens of the documents; `segment` is the window that is taken where none is given.

    `has_answers`: the last character of every line is an answer, and these are also scored alone.
    """
    (window, stride), has_memory = _window(predictor, options, segment), predictor.longest is None
    stream = token_stream(predictor.tokenizer, documents)
    count, characters = len(stream) - 1, sum(map(len, documents))
    sizes: dict[str, Any] = {"window": window, "stride": stride, "has_memory": has_memory, "memory": options.memory}
    begin = predictor.tokenizer.encode_prompt("")[0]
    scores, seconds = timed(
        lambda done: score_tokens(predictor.model, stream, **sizes, begin=begin, done=done), count, progress
    )
    by_context = loss_by_context(scores)
    facts: dict[str, Any] = {
        "window": window,
        "stride": stride,
        "memory": memory if has_memory else 0,
        "characters": characters,
        "loss_by_context": [None if value != value else value for value in by_context],
    }
    method = f"segments of {window} with a memory" if has_memory else f"window {window}, stride {stride}"
    notes = [f"{method}; each token is scored once; {predictor.tokenizer.kind} in {characters:,} characters"]
    if unknown := int((stream == predictor.tokenizer.special.unk).sum()):
        notes.append(f"{unknown:,} of the tokens are not in the vocabulary, and scored as the unknown token")
    if has_answers:
        facts["answer_nll"] = answer = answer_nll(scores, stream, predictor.tokenizer.encode_text("\n")[0])
        notes.append(f"the answers alone: {answer:.3f} nats each, {math.log(len(recall.CLASSES)):.3f} by chance")
    if options.picture is not None:
        points = [(float(n), value) for n, value in enumerate(by_context, 1) if value == value]
        curve({"loss": points}, options.picture, "tokens before, in the window", "nats per token")
        notes.append(f"the loss against the context is drawn in {options.picture}")
    lines = [f"{value:.6f}" for value in scores.nll]
    samples = [predictor.sample_line(documents[0][:PROMPT], SAMPLE)]
    return Evaluation(summarize(scores, characters), count, "tokens", split, seconds, lines, samples, notes, facts)


def _window(predictor: LanguageModelPredictor, options: EvaluateLanguageModel, segment: int) -> tuple[int, int]:
    """The number of tokens that are read at once, and of those of them that are scored."""
    has_memory = predictor.longest is None
    window = segment if options.window is None else options.window
    if predictor.longest is not None and window > predictor.longest:
        raise ValueError(
            f"--window {window} exceeds the context of {predictor.longest} tokens that this model was trained with; "
            f"try --window {predictor.longest}"
        )
    if options.memory is not None and not has_memory:
        raise ValueError(f"--memory {options.memory} is for models with a memory, and this one has none")
    if has_memory and options.stride not in (None, window):
        raise ValueError(
            f"--stride {options.stride} is for models without a memory, which read a token again as context; "
            "leave it out"
        )
    stride = options.stride or (window if has_memory else max(window // 2, 1))
    if stride > window:
        raise ValueError(f"--stride {stride} exceeds the window of {window} tokens; try --stride {window}")
    return window, stride
