"""Mechanisms of 2020 to 2025 in one small language model, at the same number of steps."""

from collections.abc import Callable, Iterator

import torch

from benchmarks.claims.claim import Claim, Criterion, Measured, Number, Panel, Settings
from benchmarks.claims.manual_text import Characters, last_loss
from regard.models import GPT2

BASELINE, RECENT = "softmax", "ALiBi"

# mechanisms beside rotary positions, as `--attention` names them
BESIDE: dict[str, str] = {
    "QK-norm": "qk-norm",
    "output gate": "output-gate",
    "sink": "sink",
    "softpick": "softpick",
    "ReLU": "relu",
    "selective": "selective",
}
# attention and positions of mechanisms in the place of rotary positions
INSTEAD: dict[str, tuple[str | None, str]] = {
    "stick-breaking": ("stick-breaking", "none"),
    "forgetting": (None, "forgetting"),
    "CoPE": (None, "cope"),
    "FIRE": (None, "fire"),
}
VARIANTS: dict[str, tuple[str | None, str]] = {
    BASELINE: (None, "rotary"),
    RECENT: (None, "alibi"),
    **{name: (attention, "rotary") for name, attention in BESIDE.items()},
    **INSTEAD,
}


def model_of(name: str, vocabulary: int, width: int, segment: int) -> GPT2:
    """A language model of two layers with this attention and these positions."""
    attention, positions = VARIANTS[name]
    return GPT2(
        vocabulary,
        width=width,
        layers=2,
        heads=4,
        longest=segment,
        dropout=0.0,
        attention=attention,
        positions=positions,
    )


def ranked(seed: int, settings: Settings) -> Iterator[Number]:
    """The loss of every variant after the same steps."""
    text = Characters.of_file(settings["text"]) if settings["text"] else Characters.read()
    segment = settings["segment"]
    losses = {}
    for name in VARIANTS:
        torch.manual_seed(seed)
        model = model_of(name, text.vocabulary, settings["width"], segment)
        text.fit(model, segment, settings, seed)
        losses[name] = last_loss(model, text.test_windows(segment, settings["test"]), segment // 2)
        yield Number("loss", "loss", name, losses[name])
        if name != BASELINE:
            yield Number("difference", "difference", name, losses[name] - losses[BASELINE])


def _is_below(name: str, baseline: str) -> Callable[[Measured], bool]:
    """Whether the worst seed has a lower loss than the best of the baseline."""
    return lambda r: r.at("loss", "loss", name).high < r.at("loss", "loss", baseline).low


NEW_MECHANISMS = Claim(
    "new-mechanisms",
    "Which of the new mechanisms helps at this size?",
    "Papers of 2020 to 2025 report better models with norms of queries and keys, gates, sinks, other normalizers than "
    "softmax and other positions than rotary ones, at larger sizes and in longer training.",
    "Henry et al. 2020; Qiu et al. 2025; Miller 2023; Zuhri et al. 2025; Wortsman et al. 2023; Leviathan et al. 2025; "
    "Tan et al. 2025; Lin et al. 2025; Golovneva et al. 2024; Li et al. 2024",
    "GPT-2 of 2 layers of width {width} with 4 heads on the characters of Shakespeare's plays ({text} of "
    "github.com/karpathy/char-rnn, data/tinyshakespeare, packed by gzip and put into the folder of the command; its "
    "last tenth is held out), {steps} steps of {batch} segments of {segment} at a rate of {lr}, tuned for none of "
    "them. Stick-breaking, forgetting, CoPE and FIRE are in the place of rotary positions, all others beside them. So "
    "few steps favour what begins near the query, so those four are also compared with the slopes of ALiBi; these "
    "criteria were added after the first results, the others were fixed before. The loss is that of the second half of "
    "{test} held-out windows, its difference from softmax with rotary positions that of the same seed; three "
    "seeds of so small a model tell differences of some hundredths apart, and no smaller ones.",
    {
        "text": "input.txt.gz",
        "width": 64,
        "segment": 64,
        "steps": 250,
        "batch": 16,
        "lr": 3e-3,
        "test": 200,
    },
    {"text": None, "width": 8, "segment": 8, "steps": 1, "batch": 2, "test": 2},
    ranked,
    {
        "difference": Panel("mechanism", "nats above softmax", digits=3),
        "loss": Panel("mechanism", "nats per character", digits=3),
    },
    [
        *[
            Criterion(f"{name} has a lower loss than softmax with rotary positions", _is_below(name, BASELINE))
            for name in (*BESIDE, *INSTEAD)
        ],
        *[
            Criterion(f"{name} has a lower loss than softmax with ALiBi's slopes", _is_below(name, RECENT))
            for name in INSTEAD
        ],
    ],
)
CLAIMS = (NEW_MECHANISMS,)
