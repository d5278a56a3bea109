"""ClipClassifier: inputs by path, line and split; outputs of single clips and of batches; the share on the evidence."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.for_each import for_each

from regard.data.clips.labelled import Clips
from regard.inference.predictor import labelled_recording
from regard.models.clips.clip_model import ClipModel
from regard.tasks.classify_clip.data import ClipFacts, ClipSplits
from regard.tasks.classify_clip.maps import clip_maps
from regard.tasks.classify_clip.options import ClassifyClip, PredictClips
from regard.tasks.classify_clip.predictor import ClipClassifier, ClipInput


def splits(is_signal: bool = False) -> ClipSplits:
    draw = np.random.default_rng(0)
    size = (1,) if is_signal else (7, 11, 1)
    made = [draw.integers(0, 256, (length, *size)).astype(np.uint8) for length in (3, 5, 2, 4)]
    clips = [clip.astype(np.float32) if is_signal else clip for clip in made]
    intervals = np.array([[0, 1], [2, 4], [0, 0], [1, 3]])
    part = Clips(clips, np.array([0, 1, 2, 0]), ("cat", "dog <b>", "ねこ"), intervals)
    return ClipSplits(part, part, part)


def classifier(is_signal: bool = False, **options: object) -> ClipClassifier:
    torch.manual_seed(0)
    facts = ClipFacts.of(splits(is_signal))
    sizes = {} if options.get("model") == "transformer" else {"width": 3, "depths": (1,)}
    model = ClassifyClip.of(**sizes, **options).model.build(1, facts.size, 3)
    return ClipClassifier(model.eval(), facts, lambda: splits(is_signal))


def test_text_json_and_growing() -> None:
    predictor = classifier(causal=True)
    given = predictor.read("test:1")
    (output,) = predictor.predict([given], PredictClips(top=2, growing=True))
    assert len(output.growing) == 5
    assert output.growing[-1] == pytest.approx(output.classes[0]) or output.growing[-1][0] == output.classes[0][0]
    for end, (name, p) in enumerate(output.growing, 1):
        (alone,) = predictor.predict([ClipInput(given.clip[:end])])
        assert alone.classes[0][0] == name
        assert alone.classes[0][1] == pytest.approx(p, abs=1e-5)
    shown = [f"{name} {100 * p:.1f} %" for name, p in output.classes[:2]]
    steps = ", ".join(f"{n}: {name} {100 * p:.1f} %" for n, (name, p) in enumerate(output.growing, 1))
    assert predictor.text(output) == "\t".join([*shown, steps])
    assert predictor.json(output) == {
        "classes": dict(output.classes),
        "growing": [{"class": name, "probability": p} for name, p in output.growing],
    }
    with pytest.raises(ValueError, match="--growing needs a model that reads no later frame; train one with --causal"):
        classifier().predict([given], PredictClips(growing=True))


def test_the_evidence_is_the_share_on_the_intervals() -> None:
    predictor, clips = classifier(attention="uniform"), splits().test
    # clips of 3, 5 and 4 frames, with intervals of 1, 2 and 2; the empty one does not count
    assert predictor.evidence(clips) == pytest.approx(100 * (1 / 3 + 2 / 5 + 2 / 4) / 3)

    class Blind(ClipModel):
        def attend(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
            return predictor.model.attend(x, lengths)._replace(weights=None)

        def growing_logits(self, x: torch.Tensor) -> torch.Tensor:
            raise AssertionError

    blind = Blind()
    blind.register_parameter("scale", torch.nn.Parameter(torch.ones(1)))
    assert ClipClassifier(blind, predictor.facts).evidence(clips) is None


def test_clips_by_path_and_by_split(tmp_path: Path) -> None:
    predictor = classifier()
    np.save(tmp_path / "x.npy", splits().test.clips[0])
    assert np.array_equal(predictor.read(str(tmp_path / "x.npy")).clip, splits().test.clips[0])
    Image.new("RGB", (30, 20)).save(
        tmp_path / "x.gif", save_all=True, append_images=[Image.new("RGB", (30, 20), "white")]
    )
    assert predictor.read(str(tmp_path / "x.gif")).clip.shape == (2, 7, 11, 1)
    given = predictor.read("valid:2")
    assert (given.name, len(given.clip)) == ("valid:2", 2)
    (output,) = predictor.predict([given])
    assert predictor.margin(output) >= 0
    (tmp_path / "x.csv").write_text("1,2,3\n")
    np.save(tmp_path / "y.npy", np.zeros(5))
    for argument, sentence in {
        "test:4": "test:4 is behind the last of 4 clips; name one up to test:3",
        f"{tmp_path}/x.csv": "x.csv holds signals, and this run reads pictures; name a folder of frames, or a GIF",
        f"{tmp_path}/y.npy": "y.npy holds a signal, and this run reads pictures",
        "tests:4": "there is no file tests:4",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            predictor.read(argument)


def test_signals_by_path_and_by_line(tmp_path: Path) -> None:
    predictor = classifier(is_signal=True)
    one, many = tmp_path / "one.csv", tmp_path / "many.tsv"
    one.write_text("1,2,3\n")
    many.write_text("a\t1\t2\n\nb\t3\t4\t5\n")
    np.save(tmp_path / "x.npy", np.arange(4.0))
    np.save(tmp_path / "two.npy", np.zeros((4, 2)))
    np.save(tmp_path / "pictures.npy", np.zeros((4, 2, 3), np.uint8))
    assert predictor.read(str(one)).clip.tolist() == [[1], [2], [3]]
    assert predictor.read(f"{many}:3").clip.tolist() == [[3], [4], [5]]
    assert predictor.read(str(tmp_path / "x.npy")).clip[:, 0].tolist() == [0, 1, 2, 3]
    many.write_text("1\t2\n3\t4\n")
    for argument, sentence in {
        str(many): "many.tsv holds 2 signals, and one is predicted at a time; name a labelled line of it, such as",
        f"{one}:7": "line 7 of .*one.csv holds no signal; name another line",
        str(tmp_path): "is no signal, and this run reads signals; name a .csv, .tsv, .ts or .npy file",
        str(tmp_path / "two.npy"): "two.npy has 2 channels, and this run reads signals of 1 channel; name another file",
        str(tmp_path / "pictures.npy"): "pictures.npy has pictures, and this run reads signals of 1 channel",
    }.items():
        with pytest.raises(ValueError, match=sentence):
            predictor.read(argument)


@for_each(
    ("is_signal", "options", "steps", "places"),
    [
        (False, {}, True, (4, 6)),
        (False, {"attention": "multi-head"}, True, (4, 6)),
        (False, {"model": "transformer", "patch": 4}, True, (2, 3)),
        (False, {"model": "cell"}, False, (4, 6)),
        (False, {"model": "convnet", "gate": "cbam"}, False, (4, 6)),
        (False, {"model": "convnet", "gate": "se"}, False, None),
        (True, {}, True, None),
        (True, {"model": "transformer"}, True, None),
        (True, {"model": "cell"}, False, None),
        (True, {"model": "convnet", "gate": "simam"}, False, None),
    ],
)
def test_maps_and_pictures(
    is_signal: bool, options: dict[str, str], steps: bool, places: tuple[int, int] | None, tmp_path: Path
) -> None:
    predictor = classifier(is_signal, **options)
    given = predictor.read("test:1")
    output, recording = labelled_recording(predictor, given)
    assert all(item.verified for item in recording)
    maps = clip_maps(recording, predictor.model, len(given.clip), predictor.facts.size)
    assert maps.verified
    assert (maps.steps is not None) == steps
    if maps.steps is not None:
        weights = predictor.model.attend(*predictor.tensors([given])).weights
        torch.testing.assert_close(maps.steps, weights[0].detach())
    assert (None if maps.places is None else tuple(maps.places.shape)) == (None if places is None else (5, *places))
    path = predictor.draw(recording, given, output, tmp_path / "x.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_picture_needs_attention(tmp_path: Path) -> None:
    for is_signal in (False, True):
        predictor = classifier(is_signal, model="convnet")
        with pytest.raises(ValueError, match="--picture draws attention, and this model has none; leave it out"):
            predictor.session(None, tmp_path / "x.png")
