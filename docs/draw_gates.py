"""Draws every picture of docs/gates: python docs/draw_gates.py [names] [--out docs/images].

A ConvNet with the gate at the end of its first block is trained here, in seconds, on the digits of scikit-learn; the
pictures show the weights of that gate on digits outside of its training set. By default a page shows the first gate
that it names; SPECIAL has the pictures that show something else.
"""

import functools
from collections.abc import Callable

import drawing
import tables
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.models.convnet import ConvNet
from regard.models.mlp import MLP
from regard.models.row_reader import RowReader
from regard.viz import Panel

CHANNELS = 24
SHOWN = (1596, 1598)  # an 8 and a 0 of the held-out digits


@functools.cache
def digits() -> tuple[Tensor, Tensor]:
    """Images "n 1 8 8" and their labels."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16
    return images, torch.tensor(found.target)


class Net(nn.Module):
    """A ConvNet of two stages; the gate is at the end of the block of the first stage."""

    def __init__(self, gate: nn.Module) -> None:
        super().__init__()
        self.net = ConvNet(1, 10, width=CHANNELS, depths=(1, 1), dropout=0.0)
        self.net.blocks[0].gate = gate

    @property
    def gate(self) -> nn.Module:
        return self.net.blocks[0].gate

    def before(self, x: Tensor) -> Tensor:
        """The input of the gate."""
        block = self.net.blocks[0]
        made = torch.relu(block.first_norm(block.first(self.net.stem(x))))
        return block.second_norm(block.second(made))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


# with so few channels the usual reduction leaves one hidden unit, which relu may zero for good
MADE: dict[str, Callable[[], nn.Module]] = {
    "se": lambda: regard.gates.SqueezeExcite(CHANNELS, 4),
    "cbam": lambda: regard.gates.CBAM(CHANNELS, 4),
    "bam": lambda: regard.gates.BAM(CHANNELS, 4),
    "fca": lambda: regard.gates.FCA(CHANNELS, 4),
}


@torch.enable_grad()
def fitted(net: nn.Module, lr: float, name: str) -> None:
    """Trains for 200 steps with a cosine schedule and prints the accuracy on unseen digits."""
    images, labels = digits()
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
    for _ in range(200):
        batch = torch.randint(1500, (64,))
        optimizer.zero_grad()
        F.cross_entropy(net(images[batch]), labels[batch]).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    net.eval()
    with torch.no_grad():
        right = (net(images[1500:]).argmax(-1) == labels[1500:]).float().mean()
    print(f"{name}: {right:.1%} of 297 unseen digits", flush=True)


@functools.cache
def trained(name: str) -> Net:
    torch.manual_seed(0)
    net = Net(MADE[name]() if name in MADE else regard.gate(name, CHANNELS))
    fitted(net, 5e-3, name)
    return net


@torch.no_grad()
def weights_of(name: str, which: int) -> Tensor:
    """The weights of one digit, "c 8 8"."""
    net = trained(name)
    features = net.before(digits()[0][which : which + 1])
    assert isinstance(net.gate, regard.gates.Gate)
    return net.gate.weights(features)[0].expand(CHANNELS, 8, 8)


def stretched(weights: Tensor, title: str) -> Panel:
    """Weights in colours from the least to the greatest, which the title gives."""
    return Panel(weights, title, stretch=True)


def image(which: int) -> Panel:
    images, labels = digits()
    return Panel(images[which, 0], f"the digit {int(labels[which])}", stretch=True)


def over_positions(name: str) -> list[Panel]:
    panels = []
    for which in SHOWN:
        panels += [image(which), stretched(weights_of(name, which).mean(0), f"{name}, mean over channels")]
    return panels


@torch.no_grad()
def over_channels(name: str) -> list[Panel]:
    net, (images, labels) = trained(name), digits()
    assert isinstance(net.gate, regard.gates.Gate)
    weights = net.gate.weights(net.before(images[1500:])).flatten(2).mean(-1)
    rows = torch.stack([weights[labels[1500:] == digit].mean(0) for digit in range(10)])
    title = f"{name}: weights of {CHANNELS} channels, by digit"
    return [Panel(rows, title, [str(digit) for digit in range(10)], stretch=True)]


def relation() -> list[Panel]:
    """The weights of several gates for one digit, channels by positions, beside the input of one of them."""
    with torch.no_grad():
        given = trained("se").before(digits()[0][SHOWN[0] : SHOWN[0] + 1])[0]
    panels = [image(SHOWN[0]), stretched(given.flatten(1), "features: channels × positions")]
    for name in ("se", "spatial", "cbam", "coordinate", "bam", "simam"):
        panels.append(stretched(weights_of(name, SHOWN[0]).flatten(1), f"{name}: weights"))
    return panels


@torch.no_grad()
def shapes() -> list[Panel]:
    """Weights of channels, of positions, and of both, for one digit."""
    channels = weights_of("se", SHOWN[0])[:, 0, 0].view(4, 6)
    both = weights_of("simam", SHOWN[0])
    return [
        image(SHOWN[0]),
        Panel(channels, f"se: {CHANNELS} channels, six per row", [f"{6 * row}" for row in range(4)],
              [f"+{column}" for column in range(6)], stretch=True),
        stretched(weights_of("spatial", SHOWN[0])[0], "spatial: 64 positions"),
        *(stretched(both[channel], f"simam: channel {channel}") for channel in range(5)),
    ]  # fmt: skip


def cbam() -> list[Panel]:
    panels = over_channels("cbam")
    net = trained("cbam")
    assert isinstance(net.gate, regard.gates.CBAM)
    with torch.no_grad():
        features = net.before(digits()[0][SHOWN[0] : SHOWN[0] + 1])
        where = net.gate.spatial.weights(net.gate.channel(features))[0, 0]
    return [
        *panels,
        image(SHOWN[0]),
        stretched(where, "M_s: positions"),
        stretched(weights_of("cbam", SHOWN[0]).mean(0), "both"),
    ]


def saliency() -> list[Panel]:
    panels = [image(SHOWN[0])]
    for name in ("max", "magnitude"):
        panels.append(stretched(weights_of(name, SHOWN[0]).mean(0), f"{name}, mean over channels"))
    return panels


@torch.no_grad()
def read_weights(name: str, which: int) -> Tensor:
    """What a block that adds what it reads returns for a digit: "1 q k", or "c 1 m" of its branches."""
    net = trained(name)
    return net.gate.attend(net.before(digits()[0][which : which + 1]), need=regard.Need(weights=True)).weights[0]


def of_queries(name: str) -> list[Panel]:
    """The weights of three positions over all positions."""
    weights, panels = read_weights(name, SHOWN[0])[0], [image(SHOWN[0])]
    for row, column in ((1, 4), (4, 4), (6, 3)):
        panels.append(stretched(weights[row * 8 + column].view(8, 8), f"query at row {row}, column {column}"))
    return panels


@torch.no_grad()
def dual() -> list[Panel]:
    net = trained("dual")
    with regard.record(net.gate) as recording:
        net.gate(net.before(digits()[0][SHOWN[0] : SHOWN[0] + 1]))
    return [*of_queries("dual")[:2], stretched(recording[1].weights.dense()[0, 0], "channels × channels")]


def global_context() -> list[Panel]:
    panels = []
    for which in SHOWN:
        weights = read_weights("global-context", which)[0]
        panels += [image(which), stretched(weights.view(8, 8), "weights of the context")]
    return panels


def double() -> list[Panel]:
    weights = read_weights("double", SHOWN[0])[0]
    used = weights.std(0).topk(3).indices.tolist()
    return [image(SHOWN[0])] + [stretched(weights[:, m].view(8, 8), f"feature {m}") for m in used]


@torch.no_grad()
def selective_kernel() -> list[Panel]:
    net, (images, labels) = trained("selective-kernel"), digits()
    shares = net.gate.attend(net.before(images[1500:]), need=regard.Need(weights=True)).weights[:, :, 0, 0]
    rows = torch.stack([shares[labels[1500:] == digit].mean(0) for digit in range(10)])
    title = f"share of the kernel without dilation: {CHANNELS} channels, by digit"
    return [Panel(rows, title, [str(digit) for digit in range(10)], stretch=True)]


@torch.no_grad()
def external() -> list[Panel]:
    net = trained("external")
    features = net.before(digits()[0][SHOWN[0] : SHOWN[0] + 1])
    got = net.gate.attend(features, need=regard.Need(weights=True))
    used = got.weights[0].std(0).topk(3).indices.tolist()
    panels = [image(SHOWN[0])]
    return panels + [stretched(got.weights[0, :, slot].view(8, 8), f"slot {slot}") for slot in used]


def csra() -> list[Panel]:
    torch.manual_seed(0)
    body = nn.Sequential(trained("se").net.stem, trained("se").net.blocks[0]).requires_grad_(False)
    net = nn.Sequential(body, regard.gates.CSRA(CHANNELS, 10, strength=1.0, temperatures=[4.0]))
    images, labels = digits()
    optimizer = torch.optim.AdamW(net[-1].parameters(), lr=2e-2)
    for _ in range(200):
        batch = torch.randint(1500, (64,))
        optimizer.zero_grad()
        F.cross_entropy(4 * net(images[batch]), labels[batch]).backward()
        optimizer.step()
    with torch.no_grad():
        got = net[-1].attend(body(images[SHOWN[0] : SHOWN[0] + 1]), need=regard.Need(weights=True))
    digit = int(labels[SHOWN[0]])
    panels = [image(SHOWN[0])]
    for k in (digit, 1, 4):
        panels.append(stretched(got.weights[0, 0, k].view(8, 8), f"evidence for {k}"))
    return panels


class Rows(nn.Module):
    """A RowReader of digits, standardised to unit variance."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = RowReader(1, (8, 8), 10, heads=8, width=8, dropout=0.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.reader((x - 0.3) / 0.38)


