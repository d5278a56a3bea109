"""Benchmarks of GPUs, tried on the CPU: they compare what they say, and a failure says how to repeat it."""

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from benchmarks.gpu import cases, parity, report, speed
from benchmarks.gpu.__main__ import main
from benchmarks.gpu.speed import Comparison, Sizes, measure_case
from benchmarks.timing import Effort

CPU = torch.device("cpu")
TINY = Sizes(samples=1, heads=2, length=32, width=8, short=16, hidden=4, maps=(1, 2, 3, 4))
TOY = Effort(repeat=2, least=1, budget=0.01, block=1e-5, threads=1)


def run(folder: Path, *arguments: str, chosen: tuple[str, ...] = ("Lengths",)) -> int:
    return main(arguments, CPU, TINY, TOY, folder, chosen)


def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with mock.patch.object(torch.cuda, "is_available", return_value=False):
        assert main([]) == 2
    said = capsys.readouterr()
    assert said.err == "torch finds no GPU on this machine; run make bench-gpu on one that has.\n"
    assert said.out == ""


def test_it_compares_then_measures_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, chosen=("Lengths", "additive, Causal", "SimAM")) == 0
    (path,) = tmp_path.iterdir()
    told = json.loads(path.read_text())
    assert path.stem.endswith(told["date"])
    names = {each["name"] for each in told["parity"]}
    assert {"Lengths/padded/float32", "additive, Causal/additive/bfloat16", "SimAM/torch/float16"} <= names
    # what a backend refuses is not compared
    assert "additive, Causal/fused/float32" not in names
    assert all(each["holds"] and each["difference"] <= each["tolerance"] for each in told["parity"])
    measured = {(each["case"], each["mode"]): each for each in told["speed"] if each["call"].startswith("regard")}
    assert {*measured} == {(case, mode) for case in speed.CASES for mode in ("forward", "forward and backward")}
    assert all(each["low"] <= each["median"] <= each["high"] for each in measured.values())
    differences = [each["difference"] for each in told["speed"] if each["difference"] is not None]
    assert max(differences) < 1e-2  # all calls of a case compute the same
    said = capsys.readouterr().out
    assert f"Parity with the CPU: {len(names)} of {len(names)} calls." in said
    assert "| padded | forward | torch, SDPA with a dense mask |" in said
    assert f"{path} is written" in said
    assert "repeat:" not in said
    *_, row = report.devices(tmp_path)
    assert f"| {told['date']} | {torch.__version__} | {len(names)} of {len(names)} |" in row


def test_without_results_the_page_says_so(tmp_path: Path) -> None:
    assert list(report.devices(tmp_path)) == ["No device has results yet."]


def test_a_difference_is_repeated_by_one_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "Lengths/fused/bfloat16"
    with mock.patch.dict(parity.TOLERANCES, {torch.bfloat16: 1e-9}):
        assert run(tmp_path) == 1
        said = capsys.readouterr().out
        assert f"repeat: python -m benchmarks.gpu --only '{name}'\n  {name}: the " in said
        assert "differs by" in said
        assert "torch, SDPA" not in said  # no speed of what is wrong
        (path,) = tmp_path.iterdir()
        assert json.loads(path.read_text())["speed"] == []
        path.unlink()
        assert run(tmp_path, "--only", name) == 1
        assert "Parity with the CPU: 0 of 1 calls." in capsys.readouterr().out
    assert run(tmp_path, "--only", name) == 0
    assert run(tmp_path, "--parity") == 0
    assert not any(tmp_path.iterdir())
    assert run(tmp_path, "--only", "Length/fused/bfloat16") == 2
    assert "knows no comparison 'Length/fused/bfloat16'" in capsys.readouterr().err


def test_an_error_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(place: cases.Place) -> Any:
        raise RuntimeError("no kernel image\nis available")

    with mock.patch.dict(cases.CASES, {"Lengths": cases.Case(mask=fails)}):
        assert run(tmp_path) == 1
        assert "Lengths/fused/float32: RuntimeError: no kernel image" in capsys.readouterr().out
        with pytest.raises(RuntimeError, match="no kernel image"):
            run(tmp_path, "--only", "Lengths/fused/float32")


def test_a_call_that_fails_leaves_the_others() -> None:
    x = torch.ones(3, requires_grad=True)

    def fails() -> torch.Tensor:
        raise RuntimeError("out of memory\nhere")

    comparison = Comparison({"twice": lambda: 2 * x, "absent": None, "fails": fails, "other": lambda: 3 * x}, [x])
    rows = {(row.mode, row.call): row for row in measure_case("toy", comparison, CPU, TOY)}
    for mode in ("forward", "forward and backward"):
        assert rows[mode, "fails"].error == "RuntimeError: out of memory"
        assert rows[mode, "absent"].error == "not installed, or not for this device"
        assert rows[mode, "other"].difference == 0.5
        assert rows[mode, "twice"].median > 0
