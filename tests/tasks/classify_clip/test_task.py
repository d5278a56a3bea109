"""The task classify-clip: splits of files, facts of a run, the single-frame baseline, and learning."""

from pathlib import Path

import numpy as np
import pytest
import torch

from regard.cli.main import main
from regard.data.clips.labelled import Clips
from regard.tasks.classify_clip.baseline import fit_single_frame, single_frame_accuracy
from regard.tasks.classify_clip.data import ClipFacts, ClipSplits, check_trainable, plan_batches, read_splits
from regard.tasks.classify_clip.options import ClassifyClip
from regard.tasks.shared.image_options import EvaluateImages
from regard.training.config import TrainingConfig
from regard.training.fit import fit
from regard.training.run_folder import INITIAL


def write_signals(path: Path, count: int = 30) -> Path:
    """Noise with a step up or down, which no sample shows: the mean of both halves is 0 in both classes."""
    draw = np.random.default_rng(0)
    lines = []
    for n in range(count):
        length = 12 + n % 5
        step = np.where(np.arange(length) < length // 2, -1, 1) * (1 - 2 * (n % 2))
        values = step + draw.normal(0, 0.1, length)
        lines.append("\t".join([("up", "down")[n % 2], *(f"{value:.4f}" for value in values)]))
    path.write_text("\n".join(lines))
    return path


def clips(labels: list[int], classes: tuple[str, ...] = ("a", "b")) -> Clips:
    return Clips([np.ones((2, 1), np.float32)] * len(labels), np.array(labels, np.int64), classes)


def test_splits_of_files(tmp_path: Path) -> None:
    task = ClassifyClip(train=write_signals(tmp_path / "x.tsv"))
    splits = read_splits(task)
    assert [len(part) for part in splits] == [22, 2, 6]
    (tmp_path / "x.tsv").rename(tmp_path / "x_TRAIN.tsv")
    write_signals(tmp_path / "x_TEST.tsv", 8)
    splits = read_splits(ClassifyClip(train=tmp_path / "x_TRAIN.tsv"), ("up", "other", "down"))
    assert [len(part) for part in splits] == [26, 4, 8]
    assert splits.test.labels.tolist() == [0, 2] * 4
    (tmp_path / "x_TEST.tsv").write_text("left\t1\t2\n")
    with pytest.raises(
        ValueError, match="the test split of .*x_TRAIN.tsv has no label that the run knows, only 'left'"
    ):
        read_splits(ClassifyClip(train=tmp_path / "x_TRAIN.tsv"))
    write_signals(tmp_path / "x_TEST.tsv", 8)
    with (tmp_path / "x_TEST.tsv").open("a") as file:
        file.write("\nleft\t1\t2\n")
    splits = read_splits(ClassifyClip(train=tmp_path / "x_TRAIN.tsv"))
    assert splits.test.classes[-1] == "left"
    assert splits.test.labels[-1] == 2


def test_a_folder_to_validate_on_and_classes_that_the_run_never_saw(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for part, names in (("train", "ab"), ("val", "abc"), ("test", "abd")):
        for name in names:
            (tmp_path / part / name).mkdir(parents=True)
            for n in range(4):
                np.save(tmp_path / part / name / f"{n}.npy", draw.integers(0, 255, (2, 4, 4), np.uint8))
    task = ClassifyClip.of(train=tmp_path, width=4, depths=(1,))
    (tmp_path / "run").mkdir()
    problem = task.prepare(tmp_path / "run")
    assert (len(problem.train), len(problem.valid)) == (8, 12)
    note = "labels that the run never saw count as missed: 1 ({}); nll leaves out 4 examples with them"
    assert note.format("'c'") in problem.warnings()
    predictor = task.load().predictor(tmp_path / "run")
    found = task.load().evaluate(predictor, tmp_path / "run", EvaluateImages(), lambda done, count: None)
    assert note.format("'d'") in found.notes
    assert found.scores["accuracy"] <= 100 * 8 / 12


def test_test_frames_of_another_size(tmp_path: Path) -> None:
    for part, size in (("train", 4), ("test", 5)):
        (tmp_path / part / "a").mkdir(parents=True)
        np.save(tmp_path / part / "a" / "x.npy", np.zeros((2, size, size), np.uint8))
    with pytest.raises(
        ValueError, match=r"frames of the test split of .* are \(5, 5, 1\), .*; give both the same, or size"
    ):
        read_splits(ClassifyClip(train=tmp_path))
    assert [clip.shape for clip in read_splits(ClassifyClip(train=tmp_path, size=3)).test.clips] == [(2, 3, 3, 1)]


def test_classes_need_clips() -> None:
    with pytest.raises(ValueError, match="files holds one class, a, and there is nothing to tell apart; add clips of"):
        check_trainable(ClipSplits(*[clips([0, 0], ("a",))] * 3), "files", False)
    short = ClipSplits(clips([0, 1]), clips([0]), clips([1]))
    with pytest.raises(ValueError, match="every class needs a clip to train on and one to validate on, after the test"):
        check_trainable(short, "files", False)
    # a run that starts from another may have no clip of a class, but not a single one
    check_trainable(ClipSplits(clips([0]), clips([0]), clips([0])), "files", True)
    with pytest.raises(ValueError, match="and b of files has too few; add clips of it, or take the class out"):
        check_trainable(short, "files", True)


def test_facts_normalise_every_channel() -> None:
    draw = np.random.default_rng(0)
    values = [np.stack([draw.normal(5, 3, n), np.full(n, 2.0)], -1).astype(np.float32) for n in (400, 600)]
    part = Clips(values, np.array([0, 1]), ("a", "b"))
    facts = ClipFacts.of(ClipSplits(part, part, part))
    x = torch.cat([facts.tensor(clip) for clip in values])
    torch.testing.assert_close(x.mean(0), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(x.std(0, correction=0), torch.tensor([1.0, 0.0]), atol=1e-4, rtol=0)
    with pytest.raises(ValueError, match=r"mean and spread must be of 2 channels, got \(1.0,\) and"):
        ClipFacts(**{**vars(facts), "mean": (1.0,)})
    with pytest.raises(ValueError, match=r"size must be a height and a width, got \(0, 3\)"):
        ClipFacts(**{**vars(facts), "size": (0, 3)})


def test_batches_have_clips_of_similar_length() -> None:
    lengths = np.random.default_rng(0).integers(5, 50, 1001)
    batches = plan_batches(lengths, 10, 0, 3)
    assert sorted(np.concatenate(batches).tolist()) == list(range(1001))
    assert sum(len(rows) * lengths[rows].max() for rows in batches) < 1.1 * lengths.sum()
    again, other = plan_batches(lengths, 10, 0, 3), plan_batches(lengths, 10, 0, 4)
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(batches, other, strict=True))
    assert min(map(len, batches)) > 1


def test_the_baseline_sees_a_frame_and_no_motion() -> None:
    draw = np.random.default_rng(0)
    still = [np.full((3, 8, 8, 1), 200 * (n % 2) + draw.integers(20), np.uint8) for n in range(64)]
    flashing = [np.stack([still[n % 2 ^ k % 2][0] for k in range(4)]) for n in range(64)]
    for made, low, high in ((still, 99, 100), (flashing, 30, 70)):
        part = Clips(made, np.arange(64) % 2, ("a", "b"))
        facts = ClipFacts.of(ClipSplits(part, part, part))
        model = fit_single_frame(part, facts, 0)
        assert low <= single_frame_accuracy(model, part, facts) <= high
        again = fit_single_frame(part, facts, 0)
        assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_signals_are_learned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = ClassifyClip.of(train=write_signals(tmp_path / "x.tsv"), width=4, depths=(1, 1), batch=8, dropout=0.0)
    training = TrainingConfig(steps=25, lr=1e-2, schedule="constant", warmup=1, threads=1, device="cpu")
    *_, last = fit(task, tmp_path / "run", training)
    assert last.reason == "done"
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert "accuracy  100.0" in printed
    assert "a network that sees a single sample, the baseline: accuracy" in printed


def test_a_run_that_starts_from_another_keeps_its_statistics(tmp_path: Path) -> None:
    train = write_signals(tmp_path / "x.tsv")
    source, folder = tmp_path / "source", tmp_path / "run"
    for path in (source, folder / INITIAL):
        path.mkdir(parents=True)
    ClassifyClip(train=train).prepare(source, True)
    before = ClipFacts.read(source)
    (folder / INITIAL / "clips.json").write_bytes((source / "clips.json").read_bytes())
    train.write_text(train.read_text().replace("-", "-3"))
    facts = ClassifyClip(train=train).prepare(folder, True).facts
    assert facts.mean == before.mean
    assert facts.train_sha256 != before.train_sha256
    with pytest.raises(ValueError, match="the train data of .*source has changed"):
        ClassifyClip(train=train).prepare(source, False)
    for name in before.classes:
        (tmp_path / "clips" / name).mkdir(parents=True)
        for n in range(4):
            np.save(tmp_path / "clips" / name / f"{n}.npy", np.full((2, 4, 4), n, np.uint8))
    with pytest.raises(
        ValueError, match=r"have frames of \(4, 4\) and 1 channels, those of the run to start from None"
    ):
        ClassifyClip(train=tmp_path / "clips").prepare(folder, True)


@pytest.mark.parametrize("attention", ["hard", "hard-argmax"])
def test_attention_that_learns_nothing(attention: str) -> None:
    with pytest.raises(ValueError, match="has no gradient that could teach it which frames to choose; try attention="):
        ClassifyClip.of(attention=attention)


def test_a_comparison_varies_attention() -> None:
    variants = ClassifyClip.of(model="transformer").variants(["scaled-dot", "entmax"])
    assert [task.model.attention for task in variants.values()] == ["scaled-dot", "entmax"]  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="--attention belongs to --model frames or transformer, not to cell; choose"):
        ClassifyClip.of(model="cell").variants(["dot"])
