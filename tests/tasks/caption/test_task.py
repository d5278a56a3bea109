"""caption: data, batches, losses, scores and attention; a run is resumed with its own images alone."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from tests.for_each import for_each
from tests.product import first

from regard.attn.call import Need
from regard.data.embedded.scenes import CaptionedImages
from regard.data.images.captions import read_captions
from regard.data.text.special_tokens import PAD
from regard.decoding.search import Beam, Greedy, Sampling
from regard.inference.predictor import labelled_recording
from regard.tasks.caption import task as caption_task
from regard.tasks.caption.options import Caption
from regard.tasks.caption.predictor import Captioner
from regard.tasks.caption.task import (
    caption_scores,
    caption_stats,
    read_captioned,
)
from regard.tasks.shared.image_predictors import ImageInput
from regard.tasks.shared.text_generation import between_marks
from regard.training import checkpoint
from regard.training.config import TrainingConfig
from regard.training.fit import fit

SMALL: dict[str, Any] = {"annotation": 24, "channels": 8, "width": 16, "hidden": 32, "dropout": 0.0}
WHERE = {"top left": (0, 0), "top right": (0, 8), "bottom left": (8, 0), "bottom right": (8, 8)}


@pytest.fixture(scope="module")
def quarters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures with one bright or grey quarter, and two ways to say which."""
    folder = tmp_path_factory.mktemp("quarters")
    lines = []
    for name, (top, left) in WHERE.items():
        for kind, value in (("bright", 255), ("grey", 120), ("dim", 60)):
            pixels = np.zeros((16, 16), np.uint8)
            pixels[top : top + 8, left : left + 8] = value
            file = f"{kind}-{name.replace(' ', '-')}.png"
            Image.fromarray(pixels).save(folder / file)
            lines += [f"{file}\t{kind} {name}", f"{file}\tthe {name} is {kind}"]
    (folder / "all.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "all.tsv"


def of(quarters: Path, **options: Any) -> Caption:
    return Caption.of(train=quarters, valid=quarters, tokens="words", batch=256, **SMALL, **options)


def trained(task: Caption, run: Path, steps: int) -> tuple[Captioner, dict[str, float]]:
    training = TrainingConfig(steps=steps, lr=1e-2, warmup=10, validate_every=steps, log_every=steps, threads=1)
    list(fit(task, run, training))
    captioner = Captioner.of(task, run)
    facts = checkpoint.load(captioner.model, run / "best.safetensors")
    captioner.model.eval()
    return captioner, facts["score"]


@pytest.mark.parametrize("attention", first(["hard", "soft"]))
def test_it_learns(quarters: Path, tmp_path: Path, attention: Any) -> None:
    task = of(quarters, attention=attention)
    captioner, score = trained(task, tmp_path / "run", 80)
    assert score["bleu"] > 90
    assert score["nll"] < 1.0
    some = read_captioned(task, "valid")
    values, said = caption_scores(captioner, some, Greedy())
    assert values["bleu"] == pytest.approx(score["bleu"])
    # one by one as all together, a beam of one as greedy, and draws by their number
    for n in (0, 5):
        assert captioner.describe(some.pixels[n : n + 1])[0][0].text == said[n].text
    assert [one[0].text for one in captioner.describe(some.pixels, Beam(1))] == [one.text for one in said]
    assert all(len(one) == 2 for one in captioner.describe(some.pixels, Beam(4, nbest=2)))
    drawn = captioner.describe(some.pixels, Sampling(3, seed=4))
    again = captioner.describe(some.pixels[7:8], Sampling(3, seed=4), first=7)
    assert [one.text for one in again[0]] == [one.text for one in drawn[7]]
    (aligned,) = captioner.align(some.pixels[:1], said[:1])
    assert len(aligned.target) == len(said[0].tokens) + 1
    torch.testing.assert_close(aligned.weights.sum(-1), torch.ones(len(aligned.target)))
    output, recording = labelled_recording(captioner, ImageInput(some.pixels[0]))
    (aligned,) = captioner.align(some.pixels[:1], [output.best])
    assert recording[0].grid == captioner.grid() == (4, 4)
    assert recording[0].verified
    assert recording.queries == tuple(aligned.target)
    torch.testing.assert_close(recording[0].weights.dense().reshape(-1, 16), aligned.weights)


def test_a_run_goes_on_to_the_same_weights(quarters: Path, tmp_path: Path) -> None:
    """The moving baseline of REINFORCE is part of what is saved."""
    task = of(quarters, attention="hard")

    def run(folder: Path, *steps: int) -> dict[str, torch.Tensor]:
        for n, until in enumerate(steps):
            training = TrainingConfig(steps=until, lr=1e-3, warmup=2, validate_every=100, save_every=3, threads=1)
            list(fit(task, folder, training, resume=n > 0))
        return dict(checkpoint.read(folder / "last.safetensors").under("model."))

    whole, parts = run(tmp_path / "a", 6), run(tmp_path / "b", 3, 6)
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert "baseline" in whole


def test_the_baseline_follows_what_is_earned(quarters: Path, tmp_path: Path) -> None:
    """By the sums of a whole step: a loss is a look, and changes nothing."""
    for attention in ("soft", "hard"):
        problem = of(quarters, attention=attention).prepare(tmp_path)
        model = problem.build_model()
        before = model.baseline.clone()
        problem.loss(model, problem.load_batch(np.arange(7), 0, 1))
        assert torch.equal(model.baseline, before)
        problem.after_step(model, {"nll": 35.0}, 7)
        torch.testing.assert_close(model.baseline, 0.9 * before - 0.5 if attention == "hard" else before)


def test_captions_are_planned_by_length_and_counted(quarters: Path, tmp_path: Path) -> None:
    problem = of(quarters).with_options(batch=60).prepare(tmp_path)
    assert problem.summary == "24 captions of 12 images to train on, 12 images to validate, 14 tokens"
    plans = problem.plan_epoch(0)
    assert sorted(n for plan in plans for n in plan) == list(range(24))
    for planned in plans:
        whole = problem.load_batch(planned, 0, 1)
        parts = [problem.load_batch(planned, rank, 3) for rank in range(3)]
        assert problem.num_terms(whole) == sum(problem.num_terms(part) for part in parts if part is not None)
        assert whole.target.numel() <= 60 + len(planned)
    assert problem.load_batch(plans[0], len(plans[0]), 99) is None
    # short captions come first, the first time; "grey top left" has three words, "the top left is grey" five
    lengths = [max(len(problem.pairs[n][1]) for n in planned) for planned in plans]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) == 2
    assert between_marks([[5, 6], [7]]).tolist() == [[1, 5, 6, 2], [1, 7, 2, 0]]


