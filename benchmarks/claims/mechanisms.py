"""Mechanisms of 2020 to 2025 in one small language model, at the same number of steps."""

from collections.abc import Callable, Iterator

import torch

from benchmarks.claims.claim import Claim, Criterion, Measured, Number, Panel, Settings
from benchmarks.claims.manual_text import Characters, last_loss
from regard import Attention, Learnable, MultiHead
from regard.layers import OutputGate, RMSQKNorm
from regard.models import GPT2
from regard.normalizers import WithNullSlot

_HEADS = 4
BASELINE = "softmax"


def _with_norm(heads: MultiHead) -> None:
    heads.qk_norm = RMSQKNorm(heads.head_dim)


def _with_gate(heads: MultiHead) -> None:
    heads.gate = OutputGate(heads.query.in_features, _HEADS)


def _with_sink(heads: MultiHead) -> None:
    heads.attention = Attention(normalize=WithNullSlot(score=Learnable(0.0, heads=_HEADS)))


def _unchanged(heads: MultiHead) -> None:
    pass


# the names of GPT2's attention and positions, and the change of its heads
VARIANTS: dict[str, tuple[str | None, str, Callable[[MultiHead], None]]] = {
    BASELINE: (None, "rotary", _unchanged),
    "QK-norm": (None, "rotary", _with_norm),
    "output gate": (None, "rotary", _with_gate),
    "sink": (None, "rotary", _with_sink),
    "softpick": ("softpick", "rotary", _unchanged),
    "ReLU": ("relu", "rotary", _unchanged),
    "selective": ("selective", "rotary", _unchanged),
    "stick-breaking": ("stick-breaking", "none", _unchanged),
    "forgetting": (None, "forgetting", _unchanged),
    "CoPE": (None, "cope", _unchanged),
    "FIRE": (None, "fire", _unchanged),
}


def model_of(name: str, vocabulary: int, width: int, segment: int) -> GPT2:
    """A language model of two layers with this attention and these positions."""
    attention, positions, change = VARIANTS[name]
    model = GPT2(
        vocabulary,
        width=width,
        layers=2,
        heads=_HEADS,
        longest=segment,
        dropout=0.0,
        attention=attention,
        positions=positions,
    )
    for layer in model.stack.layers:
        change(layer.attention)  # type: ignore[arg-type]
    return model


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


def _helps(name: str) -> Callable[[Measured], bool]:
    """Whether the worst seed has a lower loss than the best of the baseline."""
    return lambda r: r.at("loss", "loss", name).high < r.at("loss", "loss", BASELINE).low


NEW_MECHANISMS = Claim(
    "new-mechanisms",
    "Which of the new mechanisms helps at this size?",
    "Papers of 2020 to 2025 report better models with norms of queries and keys, gates, sinks, other normalizers than "
    "softmax and other positions than rotary ones, at larger sizes and in longer training.",
    "Henry et al. 2020; Qiu et al. 2025; Miller 2023; Zuhri et al. 2025; Wortsman et al. 2023; Leviathan et al. 2025; "
    "Tan et al. 2025; Lin et al. 2025; Golovneva et al. 2024; Li et al. 2024",
    "GPT-2 of 2 layers of width {width} with 4 heads on the characters of Shakespeare's plays ({text} of "
    "github.com/karpathy/char-rnn, data/tinyshakespeare, packed by gzip; its last tenth is held out), {steps} steps of "
    "{batch} segments of {segment} at a rate of {lr}, tuned for none of them. Stick-breaking, forgetting, CoPE and "
    "FIRE are in the place of rotary positions, all others beside them. The loss is that of the second half of {test} "
    "held-out windows, its difference from softmax that of the same seed. So few steps favour what begins near the "
    "query. Criteria were fixed before the results.",
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
        Criterion(f"{name} has a lower loss than {BASELINE} with rotary positions", _helps(name))
        for name in VARIANTS
        if name != BASELINE
    ],
)
CLAIMS = (NEW_MECHANISMS,)
