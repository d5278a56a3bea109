"""generate-image: the losses of both networks, the judges of samples, samples by seed, resumed runs."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.data.images.test_labelled import idx
from torch import nn

from regard.common.atomic_files import write_atomically
from regard.common.safetensors_files import encode
from regard.data.images.labelled import Images
from regard.losses import hinge
from regard.models.sagan import MAPS, ConditionalBatchNorm, SelfAttentionGAN
from regard.tasks.generate_image.judge import RealImageStats, ReferenceClassifier, spread
from regard.tasks.generate_image.options import GenerateImage
from regard.tasks.generate_image.predictor import sample_images, signed
from regard.tasks.generate_image.task import GenerateImageProblem, judge_and_images, validation_judge
from regard.tasks.shared.image_data import read_split
from regard.training.checkpoint import load
from regard.training.config import TrainingConfig
from regard.training.fit import fit
from regard.training.step import optimizer

SMALL: dict[str, Any] = {"width": 4, "noise": 5, "judge": 4}
QUICK: dict[str, Any] = {**GenerateImage.training, "validate_every": 3, "save_every": 3, "log_every": 2, "threads": 1}


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> GenerateImageProblem:
    return GenerateImage.of(**SMALL, batch=32).prepare(tmp_path_factory.mktemp("problem"))


def gan(problem: GenerateImageProblem) -> SelfAttentionGAN:
    torch.manual_seed(0)
    model = problem.build_model()
    for part in (model.generator, model.discriminator):
        nn.init.constant_(part.attention.residual, 0.5)
    return model


def gradients(part: nn.Module) -> dict[str, torch.Tensor]:
    found = {name: p.grad for name, p in part.named_parameters() if p.grad is not None}
    part.zero_grad()
    return found


def test_a_new_run_leaves_the_files_of_another_alone(tmp_path: Path) -> None:
    task = GenerateImage.of(**SMALL)
    task.prepare(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert files.keys() == {"images.json", "judge.safetensors"}
    # the seed decides which images are held out
    with pytest.raises(
        FileExistsError, match=r"images\.json belongs to another run, and a new one would write over it"
    ):
        GenerateImage.of(**SMALL, seed=1).prepare(tmp_path)
    with pytest.raises(FileExistsError, match=r"judge\.safetensors belongs to another run"):
        GenerateImage.of(**{**SMALL, "judge": 5}).prepare(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files
    task.prepare(tmp_path, new=False)


def test_each_network_learns_from_its_own_loss_alone(problem: GenerateImageProblem) -> None:
    """In evaluation mode, where no call changes what the next one finds."""
    model, batch = gan(problem).eval(), problem.load_batch(problem.plan_epoch(0)[0], 0, 1)
    torch.manual_seed(1)
    loss = problem.loss(model, batch)
    assert loss.count == problem.num_terms(batch) == 32
    loss.total.backward()
    to_generator, to_discriminator = gradients(model.generator), gradients(model.discriminator)
    assert to_generator.keys() == dict(model.generator.named_parameters()).keys()
    assert to_discriminator.keys() == dict(model.discriminator.named_parameters()).keys()

    torch.manual_seed(1)
    fake, y = model.draw(torch.randn(32, model.noise), batch.labels), batch.labels
    of_generator = -model.discriminator(fake, y).sum()
    of_generator.backward()
    want = gradients(model.generator)
    assert all(torch.allclose(to_generator[name], want[name], rtol=1e-4, atol=1e-5) for name in want)
    model.zero_grad()
    real, seen = model.discriminator(batch.x, y), model.discriminator(fake.detach(), y)
    of_discriminator = hinge(real, seen).sum()
    of_discriminator.backward()
    want = gradients(model.discriminator)
    assert all(torch.allclose(to_discriminator[name], want[name], rtol=1e-4, atol=1e-4) for name in want)
    assert not gradients(model.generator)
    torch.testing.assert_close(loss.total, of_generator + of_discriminator)
    torch.testing.assert_close(loss.sums["real"], real.sum())
    torch.testing.assert_close(loss.sums["fake"], seen.sum())


def test_a_loss_draws_anew_and_leaves_the_average(problem: GenerateImageProblem) -> None:
    model, batch = gan(problem), problem.load_batch(problem.plan_epoch(0)[0], 0, 1)
    assert batch is not None
    before = {name: t.clone() for name, t in model.average.state_dict().items()}
    nn.init.normal_(model.generator.last.parametrizations.weight.original)
    totals = [problem.loss(model, batch).total.item() for _ in range(2)]
    assert totals[0] != totals[1]
    assert all(torch.equal(t, before[name]) for name, t in model.average.state_dict().items())


def test_the_options_of_training_reach_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """faster is the rate of the discriminator; keep is kept once a step, of however many batches."""
    task = GenerateImage.of(**{**SMALL, "judge": 1}, faster=3.0, keep=0.75)
    keeps, follow = [], SelfAttentionGAN.update_ema

    def spied(model: SelfAttentionGAN, keep: float) -> None:
        before, now = (p.parametrizations.weight.original.clone() for p in (model.average.last, model.generator.last))
        follow(model, keep)
        torch.testing.assert_close(model.average.last.parametrizations.weight.original, before.lerp(now, 0.25))
        keeps.append(keep)

    monkeypatch.setattr(SelfAttentionGAN, "update_ema", spied)
    list(fit(task, tmp_path, TrainingConfig(steps=3, accumulate=2, **QUICK)))
    assert keeps == [0.75] * 3
    model = task.load().predictor(tmp_path).model
    assert model.lr_multipliers == {"generator": 1.0, "discriminator": 3.0}


def test_norms_of_a_class_do_not_decay(problem: GenerateImageProblem) -> None:
    model = gan(problem)
    made = optimizer(model, TrainingConfig(steps=1, weight_decay=0.1), torch.device("cpu"))
    decays = {id(p): group["weight_decay"] for group in made.param_groups for p in group["params"]}
    norms = [m for m in model.generator.modules() if isinstance(m, ConditionalBatchNorm)]
    assert norms
    assert all(decays[id(p)] == 0 for norm in norms for p in (norm.scale, norm.shift))
    assert decays[id(model.generator.last.parametrizations.weight.original)] == 0.1


@pytest.mark.whole
def test_it_learns(tmp_path: Path) -> None:
    """Of two digits, in some seconds: what is drawn comes much nearer to what is real."""
    from regard.data.images.labelled import digits

    found = digits()
    two = found[np.flatnonzero(found.labels < 2)]
    folder = tmp_path / "data"
    folder.mkdir()
    idx(folder / "train-images-idx3-ubyte", two.pixels[..., 0])
    idx(folder / "train-labels-idx1-ubyte", two.labels.astype(np.uint8))
    task = GenerateImage.of(train=folder, width=6, noise=8, batch=16, judge=40, attention="half", keep=0.9)
    training = {**QUICK, "lr": 1e-3, "validate_every": 60}
    scores = [
        event.score.values
        for event in fit(task, tmp_path / "run", TrainingConfig(steps=180, **training))
        if type(event).__name__ == "Validated"
    ]
    assert len(scores) == 3
    assert scores[-1]["distance"] < 0.5 * scores[0]["distance"]
    assert scores[-1]["spread"] > 0.2 * scores[-1]["real spread"]


def test_a_judge_is_trained_saved_and_read(problem: GenerateImageProblem, tmp_path: Path) -> None:
    calls = []

    def learn() -> ReferenceClassifier:
        calls.append(1)
        return ReferenceClassifier.train(problem.train[:200], problem.train[200:300], problem.stats, 60, 3)

    path = tmp_path / "judge.safetensors"
    state = torch.random.get_rng_state()
    first = ReferenceClassifier.of(path, True, problem.stats, learn)
    again = ReferenceClassifier.of(path, False, problem.stats, learn)
    assert torch.equal(state, torch.random.get_rng_state())
    assert len(calls) == 1
    assert first.accuracy == again.accuracy > 60
    pixels = problem.train.pixels[:50]
    assert np.array_equal(first.predict(pixels), again.predict(pixels))
    same = learn()
    assert all(torch.equal(t, same.model.state_dict()[name]) for name, t in first.model.state_dict().items())
    facts = {"regard": json.dumps({"format": 2, "accuracy": 10**400})}
    for tensors in (first.model.state_dict(), {}):
        write_atomically(path, encode(tensors, facts))
        with pytest.raises(
            ValueError, match=r"judge.safetensors holds no classifier of this run .*; delete it, and"
        ) as e:
            ReferenceClassifier.of(path, False, problem.stats, learn)
        assert "\n" not in str(e.value)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ValueError, match=r"judge.safetensors holds no classifier of this run .*; delete it, and"):
        ReferenceClassifier.of(path, False, problem.stats, learn)


def test_a_judge_that_learns_is_told(tmp_path: Path) -> None:
    task = GenerateImage.of(judge=7)
    said = "training the classifier that judges samples, 7 steps"
    assert task.preparation_notice(tmp_path, True) == task.preparation_notice(tmp_path, False) == said
    (tmp_path / "judge.safetensors").write_bytes(b"")
    assert (task.preparation_notice(tmp_path, True), task.preparation_notice(tmp_path, False)) == (said, "")


def test_no_judge_has_learned_from_images_that_it_is_held_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, taught, learned = GenerateImage.of(**SMALL), [], ReferenceClassifier.train

    def spied(train: Images, held: Images, *rest: Any) -> ReferenceClassifier:
        taught.append((train, held))
        return learned(train, held, *rest)

    monkeypatch.setattr(ReferenceClassifier, "train", spied)
    problem = task.prepare(tmp_path)
    judge, test = judge_and_images(task, tmp_path, "test")
    assert len(test) == 359
    assert (tmp_path / "judge-test.safetensors").exists()
    assert judge_and_images(task, tmp_path, "test")[0].accuracy == judge.accuracy
    one, two = judge.model.state_dict(), problem.real.judge.model.state_dict()
    assert not torch.equal(one["stem.0.weight"], two["stem.0.weight"])
    held = [{image.tobytes() for image in some.pixels} for some in (read_split(task, "valid"), test)]
    # no two of the embedded digits are the same
    assert [len(some) for some in held] == [len(read_split(task, "valid")), len(test)]
    assert len(taught) == 2
    for (train, measured), apart in zip(taught, held, strict=True):
        assert {image.tobytes() for image in measured.pixels} == apart
        assert not apart & {image.tobytes() for image in train.pixels}
        assert len(train) > 1000
    # neither has seen what only the end looks at
    assert not held[1] & {image.tobytes() for image in taught[0][0].pixels}


def test_a_run_judges_with_what_it_holds(tmp_path: Path) -> None:
    """Without its images where none are needed; and images that have changed are noticed."""
    folder, labels = tmp_path / "data", np.arange(40, dtype=np.uint8) % 2
    folder.mkdir()
    draw = np.random.default_rng(0)
    idx(folder / "train-labels-idx1-ubyte", labels)
    idx(folder / "train-images-idx3-ubyte", draw.integers(0, 255, (40, 8, 8), np.uint8))
    task, run = GenerateImage.of(train=folder, **SMALL), tmp_path / "run"
    problem = task.prepare(run)
    assert np.array_equal(judge_and_images(task, run, "valid")[1].pixels, read_split(task, "valid").pixels)
    judge_and_images(task, run, "test")
    idx(folder / "train-images-idx3-ubyte", draw.integers(0, 255, (40, 8, 8), np.uint8))
    # also where a judge of the images as they were is kept
    for split in ("valid", "test"):
        with pytest.raises(ValueError, match="the images of .*run have changed: .*; put the files back as they were"):
            judge_and_images(task, run, split)
    shutil.rmtree(folder)
    judge = validation_judge(task, run)
    assert judge.accuracy == problem.real.judge.accuracy
    want = problem.real.judge.model.state_dict()
    assert all(torch.equal(t, want[name]) for name, t in judge.model.state_dict().items())


def test_folders_to_validate_and_to_test_on(tmp_path: Path) -> None:
    """Both splits are judged, by their images of classes that the run generates."""
    from PIL import Image

    draw = np.random.default_rng(0)
    for split, names in (("train", "ab"), ("val", "abc"), ("test", "abd")):
        for name in names:
            (tmp_path / "data" / split / name).mkdir(parents=True)
            for n in range(5):
                pixels = draw.integers(0, 255, (8, 8), np.uint8)
                Image.fromarray(pixels).save(tmp_path / "data" / split / name / f"{n}.png")
    task, run = GenerateImage.of(train=tmp_path / "data", **SMALL), tmp_path / "run"
    problem = task.prepare(run)
    assert len(problem.train) == 10
    for split in ("valid", "test"):
        images = judge_and_images(task, run, split)[1]
        assert (len(images), images.labels.max()) == (10, 1)


def test_scores_of_real_images_and_of_one_that_is_repeated(problem: GenerateImageProblem) -> None:
    judge = ReferenceClassifier.train(problem.train, problem.train[:100], problem.stats, 60, 0)
    real = RealImageStats.of(judge, problem.train)
    found = real.scores(problem.train.pixels, problem.train.labels)
    assert found["recognised"] > 80
    assert found["real spread"] == pytest.approx(found["spread"], rel=0.01)
    assert found["distance"] == pytest.approx(0, abs=1e-6)
    first = np.array([np.flatnonzero(problem.train.labels == n)[0] for n in range(10)]).repeat(20)
    found = real.scores(problem.train.pixels[first], problem.train.labels[first])
    assert found["spread"] == 0
    assert found["distance"] > 0.1


def test_spread_is_the_mean_distance_of_two() -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (5, 3, 2, 1), np.uint8)
    flat = pixels.reshape(5, -1) / 255
    want = np.mean([np.linalg.norm(flat[i] - flat[j]) for i in range(5) for j in range(i)])
    assert spread(pixels) == pytest.approx(want)


def test_drawings_are_pixels_of_one_seed(problem: GenerateImageProblem, tmp_path: Path) -> None:
    model, asked = gan(problem).eval(), np.arange(10).repeat(3)
    found = sample_images(model, asked, 7)
    assert (found.shape, found.dtype) == ((30, 8, 8, 1), np.uint8)
    assert np.array_equal(found, sample_images(model, asked, 7))
    assert not np.array_equal(found, sample_images(model, asked, 8))
    z = torch.randn(30, model.noise, generator=torch.Generator().manual_seed(7))
    want = model(z, torch.from_numpy(asked))
    assert (signed(found) - want).abs().max() <= 0.5 / 127.5 + 1e-5
    assert problem.draw_samples(model, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("attention", MAPS)
def test_every_attention_is_built_and_called(attention: Any) -> None:
    model, labels = GenerateImage.of(**SMALL, attention=attention).load().sketch(), torch.arange(2)
    assert isinstance(model, SelfAttentionGAN)
    assert model.discriminator(model(torch.zeros(2, model.noise), labels), labels).shape == (2,)


def test_images_that_cannot_be_doubled_into(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    labels = np.arange(12, dtype=np.uint8) % 2
    idx(folder / "train-images-idx3-ubyte", np.zeros((12, 6, 6), np.uint8))
    idx(folder / "train-labels-idx1-ubyte", labels)
    with pytest.raises(ValueError, match="images must be as high as wide, a multiple of 4, got 6 × 6; resize them, or"):
        GenerateImage.of(train=folder).prepare(tmp_path / "run")


def test_a_size_is_a_multiple_of_four() -> None:
    with pytest.raises(ValueError, match="size must be a multiple of 4, got 30; try size=28"):
        GenerateImage.of(size=30, train="x")


def test_pictures_of_one_s_own(tmp_path: Path) -> None:
    """In colour, of any size, made as large as it is told."""
    from PIL import Image

    draw = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for n in range(6):
            Image.fromarray(draw.integers(0, 255, (9, 14, 3), np.uint8)).save(tmp_path / "data" / name / f"{n}.png")
    task = GenerateImage.of(train=tmp_path / "data", size=12, **SMALL)
    list(fit(task, tmp_path / "run", TrainingConfig(steps=1, **QUICK)))
    model = task.load().predictor(tmp_path / "run").model
    load(model, tmp_path / "run" / "best.safetensors")
    assert sample_images(model.eval(), np.array([0, 1]), 0).shape == (2, 12, 12, 3)
    with Image.open(tmp_path / "run" / "samples" / "1.png") as image:
        assert image.mode == "RGB"