def test_a_share_is_held_out_of_files_without(quarters: Path) -> None:
    task = Caption.of(train=quarters)
    train, valid = read_captioned(task, "train"), read_captioned(task, "valid")
    assert (len(train), len(valid)) == (11, 1)
    assert read_captioned(task, "test").captions == valid.captions
    assert (
        read_captioned(Caption.of(train=quarters, test=quarters), "test").captions
        == read_captioned(Caption.of(train=quarters, valid=quarters), "train").captions
    )


def test_a_file_is_read_once(quarters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def noted(path: Path, size: int | None) -> CaptionedImages:
        read.append(path)
        return read_captions(path, size)

    monkeypatch.setattr(caption_task, "read_captions", noted)
    Caption.of(train=quarters).prepare(tmp_path)
    assert read == [quarters]


@pytest.mark.parametrize("count", [3, 4])
def test_what_is_known_of_pictures(count: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3, 5, 1), np.uint8)
    one, other = CaptionedImages(pixels, [("a", "b")] * count), CaptionedImages(pixels[1:], [("a",)] * (count - 1))
    stats = caption_stats(one, other)
    assert (stats.height, stats.width, stats.channels) == (3, 5, 1)
    assert stats.mean == pytest.approx(np.median(pixels) / 255, rel=1e-12)
    assert stats.spread == pytest.approx(pixels.std() / 255, rel=1e-12)
    assert stats.sha256 == sha256(pixels.tobytes() + "\n".join(["a\tb"] * count).encode()).hexdigest()
    assert stats.valid_sha256 == caption_stats(other, one).sha256 != stats.sha256