def gated_cell() -> list[Panel]:
    """A digit read row by row: the weights of the heads with the sharpest rows."""
    torch.manual_seed(0)
    rows = Rows()
    fitted(rows, 2e-2, "gated cell")
    with torch.no_grad(), regard.record(rows) as recording:
        rows(digits()[0][SHOWN[0] : SHOWN[0] + 1])
    weights = recording[0].weights.dense()[0]  # (head, row, column)
    chosen = weights.amax(-1).mean(-1).topk(3).indices.sort().values.tolist()
    return [image(SHOWN[0])] + [stretched(weights[h], f"head {h}, row by row") for h in chosen]


def attention_module() -> list[Panel]:
    """A digit, the weights of its pixels, and the pool of each head: a row per row of the picture."""
    torch.manual_seed(0)
    net = MLP(1, (8, 8), 10, gate="attention-module", dropout=0.0)
    fitted(net, 1e-2, "attention-module, perceptron")
    with torch.no_grad(), regard.record(net) as recording:
        net(digits()[0][SHOWN[0] : SHOWN[0] + 1])
    pool, weights = (each.weights.dense()[0] for each in recording)
    panels = [image(SHOWN[0]), stretched(weights.view(8, 8), "y: weights of its pixels")]
    return panels + [stretched(rows, f"head {k}: rows × hidden units") for k, rows in enumerate(pool)]


