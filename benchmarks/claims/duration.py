"""The time of a training step and of a decoding step against the length of the text."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor, nn

from benchmarks.claims.claim import Claim, Criterion, Measured, Number, Panel, Settings
from benchmarks.claims.models import gpt2, recurrent
from regard import Causal, MultiHead
from regard.models.language_model import LanguageModel

_VOCABULARY = 64
_WARMUP = 3


def cpu_times(calls: Mapping[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """The median of the CPU milliseconds of each call, in turn so that a busy machine slows all alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for n in range(_WARMUP + repeat):
        for name, call in calls.items():
            start = time.process_time()
            call()
            if n >= _WARMUP:
                times[name].append(1e3 * (time.process_time() - start))
    return {name: statistics.median(values) for name, values in times.items()}


def _training(layer: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], None]:  # "b t d"
    return lambda: layer(x).square().mean().backward()


def _decoding(model: LanguageModel, tokens: Tensor) -> Callable[[], Tensor]:  # "b t"
    state = model.eval().init_state(tokens)
    return lambda: model.step(tokens[:, :1], state).logits


def durations(seed: int, settings: Settings) -> Iterator[Number]:
    """Milliseconds of a layer, forward and backward, and of a decoding step, by length."""
    width = settings["width"]
    torch.manual_seed(seed)
    lstm, heads = nn.LSTM(width, width, batch_first=True), MultiHead(width, 4)
    convolution = nn.Conv1d(width, width, 3, padding=1)
    layers: dict[str, Callable[[Tensor], Tensor]] = {
        "LSTM": lambda x: lstm(x)[0],
        "self-attention": lambda x: heads(x, mask=Causal()),
        "convolution": lambda x: convolution(x.mT).mT,
    }
    models = {
        "LSTM": recurrent(_VOCABULARY, width, "lstm", "none"),
        "self-attention": gpt2(_VOCABULARY, width, layers=1),
    }
    for length in settings["lengths"]:
        x = torch.randn(1, length, width, requires_grad=True)
        calls = {name: _training(layer, x) for name, layer in layers.items()}
        for name, milliseconds in cpu_times(calls, settings["repeat"]).items():
            yield Number("training", name, length, milliseconds)
    for length in settings["behind"]:
        tokens = torch.randint(_VOCABULARY, (1, length))
        with torch.no_grad():
            steps = {name: _decoding(model, tokens) for name, model in models.items()}
            for name, milliseconds in cpu_times(steps, 4 * settings["repeat"]).items():
                yield Number("decoding", name, length, milliseconds)


def _growth(result: Measured, panel: str, series: str) -> tuple[float, float]:
    """The lowest and the highest ratio of the times of the longest and the shortest text, over the seeds."""
    curve = result.curve(panel, series)
    ratios = [last / first for first, last in zip(curve[0].values, curve[-1].values, strict=True)]
    return min(ratios), max(ratios)


TIME = Claim(
    "time",
    "Attention trains faster and decodes slower as texts grow",
    "Self-attention computes all positions at once, so it trains faster than a recurrent network while texts are "
    "shorter than its width is large; its cost grows with the square of the length, and a decoding step, constant for "
    "a recurrent network, grows with the length.",
    "Vaswani et al. 2017, table 1; Shazeer 2019; Katharopoulos et al. 2020",
    "One text, width {width}: a layer of LSTM, of causal self-attention with 4 heads, and a convolution of 3 tokens, "
    "each forward and backward; then a decoding step of language models with one LSTM or one Transformer layer behind "
    "a text of that length, with its keys kept. CPU time on one thread, median of {repeat} calls in turn (decoding: 4 "
    "times as many); a seed is one repetition of all of it.",
    {"width": 128, "lengths": [16, 64, 256, 1024], "behind": [16, 256, 1024, 4096], "repeat": 15},
    {"width": 8, "lengths": [4, 8], "behind": [4, 8], "repeat": 1},
    durations,
    {
        "training": Panel(
            "length of the text", "ms of CPU per layer, forward and backward", log_x=True, log_y=True, digits=2
        ),
        "decoding": Panel("length of the text", "ms of CPU per decoding step", log_x=True, log_y=True, digits=3),
    },
    [
        Criterion(
            "at 64 tokens, half of the width, self-attention takes less time than the LSTM",
            lambda r: r.curve("training", "self-attention")[1].high < r.curve("training", "LSTM")[1].low,
        ),
        Criterion(
            "per token, self-attention takes longer at the longest text than at 64 tokens, by a tenth or more, and the "
            "LSTM does not",
            lambda r: _per_token(r, "self-attention") > 1.1 >= _per_token(r, "LSTM"),
        ),
        Criterion(
            "a decoding step of self-attention takes longer behind the longest text than behind the shortest, by half "
            "or more",
            lambda r: _growth(r, "decoding", "self-attention")[0] >= 1.5,
        ),
        Criterion(
            "a decoding step of the LSTM takes the same time, within a third, behind any text",
            lambda r: _growth(r, "decoding", "LSTM")[1] <= 4 / 3 and _growth(r, "decoding", "LSTM")[0] >= 3 / 4,
        ),
    ],
)


def _per_token(result: Measured, series: str) -> float:
    """The time per token of the longest text, relative to that of the second shortest, by means."""
    curve = result.curve("training", series)
    return (curve[-1].mean / float(curve[-1].x)) / (curve[1].mean / float(curve[1].x))


CLAIMS = (TIME,)
