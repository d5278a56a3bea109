"""The backend of calls on a GPU: a snapshot of `explain`, in routing.txt."""

import difflib
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.gpu.__main__ import ROOT
from tests.gpu.tables import WRITE

import regard
from regard import Need

SNAPSHOT = Path(__file__).with_name("routing.txt")
HEADING = """\
# The backend of a call on a GPU, and the words of `explain` about it: queries, keys and values are (2, 8, n, 64).
# Updated with `python -m tests.gpu --write-tables`.
"""

MASKS: dict[str, Callable[[int], Any]] = {
    "no mask": lambda n: None,
    "Causal": lambda n: regard.Causal(),
    "Lengths": lambda n: regard.Lengths(torch.full((2,), n - 1, device="cuda")),
    "Causal & Lengths": lambda n: regard.Causal() & regard.Lengths(torch.full((2,), n - 1, device="cuda")),
    "Window": lambda n: regard.Window(256, 0),
    "Window & Lengths": lambda n: regard.Window(256, 0) & regard.Lengths(torch.full((2,), n - 1, device="cuda")),
    "Documents": lambda n: regard.Documents(torch.zeros(2, n, dtype=torch.long, device="cuda")),
    "Causal & Documents": lambda n: regard.Causal() & MASKS["Documents"](n),
    "Prefix": lambda n: regard.Prefix(torch.full((2,), 5, device="cuda")),
    "boolean tensor": lambda n: torch.ones(2, 1, n, n, dtype=torch.bool, device="cuda"),
}
BIASES: dict[str, Callable[[], Any]] = {
    "ALiBi": lambda: regard.ALiBi(8),
    "T5Buckets": lambda: regard.T5Buckets(8),
    "Shaw": lambda: regard.Shaw(64),
    "RelativeXL": lambda: regard.RelativeXL(512, 8, 64),
}
TERMS: dict[str, dict[str, Any]] = {
    "SoftCap": {"score": regard.scores.SoftCap(30.0)},
    "null slot": {"normalize": regard.normalizers.WithNullSlot(regard.Softmax())},
    "dropout": {"dropout": 0.1},
    "sparsemax": {"normalize": regard.Sparsemax()},
    "additive": {"score": regard.Additive(64, 64, 16)},
    "feature map": {"score": regard.scores.Kernel(), "normalize": regard.normalizers.Sum()},
}
MODES = {
    "float32 training": (torch.float32, True),
    "bfloat16 training": (torch.bfloat16, True),
    "float16 inference": (torch.float16, False),
}


def _calls() -> dict[str, Callable[[], str]]:
    """{name: a function that explains the call}."""

    def explained(n: int, mode: str, mask: str, terms: dict[str, Any], need: Need) -> str:
        dtype, training = MODES[mode]
        q, k, v = (torch.empty(2, 8, n, 64, dtype=dtype, device="cuda", requires_grad=training) for _ in range(3))
        layer = regard.Attention(**terms).to("cuda", dtype)
        with torch.set_grad_enabled(training):
            return layer.explain(q, k, v, mask=MASKS[mask](n), need=need)

    calls: dict[str, Callable[[], str]] = {}

    def add(name: str, n: int, mode: str, mask: str, terms: Callable[[], dict[str, Any]], need: Need) -> None:
        calls[f"{n:4} {mode}: {name}"] = lambda: explained(n, mode, mask, terms(), need)

    for mode, mask in itertools.product(MODES, MASKS):
        add(mask, 4096, mode, mask, dict, Need())
    for mask in ("Causal", "Lengths"):
        add(mask, 64, "float32 training", mask, dict, Need())
    for mode, (name, bias) in itertools.product(MODES, BIASES.items()):
        add(f"Causal, {name}", 4096, mode, "Causal", lambda bias=bias: {"bias": bias()}, Need())
    for name, terms in TERMS.items():
        add(f"Causal, {name}", 4096, "bfloat16 training", "Causal", lambda terms=terms: terms, Need())
    for name, need in {"lse": Need(lse=True), "weights": Need(weights=True)}.items():
        for mode, mask in itertools.product(("float16 inference", "float32 training"), ("no mask", "Causal")):
            add(f"{mask}, {name}", 4096, mode, mask, dict, need)
    return calls


def test_calls_reach_the_backends_of_the_snapshot(request: pytest.FixtureRequest) -> None:
    lines = [f"{name} -> {_winner(call())}\n" for name, call in _calls().items()]
    if request.config.getoption("--write-tables"):
        SNAPSHOT.write_text(HEADING + "".join(lines))
    kept = [line for line in SNAPSHOT.read_text().splitlines(keepends=True) if not line.startswith("#")]
    difference = "".join(difflib.unified_diff(kept, lines, "routing.txt", "now", n=0))
    assert not difference, f"{difference}\nIf this is wanted, {WRITE}"


def test_softmax_of_dot_products_is_no_loop_of_python() -> None:
    loops = [
        name for name, call in _calls().items() if "sparsemax" not in name and _winner(call()).startswith("blocked")
    ]
    assert not loops, f"a loop of Python instead of kernels: {loops}"


def test_the_page_lists_the_backends_in_their_order() -> None:
    page = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
    _, table = page.split("On a GPU it asks the backends in this order:\n")
    cells = [line.split("|")[1] for line in table.split("\n\n")[0].splitlines() if line.startswith("| `")]
    q = torch.empty(1, 1, 2, 2, device="cuda")
    names = [line.split()[0] for line in regard.explain(q, q).splitlines()[2:]]
    assert re.findall(r"`(\w+)`", "".join(cells)) == names


def _winner(explanation: str) -> str:
    """ "fused: torch's …" of an explanation."""
    (line,) = (line for line in explanation.splitlines() if " runs: " in line)
    name, _, description = line.partition(" runs: ")
    return f"{name.strip()}: {description}"
