"""classify-text with a pretrained encoder: one option chooses it, and a run does not need its folder any more."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tasks.cases import write_files
from tests.tasks.encoders import masked_lm_run

import regard as library
from regard.cli.main import main
from regard.inference.limits import Limits
from regard.inference.predictor import labelled_recording
from regard.tasks.classify_text.options import ClassifyText
from regard.training.checkpoint import read

STEPS = ["--threads", "1", "--device", "cpu", "--warmup", "1", "--batch", "64", "--log-every", "1"]
TEXTS = ["a good film", "bad. It was long.", "", "it was " * 30]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data")
    write_files(path)
    return path


@pytest.fixture(scope="module")
def trained(folder: Path) -> Callable[..., Path]:
    """A run with an encoder whose folder is deleted after its second step."""

    def run(*options: str) -> Path:
        path = folder / ("run " + " ".join(options)).replace("/", "")
        if not path.exists():
            source = shutil.copytree(folder / "bert", folder / "source")
            assert main(command(folder, path, source, 2, *options)) == 0
            shutil.rmtree(source)
        return path

    return run


def command(folder: Path, out: Path, encoder: Path, steps: int, *options: str) -> list[str]:
    texts = ["--train", str(folder / "texts.txt"), "--encoder", str(encoder)]
    return ["train", "classify-text", *texts, *STEPS, *options, "--steps", str(steps), "--out", str(out)]


def tensors(run: Path) -> dict[str, torch.Tensor]:
    return dict(read(run / "last.safetensors").tensors)


def test_a_run_does_not_need_the_folder(trained: Callable[..., Path], tmp_path: Path, capsys: Any) -> None:
    run = Path(shutil.copytree(trained(), tmp_path / "run"))
    capsys.readouterr()
    assert main(["evaluate", str(run)]) == 0
    assert "bag of words, the baseline: accuracy" in capsys.readouterr().out
    assert main(["predict", str(run), *TEXTS[:2]]) == 0
    assert main(["record", str(run), TEXTS[0], "--out", str(tmp_path / "recording.safetensors")]) == 0
    library.load(run, device="cpu").endpoint(Limits(), run="run", step=2)
    assert main(["train", "--resume", str(run), "--steps", "4"]) == 0


def test_a_resumed_run_is_an_uninterrupted_one(folder: Path, trained: Callable[..., Path], tmp_path: Path) -> None:
    options = ("--freeze", "1", "--layer-decay", "0.5", "--head-rate", "3")
    resumed, source = tmp_path / "run", Path(shutil.copytree(folder / "bert", tmp_path / "source"))
    assert main(command(folder, resumed, source, 1, *options)) == 0
    shutil.rmtree(source)
    assert main(["train", "--resume", str(resumed), "--steps", "2"]) == 0
    once, twice = tensors(trained(*options)), tensors(resumed)
    assert once.keys() == twice.keys()
    assert all(torch.equal(once[key], twice[key]) for key in once)


def test_frozen_parameters_do_not_move(folder: Path, trained: Callable[..., Path]) -> None:
    run = trained("--freeze", "1", "--layer-decay", "0.5", "--head-rate", "3")
    before = library.models.pretrained.load_pretrained(folder / "bert", "BertModel").model.state_dict()  # type: ignore[attr-defined]
    stored = read(run / "last.safetensors")
    after = stored.under("model.encoder.bert.")
    for name, t in after.items():
        is_frozen = not name.startswith(("layers.1", "norm"))
        assert torch.equal(before[name], t) == is_frozen, name
    moments = stored.under("optimizer.")
    assert not any(name.startswith(("encoder.bert.layers.0.", "encoder.bert.embedding")) for name in moments)
    assert any(name.startswith("encoder.bert.layers.1.") for name in moments)


def test_everything_frozen_trains_the_output_alone(folder: Path, tmp_path: Path) -> None:
    assert main(command(folder, tmp_path / "run", folder / "bert", 1, "--freeze", "all")) == 0
    moments = read(tmp_path / "run" / "last.safetensors").under("optimizer.")
    assert {name.rpartition(".")[0] for name in moments} == {"output.weight", "output.bias"}


@pytest.mark.parametrize("pooling", ["mean", "first", "max"])
def test_texts_alone_and_in_a_batch(pooling: str, folder: Path, tmp_path: Path) -> None:
    assert main(command(folder, tmp_path / "run", folder / "bert", 1, "--pooling", pooling)) == 0
    predictor: Any = library.load(tmp_path / "run", device="cpu")
    together = predictor.predict(TEXTS)
    for text, output in zip(TEXTS, together, strict=True):
        (alone,) = predictor.predict([text])
        assert dict(alone.probabilities) == pytest.approx(dict(output.probabilities), abs=1e-5)
    assert [output.is_empty for output in together] == [False, False, True, False]
    picture = tmp_path / "picture.png"
    assert main(["predict", str(tmp_path / "run"), TEXTS[0], "--picture", str(picture)]) == 0


def test_long_texts_are_cut_off_and_counted(trained: Callable[..., Path], capsys: Any) -> None:
    predictor: Any = library.load(trained(), device="cpu")
    assert predictor.max_length == 40, "the position table of the encoder"
    (output,) = predictor.predict([TEXTS[3]])
    assert output.num_cut == 60 - 38
    capsys.readouterr()
    assert main(["predict", str(trained()), TEXTS[3]]) == 0
    assert "1 text was cut off after 40 tokens" in capsys.readouterr().err


def test_recorded_heads_have_word_pieces(trained: Callable[..., Path]) -> None:
    predictor: Any = library.load(trained(), device="cpu")
    _, recording = labelled_recording(predictor, "a trips")
    assert [item.name for item in recording] == [f"encoder.bert.layers.{n}.attention" for n in range(2)]
    assert recording.keys == recording.queries == ("[CLS]", "a", "trip", "##s", "[SEP]")
    assert all(item.verified for item in recording)
    assert all(item.shape[-3:] == (3, 5, 5) for item in recording)


def test_a_run_of_masked_lm_and_a_run_with_an_encoder(folder: Path, tmp_path: Path) -> None:
    source = masked_lm_run(tmp_path / "mlm", tokens="characters", segment=30)
    assert main(command(folder, tmp_path / "first", source, 1)) == 0
    assert main(command(folder, tmp_path / "second", tmp_path / "first", 0 + 1, "--seed", "1")) == 0
    facts = [json.loads((tmp_path / name / "encoder.json").read_text()) for name in ("first", "second")]
    assert [each["source"] for each in facts] == ["mlm", "first"]
    assert facts[0]["weights_sha256"] != facts[1]["weights_sha256"]
    assert {**facts[0], "source": "", "weights_sha256": ""} == {**facts[1], "source": "", "weights_sha256": ""}
    assert main(["evaluate", str(tmp_path / "second")]) == 0


def test_dropped_tokens_are_masks(folder: Path, tmp_path: Path) -> None:
    task = ClassifyText.of(train=folder / "texts.txt", encoder=folder / "bert", word_dropout=0.9, batch=64)
    problem: Any = task.prepare(tmp_path)
    batch = problem.load_batch(problem.plan_epoch(0)[0], 0, 1)
    special = problem.encoder.tokenizer.special
    inside = torch.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
    assert (batch.tokens[:, 0] == problem.encoder.tokenizer.frame.begin[0]).all()
    content = [n for n in batch.tokens[inside].tolist() if n not in special]
    assert content.count(problem.encoder.tokenizer.mask) > len(content) / 2
    assert problem.locate([problem.plan_epoch(0)[0]]).count("[CLS]") == 1
