"""regard quantize and --quantization: runs with 8-bit weights, from the command line."""

import json
from pathlib import Path

import pytest
import torch

import regard
from regard.attn.quantized_linear import QuantizedLinear
from regard.cli.main import main
from regard.experiments import quantized_run
from regard.interop.quantize import is_quantized
from regard.tasks.loading import load_run
from regard.training.run_folder import BEST, QUANTIZATION

STEPS = ["--threads", "1", "--device", "cpu", "--steps", "2", "--warmup", "1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "pairs.tsv").write_text("a b c\tc b a\na b\tb a\nc a\ta c\nb\tb\n" * 5, encoding="utf-8")
    options = ["--tokens", "words", "--model", "transformer", "--width", "32", "--layers", "1", "--feed", "64"]
    options += ["--valid-lines", "5", "--metric", "nll"]
    out = str(folder / "run")
    assert main(["train", "translate", "--train", str(folder / "pairs.tsv"), *options, *STEPS, "--out", out]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def quantized(run: Path) -> Path:
    out = run.parent / "int8"
    assert main(["quantize", str(run), "--out", str(out)]) == 0
    return out


def test_the_run_records_its_loss_and_is_used_as_any_other(
    run: Path, quantized: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = json.loads((quantized / QUANTIZATION).read_text(encoding="utf-8"))
    assert facts["metric"] == "nll"
    assert facts["loss"] == pytest.approx(facts["after"]["nll"] - facts["before"]["nll"])
    assert abs(facts["loss"]) < 0.02 * facts["before"]["nll"]
    assert "encoder.0.feed.inner" in facts["errors"]
    assert all(0 < error < 0.03 for error in facts["errors"].values())
    assert (quantized / BEST).stat().st_size < 0.5 * (run / BEST).stat().st_size
    loaded = load_run(quantized, device="cpu")
    assert isinstance(loaded.predictor.model.encoder[0].feed.inner, QuantizedLinear)  # type: ignore[union-attr]
    for verb in ("translate", "predict"):
        assert main([verb, str(quantized), "a b c"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["evaluate", str(quantized), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 2


def test_errors_are_of_real_inputs(run: Path) -> None:
    model = load_run(run, device="cpu").predictor.model
    with quantized_run.first_inputs(model) as inputs, torch.no_grad():
        model(torch.tensor([[5, 6]]), torch.tensor([2]), torch.tensor([[1, 5]]))
    assert inputs["encoder.0.feed.inner"].shape == (2, 32)
    assert not any(module._forward_pre_hooks for module in model.modules())
    drawn, real = quantized_run.layer_errors(model, {}), quantized_run.layer_errors(model, inputs)
    assert drawn.keys() == real.keys()
    assert drawn["encoder.0.feed.inner"] != real["encoder.0.feed.inner"]


def test_any_run_is_rounded_on_load(run: Path, quantized: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["translate", str(run), "a b c", "--quantization", "int8"]) == 0
    rounded = capsys.readouterr().out
    assert main(["translate", str(quantized), "a b c"]) == 0
    assert capsys.readouterr().out == rounded
    assert is_quantized(regard.load(run, device="cpu", quantization="int8").model)
    assert main(["translate", str(run), "a", "--quantization", "int4"]) == 2
    assert "int8" in capsys.readouterr().err
    with pytest.raises(ValueError, match="quantization"):
        regard.load(run, quantization="int4")


def test_layers_that_lose_too_much_stay(
    run: Path, quantized: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = json.loads((quantized / QUANTIZATION).read_text(encoding="utf-8"))["errors"]
    most = str(sorted(errors.values())[len(errors) // 2])
    capsys.readouterr()
    assert main(["quantize", str(run), "--out", str(tmp_path / "few"), "--most-error", most]) == 0
    table = capsys.readouterr().out
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
    assert main(["quantize", str(run), "--out", str(tmp_path / "none")]) == 2
    assert "whichever layers stay in float32; allow more, such as --tolerance" in capsys.readouterr().err


def test_errors(run: Path, quantized: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases = [
        (["quantize", str(run)], "--out FOLDER names the new run, and is missing; give one"),
        (["quantize", str(run), "--out", str(quantized)], "holds a run already; name a new folder"),
        (["quantize", str(run), "--out", str(run.parent)], "is not empty; take a new folder"),
        (["quantize", str(quantized), "--out", str(tmp_path / "new")], "has 8-bit weights already; name the run that"),
        (["quantize", str(run), "--out", str(tmp_path / "new"), "--tolerance", "-1"], "must be 0 or more and finite"),
        (["train", "--resume", str(quantized)], "has 8-bit weights, which cannot be trained; take the run that it was"),
        (
            ["train", "translate", "--init-from", str(quantized), "--train", str(run.parent / "pairs.tsv")],
            "has 8-bit weights, which cannot be trained; take the run that it was made from",
        ),
    ]
    for arguments, message in cases:
        capsys.readouterr()
        assert main(arguments) == 2
        assert message in capsys.readouterr().err
    released = tmp_path / "released"
    released.mkdir()
    (released / "config.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ValueError, match="is a released model, which has no validation data to measure the loss on"):
        quantized_run.quantize_run(released, tmp_path / "out")