# palette size of a picture
COLOURS = 48

SPECIAL: dict[str, Callable[[], list[Panel]]] = {
    "gates": relation,
    "gate-shapes": shapes,
    "cbam": cbam,
    "saliency": saliency,
    "external": external,
    "non-local": lambda: of_queries("non-local"),
    "offset": lambda: of_queries("offset"),
    "dual": dual,
    "global-context": global_context,
    "double": double,
    "selective-kernel": selective_kernel,
    "csra": csra,
    "gated-cell": gated_cell,
    "attention-module": attention_module,
}


def over_its_axes(name: str) -> Callable[[], list[Panel]]:
    """The weights of channels by digit if the gate has one per channel, else those of positions."""

    def panels() -> list[Panel]:
        gate = regard.gate(name, CHANNELS)
        assert isinstance(gate, regard.gates.Gate)
        has_positions = gate.weights(torch.zeros(1, CHANNELS, 8, 8)).shape[2:].numel() > 1
        return over_positions(name) if has_positions else over_channels(name)

    return panels


PICTURES = {
    **SPECIAL,
    **{page.stem: over_its_axes(page.names[0]) for page in tables.GATE_PAGES() if page.stem not in SPECIAL},
}


if __name__ == "__main__":
    drawing.main(PICTURES, "Draws the pictures of docs/gates.", colours=COLOURS)
