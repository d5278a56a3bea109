"""docs/vision.md and docs/translation.md: the results of experiments, section by section."""

from dataclasses import dataclass
from pathlib import Path

from benchmarks import measured, report
from benchmarks.result import HEADINGS, RESULTS, ROOT, Result

IMAGES = ROOT / "docs" / "images"


@dataclass(frozen=True)
class Page:
    """A page, its results in order, and tables of speed behind them by title."""

    title: str
    intro: str
    group: str
    names: tuple[str, ...]
    speeds: tuple[tuple[str, str], ...] = ()
    after: str = ""

    @property
    def path(self) -> Path:
        return ROOT / "docs" / f"{self.group}.md"


VISION = Page(
    "Vision results",
    """\
This page lists the results of the image models on a CPU, trained and evaluated by `python -m benchmarks.experiments`.
CPU minutes are the CPU time of a training with its validations. A missed target is reported as "falls short".
""",
    "vision",
    (
        *(
            "digits",
            "channels",
            "channels_mnist",
            "gates_mnist",
            "mnist",
            "mlp",
            "digits_module",
            "clips",
            "glimpse",
            "caption",
            "gan",
            "draw",
        ),
        *("attacks", "mnist_attacks"),
    ),
)
TRANSLATION = Page(
    "Translation results",
    """\
This page lists the results of translators trained on a CPU by `python -m benchmarks.experiments`. Each evaluation uses
the weights of the best validation. Embedded data is evaluated on its test split, which is not used in training.
Multi30k is evaluated on `val`, the split that also selected the best weights, because its test sets are kept apart;
BLEU and chrF are sacrebleu's (13a, cased). CPU minutes are the CPU time of a training process, including validations
and the steps that were repeated after an interruption: an hour on two cores has 120 of them.
""",
    "translation",
    ("dates", "reverse", "pronounce", "multi30k", "conv", "mechanisms", "kills", "growth"),
    (("joeynmt", "Comparison with JoeyNMT"),),
    """\
`FOLDER` has `train.en.gz`, `train.de.gz`, `val.en` and `val.de` of Multi30k. An interrupted training is resumed; a
finished one is only evaluated. `--commands` prints the trainings as commands of `regard train`.
""",
)
_PEER = "python -m benchmarks.peers.joeynmt --peer ENVIRONMENT --source train.en.gz --target train.de.gz"


def write() -> list[Path]:
    for page in (VISION, TRANSLATION):
        page.path.write_text(text(page), encoding="utf-8")
    return [VISION.path, TRANSLATION.path]


def text(page: Page, results: Path = RESULTS, images: Path = IMAGES) -> str:
    """The whole page."""
    folder = results / page.group
    known = {path.stem for path in folder.glob("*.json")}
    if unknown := known - {*page.names}:
        names = ", ".join(page.names)
        raise ValueError(f"{folder} contains {min(unknown)}.json, which is on no page; known are: {names}")
    found = [Result.read(folder / f"{name}.json") for name in page.names if name in known]
    parts = [f"# {page.title}\n", page.intro]
    parts.append(measured.conditions((result.name, result.about) for result in found))
    if missing := [name for name in page.names if name not in known]:
        parts.append(f"Not run: {', '.join(missing)}.\n")
    bounds = [row for result in found for row in result.rows if row.bound is not None]
    if bounds:
        parts.append(f"## Targets\n\n{measured.table(HEADINGS[:5], [row.cells()[:5] for row in bounds])}")
    parts += [section(result, images) for result in found]
    parts += [f"## {title}\n\n{report.read(results / f'{name}.json').body()}" for name, title in page.speeds]
    commands = [command for result in found for command in result.commands] + [_PEER] * bool(page.speeds)
    again = "\n".join([*dict.fromkeys(commands), "python -m benchmarks.experiments --docs"])
    parts.append(f"## Reproduction\n\n```bash\n{again}\n```\n")
    return "\n".join([*parts, *([page.after] if page.after else [])])


def section(result: Result, images: Path) -> str:
    parts = [f"## {result.title}\n", f"{result.said.strip()}\n"]
    if result.rows:
        parts.append(measured.table(HEADINGS, [row.cells() for row in result.rows]))
    for table in result.tables:
        parts.append(f"### {table.title}\n\n{measured.table(table.headings, table.rows)}")
        parts += [f"{table.said.strip()}\n"] if table.said else []
    for picture in result.pictures:
        if not (images / picture.file).exists():
            raise ValueError(
                f"{result.name}.json names the picture {picture.file}, which is not in {images}; run "
                f"python -m benchmarks.experiments {result.name} again"
            )
        parts.append(f"![{picture.said}](images/{picture.file})\n")
    return "\n".join(parts)
