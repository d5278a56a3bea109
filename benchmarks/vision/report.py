"""docs/vision.md: all results of benchmarks/results/vision on one page."""

from pathlib import Path

from benchmarks import measured
from benchmarks.vision.result import HEADINGS, RESULTS, ROOT, Result

PAGE = ROOT / "docs" / "vision.md"
IMAGES = ROOT / "docs" / "images"
# in the order of the page
BENCHMARKS = {
    "digits": "scikit-learn's digits by a ConvNet, without a gate and with each gate",
    "channels": "squeeze and excite, part by part, on digits",
    "channels_mnist": "squeeze and excite, part by part, on MNIST",
    "mnist": "MNIST by a ConvNet with SimAM, and by the gated attention cell, row by row",
    "mlp": "MNIST by a perceptron, with and without the attention module",
    "clips": "moving digits and patterns in noise: every model of clips, beside a single frame",
    "glimpse": "RAM: MNIST and cluttered scenes through a few glimpses",
    "caption": "Show, Attend and Tell: captions of digit scenes, and the attention of their words",
    "gan": "SelfAttentionGAN: samples of requested digits",
    "attacks": "attacks on digits beside torchattacks, and adversarial training",
    "mnist_attacks": "MNIST trained against PGD, under the worst attack",
}

INTRO = """\
This page lists the results of the image models on a CPU, trained and evaluated by `python -m benchmarks.vision.NAME`.
CPU minutes are the CPU time of a training with its validations. A missed target is reported as "falls short".
"""


def listed() -> str:
    return "\n".join(f"{name:14} {what}" for name, what in BENCHMARKS.items())


def page(results: Path = RESULTS, images: Path = IMAGES) -> str:
    """The whole page."""
    found = [Result.read(results / f"{name}.json") for name in BENCHMARKS if (results / f"{name}.json").exists()]
    if unknown := {path.stem for path in results.glob("*.json")} - BENCHMARKS.keys():
        raise ValueError(
            f"{results} contains {min(unknown)}.json, which belongs to no benchmark; known are: {', '.join(BENCHMARKS)}"
        )
    parts = ["# Vision results\n", INTRO]
    parts.append(measured.conditions((result.name, result.about) for result in found))
    if missing := [name for name in BENCHMARKS if name not in {result.name for result in found}]:
        parts.append(f"Not run: {', '.join(missing)}.\n")
    bounds = [row for result in found for row in result.rows if row.bound is not None]
    if bounds:
        parts.append(f"## Targets\n\n{measured.table(HEADINGS[:5], [row.cells()[:5] for row in bounds])}")
    parts += [section(result, images) for result in found]
    commands = [command for result in found for command in result.commands]
    again = "\n".join([*dict.fromkeys(commands), "python -m benchmarks.vision --report"])
    parts.append(f"## Reproduction\n\n```bash\n{again}\n```\n")
    return "\n".join(parts)


def section(result: Result, images: Path) -> str:
    parts = [
        f"## {result.title}\n",
        f"{result.said.strip()}\n",
        measured.table(HEADINGS, [row.cells() for row in result.rows]),
    ]
    for table in result.tables:
        parts.append(f"### {table.title}\n\n{measured.table(table.headings, table.rows)}")
        parts += [f"{table.said.strip()}\n"] if table.said else []
    for picture in result.pictures:
        if not (images / picture.file).exists():
            raise ValueError(
                f"{result.name}.json names the picture {picture.file}, which is not in {images}; run "
                f"python -m benchmarks.vision.{result.name} again"
            )
        parts.append(f"![{picture.said}](images/{picture.file})\n")
    return "\n".join(parts)


def write(results: Path = RESULTS, page_at: Path = PAGE, images: Path = IMAGES) -> Path:
    page_at.write_text(page(results, images), encoding="utf-8")
    return page_at
