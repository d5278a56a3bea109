"""Draws the networks of the guide "From a recurrent network to attention" as SVG: boxes and arrows."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

_STYLE = """
  .state { fill: #e8eaf6; stroke: #3949ab; stroke-width: 1.5 }
  .token { fill: #fff8e1; stroke: #b28704; stroke-width: 1.5 }
  .read { fill: #ffedd5; stroke: #c2410c; stroke-width: 2 }
  .way { fill: none; stroke: #333; stroke-width: 1.6; marker-end: url(#tip) }
  .weight { fill: none; stroke: #c2410c; marker-end: url(#hot) }
  text { font: 17px Helvetica, Arial, sans-serif }
  .label { text-anchor: middle }
  .note { fill: #555; font-size: 16px }"""
_TIP = (
    '<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L10 5L0 10z" fill="{colour}"/></marker>'
)
_SIZE = 54, 34  # width and height of a box


@dataclass
class Drawing:
    """Shapes of an SVG, by the centres of their boxes."""

    width: int
    height: int
    label: str
    shapes: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, text: str, kind: str = "state") -> None:
        width, height = _SIZE
        at = f'x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width}" height="{height}" rx="6"'
        self.shapes.append(f'<rect class="{kind}" {at}/>')
        self.shapes.append(f'<text class="label" x="{x:g}" y="{y + 6:g}">{escape(text)}</text>')

    def arrow(self, start: tuple[float, float], end: tuple[float, float], weight: float | None = None) -> None:
        """From the edge of a box to the edge of another, both above one another or side by side; `weight` is its
        thickness as a weight of attention."""
        (x, y), (u, v) = start, end
        width, height = _SIZE
        if abs(v - y) > 1:
            y, v = y + height / 2 * (1 if v > y else -1), v - height / 2 * (1 if v > y else -1)
        else:
            x, u = x + width / 2 * (1 if u > x else -1), u - width / 2 * (1 if u > x else -1)
        kind = "way" if weight is None else "weight"
        thickness = "" if weight is None else f' stroke-width="{0.6 + 6 * weight:g}"'
        self.shapes.append(f'<path class="{kind}"{thickness} d="M{x:g} {y:g}L{u:g} {v:g}"/>')

    def loop(self, x: float, y: float, text: str, side: int = 1) -> None:
        """An arrow from a box to itself, on its right side, or on its left with side −1."""
        edge, top = x + side * _SIZE[0] / 2, y - 10
        far = edge + side * 40
        path = f"M{edge:g} {top:g}C{far:g} {top - 18:g} {far:g} {top + 38:g} {edge:g} {top + 20:g}"
        self.shapes.append(f'<path class="way" d="{path}"/>')
        self.note(edge + 38 if side > 0 else edge - 54, y + 5, text)

    def note(self, x: float, y: float, text: str) -> None:
        self.shapes.append(f'<text class="note" x="{x:g}" y="{y:g}">{escape(text)}</text>')

    def svg(self) -> str:
        tips = _TIP.format(name="tip", colour="#333") + _TIP.format(name="hot", colour="#c2410c")
        size = f'width="{self.width}" height="{self.height}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(self.label)}">',
            f"<defs>{tips}<style>{_STYLE}",
            "</style></defs>",
            f'<rect {size} fill="#fff"/>',
            *self.shapes,
            "</svg>",
        ]
        return "".join(f"{line}\n" for line in lines)


def _chain(drawing: Drawing, xs: Sequence[float], y: float, names: Sequence[str]) -> None:
    """States in a row, each with an arrow to the next."""
    for x, name in zip(xs, names, strict=True):
        drawing.box(x, y, name)
    for before, after in itertools.pairwise(xs):
        drawing.arrow((before, y), (after, y))


def _column(drawing: Drawing, x: float, below: str, above: str) -> None:
    """An input below a state and an output above it; an empty name leaves it out."""
    if below:
        drawing.box(x, 190, below, "token")
        drawing.arrow((x, 190), (x, 110))
    if above:
        drawing.box(x, 30, above, "token")
        drawing.arrow((x, 110), (x, 30))


def feed_forward() -> Drawing:
    drawing = Drawing(420, 225, "A feed-forward network: x to h by U, h to y by V")
    drawing.box(90, 110, "h")
    _column(drawing, 90, "x", "y")
    drawing.note(104, 155, "U")
    drawing.note(104, 74, "V")
    drawing.note(160, 116, "h = f(U x),  y = g(V h)")
    return drawing


def recurrent() -> Drawing:
    drawing = Drawing(480, 225, "A recurrent network: the state h is an input of its own next value, by W")
    drawing.box(90, 110, "h")
    _column(drawing, 90, "xₜ", "yₜ")
    drawing.loop(90, 110, "W")
    drawing.note(104, 155, "U")
    drawing.note(104, 74, "V")
    drawing.note(190, 116, "hₜ = f(U xₜ + W hₜ₋₁),  yₜ = g(V hₜ)")
    return drawing


def unrolled() -> Drawing:
    drawing = Drawing(560, 225, "The recurrent network unrolled over four inputs; the fifth output is padding")
    xs = [60 + 100 * n for n in range(5)]
    _chain(drawing, xs[:4], 110, ["h₁", "h₂", "h₃", "h₄"])
    drawing.box(xs[4], 110, "0")
    for number, x in zip("₁₂₃₄₅", xs, strict=True):
        _column(drawing, x, f"x{number}" if x < xs[4] else "", f"y{number}")
    return drawing


def encoder_decoder() -> Drawing:
    drawing = Drawing(
        860, 225, "An encoder reads A B C; its last state c is the first state of a decoder that writes X Y"
    )
    xs = [60 + 100 * n for n in range(4)]
    _chain(drawing, xs, 110, ["h₁", "h₂", "h₃", "h₄"])
    for x, token in zip(xs, ("A", "B", "C", "end"), strict=True):
        _column(drawing, x, token, "")
    states = [560 + 100 * n for n in range(3)]
    drawing.box(460, 110, "c", "read")
    drawing.arrow((xs[-1], 110), (460, 110))
    drawing.arrow((460, 110), (states[0], 110))
    _chain(drawing, states, 110, ["s₁", "s₂", "s₃"])
    for x, below, above in zip(states, ("begin", "X", "Y"), ("X", "Y", "end"), strict=True):
        _column(drawing, x, below, above)
    drawing.note(40, 40, "encoder: its outputs are not used")
    return drawing


def folded() -> Drawing:
    drawing = Drawing(
        500,
        225,
        "The same encoder and decoder as they are built: one layer each, which is an input of its own next value",
    )
    drawing.box(110, 110, "hₜ")
    _column(drawing, 110, "xₜ", "")
    drawing.loop(110, 110, "W", side=-1)
    drawing.box(250, 110, "c", "read")
    drawing.arrow((110, 110), (250, 110))
    drawing.box(390, 110, "sₜ")
    drawing.arrow((250, 110), (390, 110))
    _column(drawing, 390, "yₜ₋₁", "yₜ")
    drawing.loop(390, 110, "W′")
    drawing.note(156, 98, "last")
    drawing.note(296, 98, "first")
    return drawing


def attention() -> Drawing:
    drawing = Drawing(
        860, 320, "With attention, the context c of the second step is a weighted sum of all encoder states"
    )
    xs = [60 + 100 * n for n in range(4)]
    states = [560 + 100 * n for n in range(3)]
    _chain(drawing, xs, 205, ["h₁", "h₂", "h₃", "h₄"])
    _chain(drawing, states, 205, ["s₁", "s₂", "s₃"])
    for x, token in zip(xs, ("A", "B", "C", "end"), strict=True):
        drawing.box(x, 285, token, "token")
        drawing.arrow((x, 285), (x, 205))
    drawing.box(400, 90, "c₂", "read")
    for x, weight in zip(xs, (0.1, 0.7, 0.15, 0.05), strict=True):
        drawing.arrow((x, 205), (400, 90), weight)
    drawing.arrow((400, 90), (states[1], 205))
    for x, below, above in zip(states, ("begin", "X", "Y"), ("X", "Y", "end"), strict=True):
        drawing.box(x, 285, below, "token")
        drawing.arrow((x, 285), (x, 205))
        drawing.box(x, 125, above, "token")
        drawing.arrow((x, 205), (x, 125))
    drawing.note(40, 45, "c₂ = Σⱼ α₂ⱼ hⱼ,  α₂ = softmax(score(s₁, hⱼ));  thickness: α₂ⱼ")
    return drawing


NETWORKS: dict[str, Callable[[], Drawing]] = {
    "networks-feed-forward": feed_forward,
    "networks-recurrent": recurrent,
    "networks-unrolled": unrolled,
    "networks-encoder-decoder": encoder_decoder,
    "networks-folded": folded,
    "networks-attention": attention,
}


def draw(name: str, folder: Path) -> None:
    (folder / f"{name}.svg").write_text(NETWORKS[name]().svg(), encoding="utf-8")
