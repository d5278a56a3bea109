"""Scalings of rotary positions: the loss beyond the trained length, and the time of a decoding step.

python -m benchmarks.rotary loss     a Llama on the Python manual, trained on 64 characters, tested on up to 256
python -m benchmarks.rotary steps    CPU time of a step of MultiHead, 2,048 tokens in the cache, against plain rotary
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable, Mapping

import torch

import regard
from benchmarks.claims.manual_text import Characters, last_loss
from regard import MultiHead, Rotary
from regard.models import Llama
from regard.positions import (
    AxialSections,
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRoPEScaling,
    MRoPESections,
    NTKScaling,
    ProportionalScaling,
    RotaryScaling,
    YaRNScaling,
)

TRAINED, SCORED, WINDOWS, SEEDS = 64, 32, 100, 2
LENGTHS = (64, 128, 256)
SETTINGS = {"steps": 400, "batch": 32, "lr": 3e-3}
# scalings of texts that are s times as long as those of the training
SCALINGS: dict[str, Callable[[float], RotaryScaling | None]] = {
    "none": lambda s: None,
    "linear": LinearScaling,
    "NTK-aware": NTKScaling,
    "dynamic NTK": lambda s: DynamicNTKScaling(1.0, TRAINED),
    "YaRN": lambda s: YaRNScaling(s, TRAINED, fast=8.0),
    "YaRN, amplitude 1": lambda s: YaRNScaling(s, TRAINED, fast=8.0, attention_factor=1.0),
    "Llama 3": lambda s: Llama3Scaling(s, 1.0, 4.0, TRAINED),
}

DIM, HEADS, WIDTH, CACHE, STEPS = 512, 8, 64, 2048, 32
_FACTORS = tuple(1.0 + k for k in range(WIDTH // 2))
ROTATIONS: dict[str, Rotary] = {
    "plain": Rotary(WIDTH),
    "half of the head": Rotary(WIDTH, rotary_dim=WIDTH // 2),
    "linear": Rotary(WIDTH, scaling=LinearScaling(4.0)),
    "proportional": Rotary(WIDTH, scaling=ProportionalScaling(0.25)),
    "NTK-aware": Rotary(WIDTH, scaling=NTKScaling(4.0)),
    "dynamic NTK": Rotary(WIDTH, scaling=DynamicNTKScaling(4.0, CACHE // 2)),
    "YaRN": Rotary(WIDTH, scaling=YaRNScaling(4.0, CACHE // 2)),
    "LongRoPE": Rotary(WIDTH, scaling=LongRoPEScaling(4.0, CACHE // 2, _FACTORS, _FACTORS)),
    "Llama 3": Rotary(WIDTH, scaling=Llama3Scaling(8.0, 1.0, 4.0, CACHE // 2)),
    "M-RoPE": Rotary(WIDTH, axes=MRoPESections((8, 12, 12))),
    "axial": Rotary(WIDTH, axes=AxialSections((16, 16), grid=(64, 64))),
}


def losses(text: Characters, seed: int) -> dict[tuple[str, int], float]:
    """Nats per character of the last characters of windows, by scaling and length, of one trained model."""
    torch.manual_seed(seed)
    model = Llama(text.vocabulary, width=128, layers=2, heads=4, feed=256)
    text.fit(model, TRAINED, SETTINGS, seed)
    model.eval()
    found = {}
    for length in LENGTHS:
        windows = text.test_windows(length, WINDOWS)
        for name, scaling in SCALINGS.items():
            for layer in model.stack.layers:
                layer.attention.rotate = Rotary(32, scaling=scaling(length / TRAINED))
            found[name, length] = last_loss(model, windows, SCORED)
    return found


def table_of_losses() -> None:
    text = Characters.read()
    runs = [losses(text, seed) for seed in range(SEEDS)]
    print("| scaling | " + " | ".join(f"{length} characters" for length in LENGTHS) + " |")
    print("|---|" + "---|" * len(LENGTHS))
    for name in SCALINGS:
        cells = []
        for length in LENGTHS:
            values = [run[name, length] for run in runs]
            cells.append(f"{statistics.mean(values):.2f} ({min(values):.2f} to {max(values):.2f})")
        print(f"| {name} | " + " | ".join(cells) + " |")


@torch.no_grad()
def step_seconds(layers: Mapping[str, MultiHead], with_positions: bool) -> dict[str, float]:
    """CPU seconds of a step with each layer."""
    seconds = {}
    x, start = torch.randn(1, CACHE, DIM), torch.randn(STEPS, 1, 1, DIM)
    for name, layer in layers.items():
        # models decode with positions
        places = torch.arange(CACHE + STEPS + 1) if with_positions else None
        past, begun = layer.project_kv(x, positions=None if places is None else places[:CACHE]), 0.0
        for n, token in enumerate(start, CACHE):
            positions = None if places is None else (places[n : n + 1], places[: n + 1])
            _, past = layer.step(token, past, positions=positions)
            if n == CACHE:  # the first step takes storage
                begun = time.process_time()
        seconds[name] = (time.process_time() - begun) / (STEPS - 1)
    return seconds


def table_of_steps(repeat: int) -> None:
    layers = {name: MultiHead(DIM, HEADS, rotate=rotate).eval() for name, rotate in ROTATIONS.items()}
    print("| rotation | without positions | with positions |\n|---|---|---|")
    columns = []
    for with_positions in (False, True):
        runs = [step_seconds(layers, with_positions) for _ in range(repeat)]
        columns.append({name: statistics.median(run[name] / run["plain"] for run in runs) for name in layers})
    for name in layers:
        print(f"| {name} | " + " | ".join(f"{column[name]:.2f}x" for column in columns) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=["loss", "steps"])
    parser.add_argument("--repeat", type=int, default=25, help="repetitions of each step")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.table == "loss":
        table_of_losses()
    else:
        table_of_steps(options.repeat)
    print(f"\nregard {regard.__version__}, torch {torch.__version__}, {platform.machine()}, one thread")


if __name__ == "__main__":
    main()
