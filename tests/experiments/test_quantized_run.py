"""regard quantize and --quantization: runs with 8-bit weights, from the command line."""

import json
from pathlib import Path

import pytest
import torch
from tests.cli.conftest import Refused, Regard, train

import regard as package
from regard.attn.quantized_linear import QuantizedLinear
from regard.cli.main import main
from regard.experiments import quantized_run
from regard.interop.quantize import is_quantized
from regard.tasks.loading import load_run
from regard.training.run_folder import BEST, QUANTIZATION


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "pairs.tsv").write_text("a b c\tc b a\na b\tb a\nc a\ta c\nb\tb\n" * 5, encoding="utf-8")
    options = "--tokens words --model transformer --width 32 --layers 1 --feed 64 --valid-lines 5 --metric nll"
    steps = "--threads 1 --device cpu --steps 2 --warmup 1"
    return train(folder / "run", "translate", f"{options} {steps}", "--train", folder / "pairs.tsv")


@pytest.fixture(scope="module")
def quantized(run: Path) -> Path:
    out = run.parent / "int8"
    assert main(["quantize", str(run), "--out", str(out)]) == 0
    return out


def test_the_run_records_its_loss_and_is_used_as_any_other(run: Path, quantized: Path, regard: Regard) -> None:
    facts = json.loads((quantized / QUANTIZATION).read_text(encoding="utf-8"))
    assert facts["metric"] == "nll"
    assert facts["loss"] == pytest.approx(facts["after"]["nll"] - facts["before"]["nll"])
    assert abs(facts["loss"]) < 0.02 * facts["before"]["nll"]
    assert "encoder.0.feed.inner" in facts["errors"]
    assert all(0 < error < 0.03 for error in facts["errors"].values())
    assert (quantized / BEST).stat().st_size < 0.5 * (run / BEST).stat().st_size
    loaded = load_run(quantized, device="cpu")
    assert isinstance(loaded.predictor.model.encoder[0].feed.inner, QuantizedLinear)  # type: ignore[union-attr]
    assert len(regard("translate", quantized, "a b c").out.splitlines()) == 1
    assert json.loads(regard("evaluate", quantized, "--json").out)["step"] == 2


def test_errors_are_of_real_inputs(run: Path) -> None:
    model = load_run(run, device="cpu").predictor.model
    with quantized_run.first_inputs(model) as inputs, torch.no_grad():
        model(torch.tensor([[5, 6]]), torch.tensor([2]), torch.tensor([[1, 5]]))
    assert inputs["encoder.0.feed.inner"].shape == (2, 32)
    assert not any(module._forward_pre_hooks for module in model.modules())
    drawn, real = quantized_run.layer_errors(model, {}), quantized_run.layer_errors(model, inputs)
    assert drawn.keys() == real.keys()
    assert drawn["encoder.0.feed.inner"] != real["encoder.0.feed.inner"]


def test_any_run_is_rounded_on_load(run: Path, quantized: Path, regard: Regard, refused: Refused) -> None:
    rounded = regard("translate", run, "a b c", "--quantization", "int8")
    assert rounded.code == 0
    assert regard("translate", quantized, "a b c").out == rounded.out
    assert is_quantized(package.load(run, device="cpu", quantization="int8").model)
    assert "int8" in refused("translate", run, "a", "--quantization", "int4")
    with pytest.raises(ValueError, match="quantization"):
        package.load(run, quantization="int4")


def test_layers_that_lose_too_much_stay(
    run: Path, quantized: Path, tmp_path: Path, regard: Regard, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = json.loads((quantized / QUANTIZATION).read_text(encoding="utf-8"))["errors"]
    most = sorted(errors.values())[len(errors) // 2]
    printed = json.loads(regard("quantize", run, "--out", tmp_path / "json", "--json").out)
    assert (printed["out"], printed["errors"]) == (str(tmp_path / "json"), errors)
    table = regard("quantize", run, "--out", tmp_path / "few", "--most-error", most).out
    assert "8 bits" in table
    assert "float32   its error is" in table
    kept = json.loads((tmp_path / "few" / QUANTIZATION).read_text(encoding="utf-8"))["kept"]
    names = [name for name, reason in kept.items() if reason.startswith("its error is")]
    assert names
    assert not isinstance(load_run(tmp_path / "few").predictor.model.get_submodule(names[0]), QuantizedLinear)

    def worse(problem: object, model: object) -> object:
        result = validate(problem, model)  # type: ignore[arg-type]
        values = {**result.values, "nll": 2 * result.value} if is_quantized(model) else result.values  # type: ignore[arg-type]
        return type(result)(values, result.main, result.higher_is_better)

    validate = quantized_run._validate
    monkeypatch.setattr(quantized_run, "_validate", worse)
    sentence = "whichever layers stay in float32; allow more, such as --tolerance"
    assert sentence in refused("quantize", run, "--out", tmp_path / "none")


def test_errors(run: Path, quantized: Path, tmp_path: Path, refused: Refused) -> None:
    untrained = "has 8-bit weights, which cannot be trained; take the run that it was made from"
    for words, sentence in (
        (
            ["quantize", run],
            "--out is missing: regard quantize --out FOLDER RUN; regard quantize --help lists the options",
        ),
        (["quantize", run, "--out", quantized], "holds a run already; name a new folder"),
        (["quantize", run, "--out", run.parent], "is not empty; take a new folder"),
        (["quantize", quantized, "--out", tmp_path / "new"], "has 8-bit weights already; name the run that"),
        (["quantize", run, "--out", tmp_path / "new", "--tolerance", -1], "must be 0 or more and finite"),
        (["train", "--resume", quantized], untrained),
        (["train", "translate", "--init-from", quantized, "--train", run.parent / "pairs.tsv"], untrained),
    ):
        assert sentence in refused(*words)
    released = tmp_path / "released"
    released.mkdir()
    (released / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="is a released model, which has no validation data to measure the loss on"):
        quantized_run.quantize_run(released, tmp_path / "out")
