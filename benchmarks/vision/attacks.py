"""Attacks on scikit-learn's digits beside torchattacks: `python -m benchmarks.vision.attacks --runs FOLDER`.

Two ConvNets of two stages are trained first, one on clean and one on attacked images. torchattacks and foolbox are in
tests/peers.txt.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from benchmarks.measured import VISION, About
from benchmarks.spent import Spent
from benchmarks.table import Bound
from benchmarks.timing import Effort, measure
from benchmarks.training import Say, Unfinished, train
from benchmarks.vision.result import RESULTS, Result, Row, Table
from regard.attacks import ATTACKS, PGD, Attack, UniformStart, Worst
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.classify_image.predictor import ImageClassifier
from regard.tasks.loading import load
from regard.tasks.shared.image_data import ImageStats, bounded_examples, normalized, read_split
from regard.training.config import TrainingConfig

EPS = 0.1
TASK = ClassifyImage.of(width=16, depths=(1, 1))
TRAINING = TrainingConfig(
    epochs=20, lr=6e-3, schedule="cosine", warmup=30, weight_decay=0.01, validate_every=210, log_every=105, threads=1
)
# epochs on attacked images: a minute of CPU
ROBUST_EPOCHS = 60
# images of the timed PGD, of worst and of AutoAttack; the factor of saturated logits
FEW, FACTOR = 128, 300.0

SAID = """\
ConvNets of width 16 with two stages, attacked on the held-out fifth of scikit-learn's digits, 8 × 8 pixels from 0 to 1,
in the ball of 0.1 around each. One network is trained on clean images, one on images that PGD of 5 steps attacked. The
lean loop is PGD in eight lines, its verdict included; times are CPU times of one thread. AutoAttack is the standard
version of torchattacks, whose APGD takes 10 steps where that of worst takes 100.
"""


class Pixels(nn.Module):
    """Pixels from 0 to 1 to logits, times a factor: the network behind its normalisation, as torchattacks takes it."""

    def __init__(self, model: nn.Module, stats: ImageStats, factor: float = 1.0) -> None:
        super().__init__()
        self.model, self.stats, self.factor = model, stats, factor
        # torchattacks puts all modules back into the mode of the outermost one
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.model(normalized(x, self.stats)) * self.factor


def lean_pgd(model: nn.Module, x: Tensor, y: Tensor, eps: float, step: float, steps: int) -> tuple[Tensor, Tensor]:
    """PGD as one would write it, and its verdict."""
    z = x
    for _ in range(steps):
        z = z.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(model(z), y, reduction="sum"), z)
        z = (x + (z.detach() + step * gradient.sign() - x).clamp(-eps, eps)).clamp(0, 1)
    with torch.no_grad():
        return z, (model(z).argmax(1) != y).float()


def trained(task: ClassifyImage, training: TrainingConfig, run: Path, say: Say) -> tuple[ImageClassifier, float]:
    """The classifier, and the CPU seconds of its training."""
    train(run.name, task, training, run, say)
    predictor = load(run, device="cpu")
    assert isinstance(predictor, ImageClassifier)
    spent = Spent.of(run)
    return predictor, 0.0 if spent is None else spent.seconds


def timed(model: nn.Module, x: Tensor, y: Tensor, effort: Effort) -> tuple[float, float, float]:
    """The CPU time of PGD-10 by regard, with quartiles, and of torchattacks, each divided by that of the lean loop."""
    import torchattacks

    theirs = torchattacks.PGD(model, eps=EPS, alpha=EPS / 4, steps=10, random_start=False)

    def by_torchattacks() -> tuple[Tensor, Tensor]:
        z = theirs(x, y)
        with torch.no_grad():
            return z, (model(z).argmax(1) != y).float()

    def by_regard() -> tuple[Tensor, Tensor]:
        result = regard.attack(model, x, y, PGD(EPS, 10, EPS / 4))
        return result.inputs, result.broken.float()

    calls: dict[str, Callable[[], object]] = {
        "lean": lambda: lean_pgd(model, x, y, EPS, EPS / 4, 10),
        "regard": by_regard,
        "torchattacks": by_torchattacks,
    }
    times = measure(calls, effort, 1, grad=True, agree=("regard",))
    ours = times.ratio("regard", "lean")
    return ours.median, ours.high, times.ratio("torchattacks", "lean").median


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return 100 * (model(x).argmax(1) == y).double().mean().item()


def by_autoattack(model: nn.Module, x: Tensor, y: Tensor) -> tuple[float, float]:
    """The accuracy that torchattacks' AutoAttack leaves, and its CPU seconds."""
    import torchattacks

    begun = time.process_time()
    z = torchattacks.AutoAttack(model, eps=EPS, version="standard", n_classes=10, seed=0)(x, y)
    return accuracy(model, z, y), time.process_time() - begun


