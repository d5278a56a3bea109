"""Captions: what is read and planned, what is learned, where words point; a run goes on with its own pictures alone."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from regard.attn.call import Need
from regard.data.embedded.scenes import Box, Captioned
from regard.data.images.captions import read_captions
from regard.data.text.special_tokens import PAD
from regard.decoding.search import Beam, Greedy, Sampling
from regard.tasks.caption import task as captioning
from regard.tasks.caption.options import Caption
from regard.tasks.caption.predictor import CaptionAlignment, Captioner, pointing
from regard.tasks.caption.task import evaluate, read, targets
from regard.tasks.registry import TASKS, told
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
    return Caption(train=quarters, valid=quarters, tokens="words", batch=256, **SMALL, **options)


def trained(task: Caption, run: Path, steps: int) -> tuple[Captioner, dict[str, float]]:
    training = TrainingConfig(steps=steps, lr=1e-2, warmup=10, validate_every=steps, log_every=steps, threads=1)
    for _ in fit(task, run, training):
        pass
    captioner = Captioner.of(task, run)
    facts = checkpoint.load(captioner.model, run / "best.safetensors")
    captioner.model.eval()
    return captioner, facts["score"]


@pytest.mark.parametrize("attention", ["soft", "hard"])
def test_it_learns(quarters: Path, tmp_path: Path, attention: Any) -> None:
    task = of(quarters, attention=attention)
    captioner, score = trained(task, tmp_path / "run", 80)
    assert score["bleu"] > 90
    assert score["nll"] < 1.0
    some = read(task, "valid")
    values, said = evaluate(captioner, some, Greedy())
    assert values["bleu"] == pytest.approx(score["bleu"])
    # one by one as all together, a beam of one as greedy, and draws by their number
    for n in (0, 5):
        assert captioner.describe(some.pixels[n : n + 1])[0][0].text == said[n].text
    assert [one[0].text for one in captioner.describe(some.pixels, Beam(1))] == [one.text for one in said]
    assert all(len(one) == 2 for one in captioner.describe(some.pixels, Beam(4, nbest=2)))
    drawn = captioner.describe(some.pixels, Sampling(3, seed=4))
    again = captioner.describe(some.pixels[7:8], Sampling(3, seed=4), first=7)
    assert [one.text for one in again[0]] == [one.text for one in drawn[7]]
    (looked,) = captioner.look(some.pixels[:1], said[:1])
    assert len(looked.pieces) == len(said[0].tokens) + 1
    torch.testing.assert_close(looked.weights.sum(-1), torch.ones(len(looked.pieces)))
    recording = captioner.recorded(some.pixels[0], said[0])
    assert recording[0].grid == captioner.grid() == (4, 4)
    assert recording[0].verified
    assert recording.queries == tuple(looked.pieces)
    torch.testing.assert_close(recording[0].weights.dense().reshape(-1, 16), looked.weights)


def test_a_run_goes_on_to_the_same_weights(quarters: Path, tmp_path: Path) -> None:
    """The moving baseline of REINFORCE is part of what is saved."""
    task = of(quarters, attention="hard")

    def run(folder: Path, *steps: int) -> dict[str, torch.Tensor]:
        for n, until in enumerate(steps):
            training = TrainingConfig(steps=until, lr=1e-3, warmup=2, validate_every=100, save_every=3, threads=1)
            for _ in fit(task, folder, training, resume=n > 0):
                pass
        return dict(checkpoint.read(folder / "last.safetensors").under("model."))

    whole, parts = run(tmp_path / "a", 6), run(tmp_path / "b", 3, 6)
    assert whole.keys() == parts.keys()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert "baseline" in whole


def test_the_baseline_follows_what_is_earned(quarters: Path, tmp_path: Path) -> None:
    """By the sums of a whole step: a loss is a look, and changes nothing."""
    for attention in ("soft", "hard"):
        work = of(quarters, attention=attention).prepare(tmp_path)
        model = work.model()
        before = model.baseline.clone()
        work.loss(model, work.batch(np.arange(7), 0, 1))
        assert torch.equal(model.baseline, before)
        work.expect(model, {"nll": 35.0}, 7)
        torch.testing.assert_close(model.baseline, 0.9 * before - 0.5 if attention == "hard" else before)


def test_captions_are_planned_by_length_and_counted(quarters: Path, tmp_path: Path) -> None:
    work = replace(of(quarters), batch=60).prepare(tmp_path)
    assert work.told == "24 captions of 12 pictures to train on, 12 pictures to validate, 14 tokens"
    plans = work.batches(0)
    assert sorted(n for plan in plans for n in plan) == list(range(24))
    for planned in plans:
        whole = work.batch(planned, 0, 1)
        parts = [work.batch(planned, rank, 3) for rank in range(3)]
        assert work.count(whole) == sum(work.count(part) for part in parts if part is not None)
        assert whole.target.numel() <= 60 + len(planned)
    assert work.batch(plans[0], len(plans[0]), 99) is None
    # short captions come first, the first time; "grey top left" has three words, "the top left is grey" five
    lengths = [max(len(work.pairs[n][1]) for n in planned) for planned in plans]
    assert lengths == sorted(lengths)
    assert len(set(lengths)) == 2
    assert targets([[5, 6], [7]]).tolist() == [[1, 5, 6, 2], [1, 7, 2, 0]]


def test_a_share_is_held_out_of_files_without(quarters: Path) -> None:
    task = Caption(train=quarters)
    train, valid = read(task, "train"), read(task, "valid")
    assert (len(train), len(valid)) == (11, 1)
    assert valid.captions[0] not in train.captions
    assert read(task, "test").captions == valid.captions
    assert (
        read(Caption(train=quarters, test=quarters), "test").captions
        == read(Caption(train=quarters, valid=quarters), "train").captions
    )


def test_other_pictures_are_not_gone_on_with(quarters: Path, tmp_path: Path) -> None:
    of(quarters).prepare(tmp_path)
    of(quarters).prepare(tmp_path, new=False)
    other = quarters.with_name("other.tsv")
    other.write_text("bright-top-left.png\tbright\ngrey-top-left.png\tgrey\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"the images of .* have changed: they were 16 × 16; put the files back"):
        of(other).prepare(tmp_path, new=False)
    with pytest.raises(ValueError, match="is validated on have changed, and its best weights were chosen by others; "):
        replace(of(quarters), valid=other).prepare(tmp_path, new=False)
    # a run of before, which did not note them
    facts = json.loads((tmp_path / "images.json").read_text())
    del facts["valid_sha256"]
    (tmp_path / "images.json").write_text(json.dumps(facts))
    replace(of(quarters), valid=other).prepare(tmp_path, new=False)


def test_a_file_is_read_once(quarters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    def noted(path: Path, size: int | None) -> Captioned:
        read.append(path)
        return read_captions(path, size)

    monkeypatch.setattr(captioning, "read_captions", noted)
    Caption(train=quarters).prepare(tmp_path)
    assert read == [quarters]


@pytest.mark.parametrize("count", [3, 4])
def test_what_is_known_of_pictures(count: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 3, 5, 1), np.uint8)
    one, other = Captioned(pixels, [("a", "b")] * count), Captioned(pixels[1:], [("a",)] * (count - 1))
    facts = captioning._facts(one, other)
    assert (facts.height, facts.width, facts.channels) == (3, 5, 1)
    assert facts.mean == pytest.approx(np.median(pixels) / 255, rel=1e-12)
    assert facts.spread == pytest.approx(pixels.std() / 255, rel=1e-12)
    # as runs of before have it
    assert facts.sha256 == sha256(pixels.tobytes() + "\n".join(["a\tb"] * count).encode()).hexdigest()
    assert facts.valid_sha256 == captioning._facts(other, one).sha256 != facts.sha256


def test_pointing() -> None:
    boxes = (Box("two", 0, 0, 8, 8), Box("two", 0, 24, 8, 32), Box("nine", 24, 24, 32, 32))
    weights = torch.zeros(6, 16)
    for step, place in enumerate((5, 0, 5, 3, 12, 15)):
        weights[step, place] = 1
    looked = CaptionAlignment(["the", "two", "the", "▁two,", "nine", "<eos>"], weights)
    assert pointing([looked], [boxes], (4, 4), (32, 32)) == pytest.approx(200 / 3)
    assert pointing([looked], [boxes], (4, 4), (32, 32), np.random.default_rng(0)) == pytest.approx(200 / 3)
    # a word for what is not there, or once more than it is there, points nowhere
    assert pointing([CaptionAlignment(["five"], weights[1:2])], [boxes], (4, 4), (32, 32)) == 0
    assert pointing([CaptionAlignment(["nine", "nine"], weights[[5, 5]])], [boxes], (4, 4), (32, 32)) == 50
    assert pointing([CaptionAlignment(["the"], weights[:1])], [boxes], (4, 4), (32, 32)) == 0


def test_the_task_is_known_and_its_versions_differ() -> None:
    assert TASKS["caption"] is Caption
    task = Caption(attention="hard", entropy=0.1)
    assert told("Caption", json.loads(json.dumps(vars(task))), "run") == task
    assert task.choice("expected") == 0.5
    assert Caption().choice("tokens") == "words"
    assert Caption().ahead(Path(), True) == "composing scenes of written digits"
    assert Caption(train=Path("a.tsv")).ahead(Path(), True) == ""
    assert {name: one.attention for name, one in Caption().versions(["soft", "hard"]).items()} == {
        "soft": "soft",
        "hard": "hard",
    }
    task.rehearse()


def test_a_loss_is_its_parts(quarters: Path, tmp_path: Path) -> None:
    """Soft, by hand: smoothed likelihood and λ Σ_i (1 − Σ_t α_ti)² over the words of each caption alone."""
    for doubly in (0.7, None):
        work = of(quarters, doubly=doubly, smoothing=0.2).prepare(tmp_path)
        model = work.model()
        batch = work.batch(np.arange(7), 0, 1)
        right = batch.target[:, 1:]
        taught = model.teacher_force(batch.x, batch.target[:, :-1], Need(weights=True))
        logits = model.output(taught.states)[right != PAD]
        want = F.cross_entropy(logits, right[right != PAD], reduction="sum", label_smoothing=0.2)
        for weights, words in zip(taught.weights, (right != PAD).sum(1), strict=True):
            want = want + (0.01 if doubly is None else 0.7) * (1 - weights[:words].sum(0)).square().sum()
        loss = work.loss(model, batch)
        torch.testing.assert_close(loss.total, want)
        torch.testing.assert_close(loss.sums["nll"], F.cross_entropy(logits, right[right != PAD], reduction="sum"))


def test_a_hard_loss_is_its_parts(quarters: Path, tmp_path: Path) -> None:
    """−log p(y | s) − Σ_t (R_t − b_t) log α_t(s_t) − λ Σ_t H(α_t), a caption and a word at a time."""
    for entropy in (0.3, None):
        work = of(quarters, attention="hard", expected=0.25, entropy=entropy).prepare(tmp_path)
        model = work.model()
        assert model.decoder.expected == 0.25
        batch = work.batch(np.arange(7), 0, 1)
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
        loss = work.loss(model, batch)
        torch.testing.assert_close(loss.total, want)
        own = (model.decoder.attention.score.energy, model.output.weight)
        for a, b in zip(torch.autograd.grad(loss.total, own), torch.autograd.grad(want, own), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data": "cats"}, "unknown data 'cats'; known are: scenes"),
        ({"attention": "middling"}, "unknown attention 'middling'; known are: soft, hard"),
        ({"tokens": "letters"}, "unknown tokens 'letters'"),
        ({"data": "scenes", "train": "a.tsv"}, "data='scenes' and train=a.tsv exclude each other"),
        ({"valid": "a.tsv"}, "valid=a.tsv belongs to pictures of your own; give train=FILE as well"),
        ({"size": 4}, "size=4 belongs to pictures of your own"),
        ({"expected": 0.1}, "expected=0.1 belongs to attention='hard', not to 'soft'"),
        ({"doubly": 0.1, "attention": "hard"}, "doubly=0.1 belongs to attention='soft', not to 'hard'"),
        ({"doubly": -1.0}, "doubly must be 0 or more, got -1.0; try doubly="),
        ({"expected": 1.5, "attention": "hard"}, "expected must be a chance from 0 to 1, got 1.5"),
        ({"hidden": 0}, "hidden must be 1 or more, got 0"),
        ({"seed": -3}, "seed must be 0 or more, got -3; try seed=0"),
        ({"dropout": 1.0}, "dropout must be 0 or more and below 1, got 1.0"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Caption(**options)


def test_what_no_data_can_give_is_said(quarters: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no caption has at most max_length=1 tokens"):
        of(quarters, max_length=1).prepare(tmp_path)
    one = quarters.with_name("one.tsv")
    one.write_text("grey-top-left.png\tgrey\n", encoding="utf-8")
    with pytest.raises(ValueError, match="names 1 picture, and one is needed to validate on"):
        Caption(train=one).prepare(tmp_path)
    with pytest.raises(FileNotFoundError, match="holds no vocabulary"):
        Captioner.of(of(quarters), tmp_path / "nowhere")
    (tmp_path / "tokens.json").write_text("{")
    with pytest.raises(ValueError, match="is no vocabulary"):
        Captioner.of(of(quarters), tmp_path)