def test_the_task_is_known_and_its_versions_differ() -> None:
    task = Caption.of(attention="hard", entropy=0.1)
    assert (task.model.expected, task.doubly, Caption.of().doubly) == (0.5, None, 0.01)
    assert (Caption.of().tokens, Caption.of(train="a.tsv").tokens) == ("words", "bpe")
    variants = Caption.of().variants(["soft", "hard"])
    assert variants == {"soft": Caption.of(), "hard": Caption.of(attention="hard")}
    # a file of options may hold those of the other attention
    with pytest.raises(ValueError, match="doubly=0.5 belongs to attention='soft', not to 'hard'"):
        Caption.of(doubly=0.5).variants(["hard"])
    task.load().sketch()


def test_a_loss_is_its_parts(quarters: Path, tmp_path: Path) -> None:
    """Soft, by hand: smoothed likelihood and λ Σ_i (1 − Σ_t α_ti)² over the words of each caption alone."""
    for doubly in (0.7, None):
        problem = of(quarters, doubly=doubly, smoothing=0.2).prepare(tmp_path)
        model = problem.build_model()
        batch = problem.load_batch(np.arange(7), 0, 1)
        right = batch.target[:, 1:]
        taught = model.teacher_force(batch.x, batch.target[:, :-1], Need(weights=True))
        logits = model.output(taught.states)[right != PAD]
        want = F.cross_entropy(logits, right[right != PAD], reduction="sum", label_smoothing=0.2)
        for weights, words in zip(taught.weights, (right != PAD).sum(1), strict=True):
            want = want + (0.01 if doubly is None else 0.7) * (1 - weights[:words].sum(0)).square().sum()
        loss = problem.loss(model, batch)
        torch.testing.assert_close(loss.total, want)
        torch.testing.assert_close(loss.sums["nll"], F.cross_entropy(logits, right[right != PAD], reduction="sum"))


def test_a_hard_loss_is_its_parts(quarters: Path, tmp_path: Path) -> None:
    """−log p(y | s) − Σ_t (R_t − b_t) log α_t(s_t) − λ Σ_t H(α_t), a caption and a word at a time."""
    for entropy in (0.3, None):
        problem = of(quarters, attention="hard", expected=0.25, entropy=entropy).prepare(tmp_path)
        model = problem.build_model()
        assert model.decoder.expected == 0.25
        batch = problem.load_batch(np.arange(7), 0, 1)
        right, before = batch.target[:, 1:], model.baseline.item()
        torch.manual_seed(5)
        taught = model.teacher_force(batch.x, batch.target[:, :-1])
        log_p = model.output(taught.states).log_softmax(-1).gather(-1, right[..., None]).squeeze(-1)
        want = torch.zeros(())
        for n, words in enumerate((right != PAD).sum(1).tolist()):
            for t in range(words):
                earned = log_p[n, t:words].sum().detach() - before * (words - t)
                want = want - log_p[n, t] - earned * taught.log_prob[n, t]
                want = want - (0.002 if entropy is None else 0.3) * taught.entropy[n, t]
        torch.manual_seed(5)
        loss = problem.loss(model, batch)
        torch.testing.assert_close(loss.total, want)
        own = (model.decoder.attention.score.energy, model.output.weight)
        for a, b in zip(torch.autograd.grad(loss.total, own), torch.autograd.grad(want, own), strict=True):
            torch.testing.assert_close(a, b)


@for_each(
    ("options", "said"),
    [
        ({"valid": "a.tsv"}, "valid=a.tsv belongs to images of your own; give train=FILE as well"),
        ({"expected": 0.1}, "expected=0.1 belongs to attention='hard', not to 'soft'"),
        ({"doubly": 0.1, "attention": "hard"}, "doubly=0.1 belongs to attention='soft', not to 'hard'"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Caption.of(**options)


def test_what_no_data_can_give_is_said(quarters: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no caption has at most max_length=1 tokens"):
        of(quarters, max_length=1).prepare(tmp_path)
    one = quarters.with_name("one.tsv")
    one.write_text("grey-top-left.png\tgrey\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has 1 picture and too few different ones to hold some out"):
        Caption.of(train=one).prepare(tmp_path)
    with pytest.raises(FileNotFoundError, match="holds no vocabulary"):
        Captioner.of(of(quarters), tmp_path / "nowhere")
    (tmp_path / "tokens.json").write_text("{")
    with pytest.raises(ValueError, match="is no vocabulary"):
        Captioner.of(of(quarters), tmp_path)
