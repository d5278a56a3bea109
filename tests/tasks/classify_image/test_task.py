"""classify-image: data, batches, loss and scores; a run is resumed with its own images alone."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from tests.data.images.test_labelled import LABELS, idx
from tests.for_each import for_each

from regard.gates.catalogue import GATES
from regard.tasks.classify_image.options import ClassifyImage
from regard.tasks.classify_image.task import image_scores
from regard.tasks.shared.classification import IMAGE_SCORES, class_scores
from regard.tasks.shared.image_data import (
    ImageStats,
    class_probabilities,
    random_shift,
    read_held_out,
    read_split,
    read_stats,
    read_train_and_test,
)
from regard.tasks.shared.image_options import EvaluateImages
from regard.training.checkpoint import load
from regard.training.config import TrainingConfig
from regard.training.fit import fit

SMALL: dict[str, Any] = {"width": 4, "depths": (1, 1)}


def test_digits_are_parted_and_planned(tmp_path: Path) -> None:
    problem = ClassifyImage.of(**SMALL, batch=100, seed=3).prepare(tmp_path)
    train, test = read_train_and_test(problem.config)
    assert len(train) + len(test) == 1797
    assert len(problem.train) + len(problem.valid) == len(train)
    assert problem.summary == f"{len(problem.train):,} images to train on, {len(problem.valid)} to validate, 10 classes"
    assert len(read_split(problem.config, "valid")) == len(problem.valid)
    assert len(read_split(problem.config, "test")) == len(test)
    plan = problem.plan_epoch(2)
    assert sorted(np.concatenate([index for _, index in plan]).tolist()) == list(range(len(problem.train)))
    batch = problem.load_batch(plan[0], 0, 1)
    assert batch.x.shape == (100, 1, 8, 8)
    halves = [problem.load_batch(plan[0], rank, 2) for rank in (0, 1)]
    assert all(half is not None for half in halves)
    assert torch.equal(halves[1].x, batch.x[1::2])  # type: ignore[union-attr]
    assert problem.load_batch((0, plan[0][1][:1]), 1, 2) is None


def test_no_batch_is_of_one_image(tmp_path: Path) -> None:
    problem = ClassifyImage.of(**SMALL).prepare(tmp_path)
    size = len(problem.train) - 1
    assert [len(index) for _, index in ClassifyImage.of(**SMALL, batch=size).prepare(tmp_path).plan_epoch(0)] == [
        size + 1
    ]


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_the_cross_entropy(tmp_path: Path, smoothing: float) -> None:
    problem = ClassifyImage.of(**SMALL, smoothing=smoothing, dropout=0.0).prepare(tmp_path)
    model, batch = problem.build_model().eval(), problem.load_batch(problem.plan_epoch(0)[0], 0, 1)
    loss = problem.loss(model, batch)
    want = F.cross_entropy(model(batch.x), batch.labels, label_smoothing=smoothing)
    torch.testing.assert_close(loss.total / loss.count, want)
    assert loss.count == problem.num_terms(batch) == 64
    right = (model(batch.x).argmax(-1) == batch.labels).float().mean()
    assert float(loss.sums["accuracy"]) / loss.count == pytest.approx(100 * float(right))


def test_open_options_are_those_of_the_model_and_of_the_data(tmp_path: Path) -> None:
    assert ClassifyImage.of().model.width == 32
    assert ClassifyImage.of(model="rows").model.width == 16
    assert ClassifyImage.of(model="rows", width=5).model.width == 5
    assert ClassifyImage.of().metric == "nll"
    assert ClassifyImage.of(model="rows").title == "a reader of rows on digits"
    reader = ClassifyImage.of(model="rows", heads=2, width=4, stride=3).prepare(tmp_path).build_model()
    assert (reader.cell.size, reader.embed.stride, reader.size) == (8, (3, 3), (8, 8))
    again = ClassifyImage.of(model="rows", heads=2, width=4, stride=3).load().predictor(tmp_path).model
    assert {name: p.shape for name, p in again.state_dict().items()} == {
        name: p.shape for name, p in reader.state_dict().items()
    }
    ClassifyImage.of(model="rows", stride=9).load().sketch()
    # the stride that the data decides is recorded, and builds the same model
    task = ClassifyImage.of(model="rows", heads=2, width=4)
    problem = task.prepare(tmp_path)
    assert problem.resolved_options() == {"model": {"stride": 1}}
    torch.manual_seed(0)
    model = problem.build_model()
    torch.manual_seed(0)
    recorded = task.with_options(stride=1).prepare(tmp_path).build_model()
    assert all(torch.equal(t, recorded.state_dict()[name]) for name, t in model.state_dict().items())
    assert ClassifyImage.of().prepare(tmp_path).resolved_options() == {"model": {}}


def test_shifts_are_those_of_every_image() -> None:
    x = torch.randn(5, 2, 6, 7)
    assert random_shift(x, 0, 3) is x
    got = random_shift(x, 2, 3)
    wide = F.pad(x, (2, 2, 2, 2), mode="replicate")
    moves = np.random.default_rng(3).integers(0, 5, (5, 2))
    for n, (down, right) in enumerate(moves.tolist()):
        assert torch.equal(got[n], wide[n, :, down : down + 6, right : right + 7])
    assert len({tuple(move) for move in moves.tolist()}) > 1


def test_scores() -> None:
    chances = np.array([[0.7, 0.3], [0.2, 0.8], [0.5, 0.5], [1.0, 0.0]])
    found = class_scores(chances, np.array([0, 0, 1, 1]), IMAGE_SCORES)
    assert found["accuracy"] == 25.0
    assert found["nll"] == pytest.approx(-np.log([0.7, 0.2, 0.5, 1e-300]).mean())


@for_each("gate", [None, *GATES])
def test_every_gate_is_built_and_called(gate: str | None) -> None:
    assert ClassifyImage.of(**SMALL, gate=gate).load().sketch()(torch.zeros(2, 1, 8, 8)).shape == (2, 2)


@pytest.mark.parametrize("gate", ["none", "attention-module", "cbam"])
def test_a_perceptron_with_any_gate(gate: str) -> None:
    task = ClassifyImage.of(model="mlp", hidden=(8,), gate=gate)
    task.load().sketch()
    assert task.title.startswith("a perceptron on")
    assert list(task.variants(["none", "attention-module"])) == ["none", "attention-module"]


def test_it_learns(tmp_path: Path) -> None:
    """A few epochs read digits."""
    task = ClassifyImage.of(width=8, depths=(1, 1), gate="simam")
    training = {"lr": 5e-3, "warmup": 10, "schedule": "constant", "validate_every": 45, "threads": 1}
    list(fit(task, tmp_path / "a", TrainingConfig(steps=90, **training)))  # type: ignore[arg-type]
    model = task.load().predictor(tmp_path / "a").model
    load(model, tmp_path / "a" / "best.safetensors")
    stats = read_stats(tmp_path / "a")
    test = read_split(task, "test")
    found = image_scores(model.eval(), test, stats)
    assert found["accuracy"] > 60  # ten classes
    assert class_probabilities(model, model, test.pixels, stats).sum(-1) == pytest.approx(1.0)


def files(folder: Path, labels: Any = LABELS) -> Path:
    folder.mkdir(exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (len(labels), 6, 5), np.uint8)
    for split in ("train", "t10k"):
        idx(folder / f"{split}-images-idx3-ubyte", pixels)
        idx(folder / f"{split}-labels-idx1-ubyte.gz", np.array(labels, np.uint8))
    return folder


def test_files_with_a_split_of_their_own(tmp_path: Path) -> None:
    task = ClassifyImage.of(train=files(tmp_path / "data"), **SMALL)
    train, test = read_train_and_test(task)
    assert len(train) == len(test) == 7
    problem = task.prepare(tmp_path / "run")
    assert (problem.stats.height, problem.stats.width, problem.stats.classes) == (6, 5, ["0", "1", "2"])
    task.prepare(tmp_path / "run", new=False)
    files(tmp_path / "data", LABELS[::-1])
    with pytest.raises(
        ValueError, match=r"the images of .*run have changed: they were 6 × 5 of 3 classes; put the files"
    ):
        task.prepare(tmp_path / "run", new=False)


def test_test_images_of_fewer_or_other_classes(tmp_path: Path) -> None:
    folder = files(tmp_path / "data")
    idx(folder / "t10k-labels-idx1-ubyte.gz", np.minimum(LABELS, 1))
    _, test = read_train_and_test(ClassifyImage.of(train=folder))
    assert test.classes == ("0", "1", "2")
    idx(folder / "t10k-labels-idx1-ubyte.gz", LABELS + 1)
    _, test = read_train_and_test(ClassifyImage.of(train=folder))
    assert test.classes == ("0", "1", "2", "3")
    idx(folder / "t10k-labels-idx1-ubyte.gz", LABELS + 5)
    with pytest.raises(ValueError, match=r"the test split of .* has no label that the run knows, only '5', '6', '7'"):
        read_train_and_test(ClassifyImage.of(train=folder))


def write_classes(folder: Path, grey: int = 100, **counts: int) -> None:
    """Random pictures in one folder per class."""
    draw = np.random.default_rng(grey)
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for n in range(count):
            pixels = draw.integers(grey - 50, grey, (8, 8), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{n}.png")


@pytest.mark.parametrize("name", ["val", "valid", "validation", "dev"])
def test_a_folder_to_validate_on(name: str, tmp_path: Path) -> None:
    write_classes(tmp_path / "data" / "train", cat=10, dog=10)
    write_classes(tmp_path / "data" / name, grey=200, cat=3, dog=2, owl=1)
    task = ClassifyImage.of(train=tmp_path / "data", **SMALL)
    problem = task.prepare(tmp_path / "run")
    assert (len(problem.train), len(problem.valid), len(read_train_and_test(task)[1])) == (16, 6, 4)
    assert problem.valid.pixels.min() >= 150
    assert problem.valid.classes == ("cat", "dog", "owl")
    note = "labels that the run never saw count as missed: 1 ('owl'); nll leaves out 1 example with them"
    assert note in problem.warnings()
    assert len(read_held_out(task, "valid", tmp_path / "run").data) == 6
    # validation images that change are told, as those to train on are
    (tmp_path / "data" / name / "owl" / "0.png").unlink()
    with pytest.raises(ValueError, match="the images that .*run is validated on have changed"):
        task.prepare(tmp_path / "run", new=False)


def test_test_images_of_another_size(tmp_path: Path) -> None:
    write_classes(tmp_path / "data", cat=4, dog=4)
    (tmp_path / "data" / "test" / "cat").mkdir(parents=True)
    Image.new("L", (5, 5)).save(tmp_path / "data" / "test" / "cat" / "0.png")
    sentence = r"images of the test split of .* are \(5, 5, 1\), those to train on .*; give both the same, or size"
    with pytest.raises(ValueError, match=sentence):
        read_train_and_test(ClassifyImage.of(train=tmp_path / "data"))


def test_statistics_are_those_of_the_images_to_train_on(tmp_path: Path) -> None:
    write_classes(tmp_path / "data", cat=20, dog=20)
    problem = ClassifyImage.of(train=tmp_path / "data", **SMALL).prepare(tmp_path / "run")
    assert problem.stats.mean == pytest.approx(problem.train.pixels.mean() / 255)
    assert problem.stats.spread == pytest.approx(problem.train.pixels.std() / 255)


def test_classes_of_test_images_that_the_run_never_saw_count_as_missed(tmp_path: Path) -> None:
    write_classes(tmp_path / "data", cat=12, dog=12)
    write_classes(tmp_path / "data" / "test", grey=200, cat=3, dog=3, owl=2)
    task = ClassifyImage.of(train=tmp_path / "data", **SMALL)
    task.prepare(tmp_path / "run")
    found = task.load().evaluate(
        task.load().predictor(tmp_path / "run"), tmp_path / "run", EvaluateImages(), lambda done, count: None
    )
    assert found.count == 8
    assert found.scores["accuracy"] <= 75
    assert all(found.intervals[name][0] <= value <= found.intervals[name][1] for name, value in found.scores.items())
    assert (
        "labels that the run never saw count as missed: 1 ('owl'); nll leaves out 2 examples with them" in found.notes
    )


def test_a_class_of_one_image_is_told(tmp_path: Path) -> None:
    task = ClassifyImage.of(train=files(tmp_path / "data", [0, 0, 1, 2, 2]), **SMALL)
    with pytest.raises(
        ValueError, match="every class needs an image to train on and one .*, but 1 has 1 after the test"
    ):
        task.prepare(tmp_path / "run")


def _stats(**changes: object) -> str:
    stats = ImageStats(1, 8, 8, ["0", "1"], 0.0, 1.0, "")
    return json.dumps({**asdict(stats), **changes})


@for_each(
    ("text", "said"),
    [
        (None, "holds no images.json; name the folder"),
        ("[]", "does not describe images .*; restore it, or train in"),
        (
            _stats(height=0),
            r"does not describe images \(height must be from 1 to 65536, got 0\); restore it, or train in",
        ),
        (_stats(channels=10**400), r"\(channels must be from 1 to 4, got 1000000000000"),
        (_stats(spread=-1.0), r"\(mean and spread must be from 0 to 1, got 0.0 and -1.0\)"),
        (_stats(mean=1e308), r"\(mean and spread must be from 0 to 1, got 1e\+308 and 1.0\)"),
        (_stats(width="wide"), r"\(width is 'wide', which is of a wrong type"),
    ],
)
def test_facts_that_are_none(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "images.json").write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        ClassifyImage.of().load().predictor(tmp_path)


def test_an_unknown_gate_is_told_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown gate 'simm'; did you mean 'simam'[?] known are: none, gap, se, "):
        ClassifyImage.of(gate="simm").load().sketch()
    assert ClassifyImage.of(gate="none") == ClassifyImage.of()


def test_variants() -> None:
    task = ClassifyImage.of(train=Path("x"), **SMALL)
    assert [variant.model.gate for variant in task.variants(["none", "se"]).values()] == [None, "se"]
    assert task.title == "a network on x"
    with pytest.raises(ValueError, match="--gate belongs to --model convnet or mlp, not to rows; leave --model out"):
        ClassifyImage.of(model="rows").variants(["se"])
