"""Draws the pictures of the documentation: python docs/pictures.py [FILE ...] [--runs FOLDER] [--out docs/images].

A FILE is a name below docs/images, such as masks.png or claims/order.svg; without one, all are drawn. Pictures of
mechanisms and gates train tiny models (seconds each), those of guides run the examples of their guide (about a minute
each), those of claims read benchmarks/results. The others train a run into --runs, which is resumed or used again:
dates.png and serve.png (2 CPU minutes), pointers-sort.png and universal-steps.png (1), ntm-copy.png (3), arm.png (4);
much longer: speech, captions, clips, digits.
A picture whose text is cut off, or smaller than 7 points on a page, ends the command. --list prints every file with its
source.
"""

import argparse
import os
import runpy
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import draw
import draw_architecture
import draw_gates
import draw_history
import draw_networks
import draw_rotary
import drawing
import screenshot
from text_sizes import text_faults

ROOT = Path(__file__).parents[1]
# benchmarks and tests are no installed packages
sys.path.append(str(ROOT))

# pictures that the examples of a guide draw, by the guide
GUIDES = {
    "alignments": ["mislead"],
    "answer": ["answer"],
    "classify-text": ["classify-text"],
    "embed": ["embed"],
    "masked-lm": ["masked-lm"],
    "match": ["match"],
    "read": ["read"],
    "respond": ["respond"],
    "saliency": ["saliency-odd"],
    "see": [
        *("see-captions", "see-difference", "see-glimpses", "see-heads", "see-hops"),
        *("see-lines", "see-map", "see-overlay", "see-text"),
    ],
    "select-response": ["select-response"],
    "tag": ["tag"],
    "track": ["track"],
}
# pictures of experiments, by the name that trains and draws
EXPERIMENTS = {
    "spelling": ["transcribe"],
    "caption": ["caption-soft", "caption-hard"],
    "clips": ["clips-meeting", "clips-signal"],
    "gan": ["gan-samples", "gan-attention"],
}
# pictures that need data which is not embedded, or no program, and their way
ELSEWHERE = {
    "bahdanau-luong.svg": "a drawing, changed by hand",
    "glimpses.png": "python -m benchmarks.experiments glimpse --data FOLDER",
    "translation-bleu.png": "python -m benchmarks.experiments multi30k --data FOLDER",
    "translation-loss.png": "python -m benchmarks.experiments multi30k --data FOLDER",
    "translation-compare.png": "python -m benchmarks.experiments mechanisms --data FOLDER",
}
# four scripts, and a direction from right to left
LANGUAGES = ("en", "el", "ru", "ar_EG")


@dataclass(frozen=True)
class Places:
    """The folders of pictures and of runs."""

    out: Path
    runs: Path


@dataclass(frozen=True)
class Source:
    """A program that draws one or several files."""

    text: str
    draw: Callable[[Places], None] | None


