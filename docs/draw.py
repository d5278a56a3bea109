"""Draws every picture of docs/mechanisms: python docs/draw.py [names] [--out docs/images].

Every page has one. By default it is the weights of its mechanisms, trained to find the next letter, beside those of a
dot product; SPECIAL has the pictures that show something else.

Word vectors come from the Python manual in the standard library; models are trained here, on letters, in seconds. The
same torch and matplotlib give the same pictures.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import draw_heads
import draw_surveys
import drawing
import tables
import torch
from draw_letters import backwards, key_value, local, location_sensitive, memory_hop, monotonic, multi_head, neighbour
from draw_positions import (
    biased,
    cope,
    fire,
    forgetting,
    grid_masks,
    kerple,
    masks,
    moba,
    nsa,
    rotary,
    selective,
    sparse_masks,
    stick_breaking,
    t5,
    transformer_xl,
    window,
)
from draw_words import DIM, KEYS, about, bidaf, co_attention, gumbel, hard, pooling, set_distance

import regard
from regard.viz import Panel

# palette size of a picture
COLOURS = 64

SPECIAL: dict[str, Callable[[], list[Panel]]] = {
    "dot": lambda: about({"q·k": {"score": regard.Dot(scale=1.0)}, "q·k / √d": {}}),
    "cosine": lambda: about(
        {"q·k / √d": {}, "cosine · 3": {"score": regard.Cosine(3.0)}, "cosine · 10": {"score": regard.Cosine(10.0)}}
    ),
    "distance": lambda: about(
        {
            "q·k / √d": {},
            "−‖q − k‖² / 2√d": {"score": regard.Distance(scale=0.5 * DIM**-0.5)},
            "−‖q − k‖": {"score": regard.Distance(power=1)},
        }
    ),
    "location": lambda: [backwards("location", lambda: regard.Attention(regard.scores.Location(DIM, 12)))],
    "uniform": lambda: about({"q·k / √d": {}, "uniform": {"score": regard.scores.Uniform()}}),
    "location-sensitive": location_sensitive,
    "local": local,
    "soft-cap": lambda: about(
        {"4 q·k / √d": {"score": regard.Dot(4 * DIM**-0.5)}}
        | {
            f"capped at {cap:g}": {"score": regard.scores.SoftCap(cap, regard.Dot(4 * DIM**-0.5))}
            for cap in (16.0, 8.0)
        }
    ),
    "linear": lambda: about(
        {
            "softmax": {},
            "elu": {"score": regard.scores.Kernel("elu"), "normalize": regard.normalizers.Sum()},
            "taylor": {"score": regard.scores.Kernel("taylor"), "normalize": regard.normalizers.Sum()},
        }
    ),
    "unnormalized": lambda: [
        replace(panel, stretch=True)
        for panel in about({"softmax": {}, "q·k / √d itself": {"normalize": regard.normalizers.Identity()}})
    ],
    "set-distance": set_distance,
    "temperature": lambda: about({f"T = {t:g}": {"normalize": regard.Softmax(t)} for t in (3.0, 1.0, 0.3)}),
    "sparsemax": lambda: about({"softmax": {}, "sparsemax": {"normalize": regard.Sparsemax()}}),
    "entmax": lambda: about(
        {"α = 1 (softmax)": {}}
        | {f"α = {a:g}": {"normalize": regard.Entmax(a)} for a in (1.25, 1.5)}
        | {"α = 2 (sparsemax)": {"normalize": regard.Entmax(2.0)}}
    ),
    "sigmoid": lambda: about(
        {
            "softmax": {},
            "σ(s)": {"normalize": regard.Sigmoid()},
            "σ(s − log k)": {"normalize": regard.Sigmoid(-torch.tensor(len(KEYS)).log().item())},
        }
    ),
    "topk": lambda: about({"softmax": {}} | {f"TopK({k})": {"normalize": regard.TopK(k)} for k in (3, 1)}),
    "null": lambda: about(
        {"softmax": {"score": regard.Cosine(4.0)}}
        | {
            f"null score {n:g}": {"score": regard.Cosine(4.0), "normalize": regard.normalizers.WithNullSlot(score=n)}
            for n in (1.0, 3.0)
        }
    ),
    "relu": lambda: [
        replace(panel, stretch=True)
        for panel in about(
            {
                title: {"score": regard.Cosine(4.0), "normalize": normalize}
                for title, normalize in (
                    ("softmax", regard.Softmax()),
                    ("max(s, 0) / n", regard.normalizers.ReLU()),
                    ("max(s, 0)² / n", regard.normalizers.ReLU(2.0)),
                )
            }
        )
    ],
    "softpick": lambda: about(
        {
            title: {"score": regard.Cosine(4.0), "normalize": normalize}
            for title, normalize in (("softmax", regard.Softmax()), ("softpick", regard.normalizers.Softpick()))
        }
    ),
    "stick-breaking": stick_breaking,
    "hard": hard,
    "gumbel": gumbel,
    "monotonic": monotonic,
    "key-value": key_value,
    "pooling": pooling,
    "co-attention": co_attention,
    "bidaf": bidaf,
    "memory-hop": memory_hop,
    "multi-head": multi_head,
    "qk-norm": draw_heads.qk_norm,
    "output-gate": draw_heads.output_gate,
    "talking-heads": draw_heads.talking_heads,
    "differential": draw_heads.differential,
    "latent": draw_heads.latent,
    "gat": draw_heads.gat,
    **{name: getattr(draw_surveys, name.replace("-", "_")) for name in draw_surveys.NAMES},
    "rotary": rotary,
    "alibi": lambda: biased(regard.ALiBi(4), 4, [f"head {h}: slope 2^-{2 * h + 2}" for h in range(4)]),
    "kerple": kerple,
    "fire": fire,
    "cope": cope,
    "forgetting": forgetting,
    "selective": selective,
    "t5": t5,
    "shaw": lambda: (
        biased(regard.Shaw(DIM, 4), 1, ["clip 4"], q=6.0) + biased(regard.Shaw(DIM, 12), 1, ["clip 12"], q=6.0)
    ),
    "transformer-xl": transformer_xl,
    "window": window,
    "masks": masks,
    "grid-masks": grid_masks,
    "sparse-masks": sparse_masks,
    "moba": moba,
    "nsa": nsa,
}


def neighbours(names: Sequence[str]) -> Callable[[], list[Panel]]:
    return lambda: [neighbour(name) for name in ("scaled-dot", *names)]


PICTURES = {page.stem: SPECIAL.get(page.stem, neighbours(page.names)) for page in tables.MECHANISM_PAGES()}


if __name__ == "__main__":
    drawing.main(PICTURES, "Draws the pictures of docs/mechanisms.", colours=COLOURS)