class Measured:
    """The attacks on both networks, and on the plain one with saturated logits."""

    def __init__(
        self, plain: ImageClassifier, robust: ImageClassifier, x: Tensor, y: Tensor, worst: Attack, say: Say
    ) -> None:
        self.x, self.y, self.worst, self.say = x, y, worst, say
        self.nets = {name: Pixels(each.model, each.stats) for name, each in (("plain", plain), ("robust", robust))}
        self.saturated = Pixels(plain.model, plain.stats, FACTOR)
        self.masked = self.under(self.saturated, PGD(EPS, 10))

    def under(self, net: nn.Module, attack: Attack) -> regard.attacks.AttackResult:
        return regard.attack(net, self.x, self.y, attack)

    def worst_accuracy(self, net: nn.Module) -> float:
        return regard.attack(net, self.x[:FEW], self.y[:FEW], self.worst).accuracy

    def rows(self, training: TrainingConfig, cpu: float, effort: Effort) -> tuple[list[Row], Table]:
        """`cpu` are the seconds of the adversarial training."""
        x, y, say, few = self.x, self.y, self.say, len(self.x[:FEW])
        ratio, high, peers = timed(self.nets["plain"], x[:FEW], y[:FEW], effort)
        say(f"PGD-10: {ratio:.3f} of the lean loop, torchattacks {peers:.3f}")
        begun = time.process_time()
        ours = self.worst_accuracy(self.nets["plain"])
        seconds = time.process_time() - begun
        theirs, their_seconds = by_autoattack(self.nets["plain"], x[:FEW], y[:FEW])
        say(f"plain: worst {ours:.2f} % in {seconds:.0f} s, AutoAttack {theirs:.2f} % in {their_seconds:.0f} s")
        truth, scaled = min(ours, theirs), self.worst_accuracy(self.saturated)
        say(f"logits × {FACTOR:g}: PGD {self.masked.accuracy:.2f} %, worst {scaled:.2f} %, truth {truth:.2f} %")
        long = self.under(self.nets["robust"], PGD(EPS, 40, start=UniformStart())).accuracy
        clean = accuracy(self.nets["robust"], x, y)
        say(f"robust: clean {clean:.2f} %, PGD-40 {long:.2f} %")
        budget = f"{training.epochs or training.steps:g} {'epochs' if training.epochs else 'steps'}"
        rows = [
            Row(
                f"PGD of 10 steps on {few} digits, against a lean loop", ratio, "of its CPU time",
                Bound("most", 1.05), f"median of interleaved calls, one thread; upper quartile {high:.3f}", digits=3,
                beside=f"torchattacks: {peers:.3f}",
            ),
            Row(
                "worst on the plain network, above AutoAttack of torchattacks", ours - theirs, "points of accuracy",
                Bound("most", 1.5), f"{few} images, eps {EPS}; {seconds:.0f} and {their_seconds:.0f} CPU seconds",
                beside=f"{ours:.2f} % and {theirs:.2f} %",
            ),
            Row(
                f"worst with logits × {FACTOR:g}, above the lowest accuracy without the factor", scaled - truth,
                "points of accuracy", Bound("most", 3),
                f"PGD alone leaves {self.masked.accuracy:.1f} % of {len(x)}; warnings: {len(self.masked.warnings)}",
            ),
            Row(
                "adversarial training, accuracy under PGD of 40 steps", long, f"% of {len(x)} test images",
                Bound("least", 80), f"{budget} of PGD-5 from a random start, eps {EPS}; clean {clean:.1f} %", cpu,
            ),
        ]  # fmt: skip
        return rows, self.table(ours)

    def table(self, worst: float) -> Table:
        """The accuracy of both networks under each attack; `worst` is known for the plain one."""
        names = ("fgsm", "pgd", "mi-fgsm", "apgd-ce", "apgd-dlr")
        lines = []
        for name, net in self.nets.items():
            values = [accuracy(net, self.x, self.y)]
            values += [self.under(net, ATTACKS[each](EPS)).accuracy for each in names]
            values.append(worst if name == "plain" else self.worst_accuracy(net))
            lines.append([name, *(f"{value:.1f}" for value in values)])
            self.say(", ".join(lines[-1]))
        count = len(self.x)
        return Table(
            "Accuracy by attack",
            ["trained on", "clean", *names, "worst"],
            [[{"plain": "clean images", "robust": "images attacked by PGD-5"}[line[0]], *line[1:]] for line in lines],
            f"In percent of {count} test images at eps {EPS}, one seed; one image is {100 / count:.2f} points. pgd and "
            f"mi-fgsm take 10 steps, apgd 100; worst is of the first {FEW} images.",
        )


def main(
    arguments: Sequence[str] | None = None,
    *,
    task: ClassifyImage = TASK,
    training: TrainingConfig = TRAINING,
    images: int | None = None,
    worst: Attack | None = None,
    effort: Effort | None = None,
    results: Path = RESULTS,
) -> int:
    """`images`, `worst` and `effort` are for tests: fewer images, a shorter attack, fewer repetitions."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.vision.attacks")
    made.add_argument(
        "--runs", type=Path, metavar="FOLDER", default=Path("runs"), help="folder for the runs (%(default)s)"
    )
    given = made.parse_args(arguments)
    torch.set_num_threads(1)

    def say(text: str) -> None:
        print(text, flush=True)

    hard = replace(task, adversary="pgd", eps=EPS, attack_steps=5)
    try:
        plain, _ = trained(task, training, given.runs / "attacks" / "plain", say)
        longer = replace(training, epochs=None if training.epochs is None else ROBUST_EPOCHS)
        robust, cpu = trained(hard, longer, given.runs / "attacks" / "robust", say)
    except (Unfinished, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    x, y = bounded_examples(read_split(task, "test", plain.stats.classes), plain.stats.classes)
    measured = Measured(plain, robust, x[:images], y[:images], Worst(EPS) if worst is None else worst, say)
    rows, table = measured.rows(longer, cpu, Effort(repeat=40, budget=60) if effort is None else effort)
    settings = {
        "task": task.to_json(),
        "training": asdict(training),
        "robust": asdict(longer),
        "warnings": list(measured.masked.warnings),
    }
    about = About.now((*VISION, "torchattacks"))
    command = "python -m benchmarks.vision.attacks --runs runs"
    result = Result("attacks", "Attacks", SAID, rows, [table], commands=[command], settings=settings, about=about)
    say(f"written: {result.write(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