def regard(places: Places, *arguments: str) -> None:
    """Runs a command of regard in the folder of runs."""
    command = [sys.executable, "-m", "regard", *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    subprocess.run(command, cwd=places.runs, check=True, env=environment)


def trained(places: Places, name: str, *arguments: str) -> Path:
    """The run of this name: trained, resumed or, if it is finished, as it is."""
    run = places.runs / name
    if run.exists():
        regard(places, "train", "--resume", name)
    else:
        regard(places, "train", *arguments, "--threads", "1", "--out", name)
    return run


def from_guide(name: str) -> Callable[[Places], None]:
    def run(places: Places) -> None:
        from tests.docs import pages

        pages.drawn(ROOT / f"docs/guides/{name}.md", places.out)

    return run


def from_experiment(name: str) -> Callable[[Places], None]:
    def run(places: Places) -> None:
        command = [sys.executable, "-m", "benchmarks.experiments", name, "--runs", str(places.runs)]
        subprocess.run([*command, "--pictures", str(places.out)], cwd=ROOT, check=True)

    return run


def demo_run(places: Places) -> Path:
    regard(places, "demo", "--out", "demo")
    return places.runs / "demo/run"


def dates(places: Places) -> None:
    from regard.experiments.demo_dates import CONFIG, aligned_dates
    from regard.tasks.loading import load
    from regard.tasks.translate.predictor import Translator
    from regard.tasks.translate.task import read
    from regard.viz.alignment import draw as draw_alignments

    translator = load(demo_run(places))
    assert isinstance(translator, Translator)
    with text_faults() as faults:
        path = draw_alignments(aligned_dates(translator, read(CONFIG).test, LANGUAGES), places.out / "dates.png")
    faults.check(path.name)
    drawing.few_colours(path, 128)


def served_dates(places: Places) -> None:
    screenshot.photograph(demo_run(places), places.out / "serve.png", screenshot.paste_dates)


def chat(places: Places) -> None:
    """The run is that of the guide, which its examples train."""
    from tests.docs import pages

    folder = places.runs / "respond"
    if not (folder / "runs/waiter").exists():
        folder.mkdir(parents=True, exist_ok=True)
        before = Path.cwd()
        os.chdir(folder)
        try:
            pages.run(ROOT / "docs/guides/respond.md")
        finally:
            os.chdir(before)
    screenshot.photograph(folder / "runs/waiter", places.out / "chat.png", screenshot.talk, width=860, height=400)


def copied_letters(places: Places) -> None:
    trained(places, "copy", "translate", "--model", "ntm", "--data", "copy", "--steps", "2000")
    regard(places, "predict", "copy", "abracadabra", "--picture", str(places.out.resolve() / "ntm-copy.png"))


def sorted_numbers(places: Places) -> None:
    trained(places, "sort", "translate", "--model", "pointer", "--data", "sort", "--steps", "1000")
    out = str(places.out.resolve() / "pointers-sort.png")
    regard(places, "predict", "sort", "37 4 91 15 62 8 77 50 23 99", "--picture", out)


def halting_steps(places: Places) -> None:
    import matplotlib.pyplot as plt
    import torch

    from regard.data.text.batching import source_batch
    from regard.tasks.loading import load
    from regard.tasks.shared.text_generation import shift_right
    from regard.tasks.translate.predictor import Translator

    sizes = ("--longest", "8", "--width", "64", "--max-steps", "4", "--batch", "512", "--steps", "500")
    translator = load(trained(places, "universal", "translate", "--model", "universal", "--data", "sort", *sizes))
    assert isinstance(translator, Translator)
    line = "37 4 91 15 62 8 77 50"
    ((best, *_),) = translator.translate([line])
    source, target = translator.vocabularies.source, translator.vocabularies.target
    ids = source_batch(source.encode([line]))
    with torch.no_grad():
        steps = translator.model.eval().steps(*ids, shift_right([best.with_eos]))
    labels = [*line.split(), "end"], target.pieces([target.special.bos, *best.with_eos[:-1]])
    with text_faults() as faults:
        figure, axes = plt.subplots(2, 1, figsize=(6, 3.6), layout="constrained", sharey=True)
        for axis, side, counts, names in zip(axes, ("source", "target so far"), steps, labels, strict=True):
            axis.bar(range(len(names)), counts[0].tolist(), color="#3b6ea5")
            axis.set_xticks(range(len(names)), names)
            axis.set_yticks(range(5))
            axis.set_ylabel("steps")
            axis.set_title(side, fontsize=10)
        path = places.out / "universal-steps.png"
        figure.savefig(path, dpi=160)
        plt.close(figure)
    faults.check(path.name)
    drawing.few_colours(path, 32)


def karate(places: Places) -> None:
    example = runpy.run_path(str(ROOT / "examples/karate_club.py"))
    path = places.out / "karate.png"
    example["draw"](example["train"]("gatv2", 0), path)
    drawing.few_colours(path, 32)


def drawn_digits(places: Places) -> None:
    example = runpy.run_path(str(ROOT / "examples/draw_digits.py"))
    path = places.out / "draw-digits.png"
    example["draw"](example["train"]("DRAW", 0, 600), path)
    drawing.few_colours(path, 32)


def arm(places: Places) -> None:
    trained(places, "arm", "agent", "--env", "arm", "--minutes", "4")
    regard(places, "watch", "arm", "3", "--picture", str(places.out.resolve() / "arm.png"))


def salient_scene(places: Places) -> None:
    from PIL import Image

    from regard.data.embedded.scenes import scenes

    trained(places, "scenes", "caption")
    Image.fromarray(scenes("test", seed=0).pixels[0].squeeze(-1)).save(places.runs / "scene.png")
    out = str(places.out.resolve() / "saliency-scene.png")
    regard(places, "view", "scenes", "scene.png", "--what", "saliency", "--out", out)


def _catalogue() -> dict[str, Source]:
    """Every file of docs/images with its source."""
    found: dict[str, Source] = {}

    def add(names: Sequence[str], text: str, program: Callable[[Places], None] | None) -> None:
        found.update(dict.fromkeys(names, Source(text, program)))

    def panels(pictures: drawing.Pictures, name: str, colours: int) -> Callable[[Places], None]:
        def run(places: Places) -> None:
            drawing.draw(pictures, name, places.out, colours)

        return run

    for script, module in (("draw.py", draw), ("draw_gates.py", draw_gates)):
        for name in module.PICTURES:
            add([f"{name}.png"], f"docs/{script}", panels(module.PICTURES, name, module.COLOURS))
    add(["history.png"], "docs/draw_history.py", lambda places: print(draw_history.draw(places.out)))
    add(["architecture.svg"], "docs/draw_architecture.py", lambda places: print(draw_architecture.draw(places.out)))
    add(["rotary-frequencies.svg"], "docs/draw_rotary.py", lambda places: print(draw_rotary.draw(places.out)))
    for guide, names in GUIDES.items():
        add([f"{name}.png" for name in names], f"examples of docs/guides/{guide}.md", from_guide(guide))
    for name in draw_networks.NETWORKS:
        add([f"{name}.svg"], "docs/draw_networks.py", network(name))
    from benchmarks.claims.catalogue import CLAIMS

    for name in CLAIMS:
        add([f"claims/{name}.svg"], "benchmarks/results/claims", claim_figure(name))
    for experiment, names in EXPERIMENTS.items():
        source = f"python -m benchmarks.experiments {experiment}"
        add([f"{name}.png" for name in names], source, from_experiment(experiment))
    add(["dates.png"], "regard demo", dates)
    add(["serve.png"], "regard demo", served_dates)
    add(["chat.png"], "the run of docs/guides/respond.md", chat)
    add(["arm.png"], "regard train agent --env arm", arm)
    add(["ntm-copy.png"], "regard train translate --model ntm --data copy", copied_letters)
    add(["pointers-sort.png"], "regard train translate --model pointer --data sort", sorted_numbers)
    add(["universal-steps.png"], "regard train translate --model universal --data sort", halting_steps)
    add(["karate.png"], "examples/karate_club.py", karate)
    add(["draw-digits.png"], "examples/draw_digits.py", drawn_digits)
    add(["saliency-scene.png"], "regard train caption", salient_scene)
    for name, text in ELSEWHERE.items():
        add([name], text, None)
    return found


def network(name: str) -> Callable[[Places], None]:
    return lambda places: draw_networks.draw(name, places.out)


def claim_figure(name: str) -> Callable[[Places], None]:
    def run(places: Places) -> None:
        from benchmarks.claims import figures
        from benchmarks.claims.catalogue import CLAIMS
        from benchmarks.claims.page import read_results

        with text_faults() as faults:
            figures.draw(CLAIMS[name], read_results()[name], places.out / f"claims/{name}.svg")
        faults.check(name)

    return run


PICTURES: Mapping[str, Source] = _catalogue()


def main() -> int:
    parser = argparse.ArgumentParser(description="Draws the pictures of the documentation.")
    parser.add_argument("files", nargs="*", metavar="FILE", help="names below docs/images (default: all)")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images")
    parser.add_argument("--runs", type=Path, default=Path("runs/pictures"), help="folder for runs (%(default)s)")
    parser.add_argument("--list", action="store_true", help="print every file with its source, and stop")
    options = parser.parse_args()
    if unknown := [name for name in options.files if name not in PICTURES]:
        parser.error(f"there is no picture {unknown[0]!r}; --list prints the names")
    if options.list:
        for name, source in PICTURES.items():
            print(f"{name:28} {source.text}")
        return 0
    places = Places(options.out, options.runs.resolve())
    for folder in (places.out, places.runs):
        folder.mkdir(parents=True, exist_ok=True)
    done: set[Callable[[Places], None]] = set()
    for name in options.files or PICTURES:
        source = PICTURES[name]
        if source.draw is None:
            print(f"{name} is not drawn here: {source.text}")
        elif source.draw not in done:
            # a guide or a benchmark draws several pictures at once
            done.add(source.draw)
            source.draw(places)
            print(f"drawn: {', '.join(other for other in PICTURES if PICTURES[other].draw is source.draw)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
