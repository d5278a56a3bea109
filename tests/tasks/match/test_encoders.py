"""Pretrained encoders in the task match: frozen vectors, both texts as one, one encoder per text; resumed runs."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tests.for_each import for_each
from tests.tasks.encoders import bert_folder, masked_lm_run

import regard
from regard.cli.main import main
from regard.inference.predictor import labelled_recording
from regard.models.matching.encoded_pair import CoMatcher, EncodedPairModel, PairEncoder
from regard.tasks.match.encoders import EncoderReader, FrozenVectors
from regard.tasks.match.options import Match
from regard.training.checkpoint import read as read_checkpoint

STEPS = ["--batch", "64", "--threads", "1", "--device", "cpu", "--warmup", "1", "--validate-every", "2"]
MODELS = {
    "frozen": ["--hidden", "5"],
    "frozen decomposable": ["--model", "decomposable", "--width", "6"],
    "pair": ["--model", "pair"],
    "co-encoder": ["--model", "co-encoder", "--width", "6"],
    "frozen co-encoder": ["--model", "co-encoder", "--width", "6", "--freeze", "all", "--joint-attention", "additive"],
    "frozen levels": ["--hidden", "5", "--levels", "0", "2"],
    "levels": ["--model", "co-encoder", "--width", "6", "--levels", "0", "1"],
    "two encoders": ["--model", "co-encoder", "--width", "6", "--second-encoder", "SECOND"],
    "two frozen encoders": ["--model", "co-encoder", "--width", "6", "--freeze", "all", "--second-encoder", "SECOND"],
}
every_model = for_each("options", MODELS.values(), ids=MODELS, share=0.34)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("encoders")
    bert_folder(path / "bert")
    masked_lm_run(path / "masked")
    words = ["a good film", "it was bad", "to trip", "bad film to it", "a trip", "good good"]
    lines = [f"{('same', 'other')[n % 2]}\t{a}\t{a if n % 2 else b}\n" for n, a in enumerate(words) for b in words[:4]]
    (path / "pairs.tsv").write_text("".join(lines))
    return path


def train(folder: Path, options: Sequence[str], out: Path, steps: int) -> None:
    given = [str(folder / "masked") if option == "SECOND" else option for option in options]
    args = ["--train", str(folder / "pairs.tsv"), "--encoder", str(folder / "bert"), *given, *STEPS]
    assert main(["train", "match", *args, "--steps", str(steps), "--out", str(out)]) == 0


@every_model
def test_a_run_with_an_encoder(folder: Path, tmp_path: Path, options: Sequence[str]) -> None:
    train(folder, options, tmp_path / "once", 3)
    train(folder, options, tmp_path / "twice", 1)
    assert main(["train", "--resume", str(tmp_path / "twice"), "--steps", "3"]) == 0
    once, twice = (read_checkpoint(tmp_path / name / "last.safetensors").tensors for name in ("once", "twice"))
    assert once.keys() == twice.keys()
    assert all(torch.equal(once[key], twice[key]) for key in once)
    predictor = regard.load(tmp_path / "once", device="cpu")
    inputs = ["a good film\tit was", "bad\ta trip to a film", "it\tto"]
    together = [dict(each.probabilities) for each in predictor.predict(inputs)]
    for n, text in enumerate(inputs):
        (alone,) = predictor.predict([text])
        assert dict(alone.probabilities) == pytest.approx(together[n], abs=1e-5)
    output, recording = labelled_recording(predictor, inputs[0])
    assert all(item.verified for item in recording)
    assert {"good", "film"} <= {*recording.queries}
    assert predictor.draw(recording, inputs[0], output, tmp_path / "x.png").stat().st_size > 100
    assert main(["evaluate", str(tmp_path / "once")]) == 0


def test_the_files_of_a_second_encoder_are_those_of_the_run(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(folder, ["--model", "co-encoder", "--width", "6", "--second-encoder", "SECOND"], tmp_path / "run", 1)
    changed = tmp_path / "run" / "second" / "encoder.json"
    changed.write_text(changed.read_text() + " ")
    capsys.readouterr()
    assert main(["train", "--resume", str(tmp_path / "run"), "--steps", "2"]) == 2
    assert f"{changed} has changed since the training wrote it" in capsys.readouterr().err


def test_frozen_states_are_those_of_the_encoder(folder: Path, tmp_path: Path) -> None:
    task = Match.of(train=folder / "pairs.tsv", encoder=folder / "bert", hidden=4, batch=64)
    (tmp_path / "run").mkdir()
    problem = task.prepare(tmp_path / "run")
    model = problem.build_model().train()
    assert not any(p.requires_grad for p in model.encoder.parameters())
    planned = problem.plan_epoch(0)[0]
    batch = problem.load_batch(planned, 0, 1)
    states = problem.vectors.pairs(model, batch.inputs)
    first, second = model.encoders
    for found, tokens, lengths, encoder in (
        (states.first, batch.inputs.first, states.first_lengths, first),
        (states.second, batch.inputs.second, states.second_lengths, second),
    ):
        for n, length in enumerate(lengths.tolist()):
            alone = encoder(tokens[n : n + 1, :length], lengths[n : n + 1])[0]
            torch.testing.assert_close(found[n, :length], alone)
            assert not found[n, length:].any()
    # other batches before it do not change its bits
    again = task.prepare(tmp_path / "run")
    for other in problem.plan_epoch(1):
        again.vectors.pairs(model, again.load_batch(other, 0, 1).inputs)
    later = again.vectors.pairs(model, batch.inputs)
    assert later.first.equal(states.first)
    assert later.second.equal(states.second)


def test_states_beyond_the_memory_are_not_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Match.of(train=folder / "pairs.tsv", encoder=folder / "bert", hidden=4, batch=64, dropout=0.0)
    (tmp_path / "run").mkdir()
    kept = task.prepare(tmp_path / "run")
    monkeypatch.setattr("regard.tasks.match.encoders.MOST_BYTES", 100)
    anew = task.prepare(tmp_path / "run")
    assert isinstance(kept.vectors, FrozenVectors)
    assert anew.vectors is None
    model = kept.build_model().train()
    batch = kept.load_batch(kept.plan_epoch(0)[0], 0, 1)
    torch.testing.assert_close(kept.loss(model, batch).total, anew.loss(model, batch).total)


def test_rates_of_both_encoders(folder: Path, tmp_path: Path) -> None:
    for name, model in (("pair", {}), ("co-encoder", {"second_encoder": folder / "masked", "width": 6})):
        task = Match.of(
            train=folder / "pairs.tsv", encoder=folder / "bert", model=name, layer_decay=0.5, head_rate=8.0, **model
        )
        (tmp_path / name).mkdir()
        built = task.prepare(tmp_path / name).build_model()
        assert isinstance(built, PairEncoder | EncodedPairModel)
        assert built.lr_multipliers["encoder.bert.layers.0"] == 0.5
        heads = {"feed", "output"} if name == "pair" else {"matcher"}
        assert all(built.lr_multipliers[head] == 8.0 for head in heads)
        if name == "co-encoder":
            assert built.lr_multipliers["second.bert.layers.0"] == 0.5
            assert isinstance(built.matcher, CoMatcher)


def test_pair_has_two_types_of_tokens(folder: Path, tmp_path: Path) -> None:
    task = Match.of(train=folder / "pairs.tsv", encoder=folder / "bert", model="pair")
    (tmp_path / "run").mkdir()
    problem = task.prepare(tmp_path / "run")
    (tokens,) = problem.reader.tokenize(["a film"], ["bad"])
    assert problem.reader.names(tokens) == (["[CLS]", "a", "film", "[SEP]", "bad", "[SEP]"], ())
    assert problem.reader.inputs([tokens]).types.tolist() == [[0, 0, 0, 0, 1, 1]]


def test_options_that_exclude_each_other(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["train", "match", "--train", str(folder / "pairs.tsv"), "--encoder", str(folder / "bert"), "--steps", "1"]
    for options, message in (
        (["--embedding", "7"], "--embedding 7 is of trained vectors"),
        (["--word-dropout", "0.1"], "--word-dropout 0.1 drops words, and a pretrained encoder reads tokens of its own"),
        (["--model", "bag-of-words"], "--encoder"),
        (["--model", "pair", "--freeze", "9"], "freeze 9 is more than the 2 layers"),
        (
            ["--levels", "0", "3"],
            "--levels must be from 0 to 2, the layers of the encoder, got (0, 3); try --levels 0 2",
        ),
    ):
        assert main([*base, *options, "--out", str(tmp_path / "run")]) == 2
        assert message in capsys.readouterr().err
    assert main(["train", "match", "--levels", "1", "--steps", "1"]) == 2
    assert (
        "--levels 1 are layers of an encoder, and there is none; give --encoder FOLDER as well"
        in capsys.readouterr().err
    )
    assert main(["train", "match", "--model", "pair", "--steps", "1"]) == 2
    assert "--encoder" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["esim", "pair"])
def test_a_text_beyond_the_encoder(folder: Path, tmp_path: Path, model: str) -> None:
    task = Match.of(train=folder / "pairs.tsv", encoder=folder / "bert", model=model)
    (tmp_path / "run").mkdir()
    reader = task.prepare(tmp_path / "run").reader
    with pytest.raises(ValueError, match=r"the text 'a a .*' has \d+ tokens more than the 40 that the encoder reads"):
        reader.tokenize(["a " * 60], ["b"])


def test_one_store_for_a_shared_encoder(folder: Path, tmp_path: Path) -> None:
    for second, is_shared in ((None, True), (folder / "masked", False)):
        out = tmp_path / str(is_shared)
        out.mkdir()
        task = Match.of(
            train=folder / "pairs.tsv", encoder=folder / "bert", model="co-encoder", freeze="all", second_encoder=second
        )
        problem = task.prepare(out)
        assert isinstance(problem.reader, EncoderReader)
        assert (problem.vectors.sides[0] is problem.vectors.sides[1]) == is_shared
