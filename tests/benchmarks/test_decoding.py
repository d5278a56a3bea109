"""The benchmarks of decoding: both sides compute the same, and the command writes what it measured."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from benchmarks.decoding import generation, int8, page, steps, translation
from benchmarks.report import QUICK

ONCE = replace(QUICK, repeat=1, least=1, block=0.0)


def test_steps_agree_with_the_lean_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "WIDTHS", {8: (2, 2.0)})
    monkeypatch.setattr(steps, "KEYS", 7)
    monkeypatch.setattr(steps, "STEPS", 4)
    with torch.no_grad():
        rows = list(steps.multi_head(ONCE))  # raises if the results differ
    assert [row.unit for row in rows] == ["× the time"] * 2


def test_generation_agrees_with_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "SIZES", {"tiny": generation.Size(8, 2, 2, 30, 3, 4, 1.0)})
    with torch.no_grad():
        (row,) = generation.generate(ONCE)  # raises if the tokens differ
    assert (row.case, row.unit) == ("4 tokens after 32, tiny", "× as fast")


def test_the_plain_model_has_the_same_loss_and_gradients() -> None:
    model, plain, mine, theirs = generation.losses(width=12, layers=2, heads=3)
    torch.testing.assert_close(mine(), theirs(), rtol=1e-5, atol=1e-5)
    mine().backward()
    theirs().backward()
    torch.testing.assert_close(model.embedding.weight.grad, plain.tokens.weight.grad, rtol=1e-3, atol=1e-5)
    (row,) = generation.training(ONCE)
    assert row.measured is not None


def test_agreement_is_reported() -> None:
    same, other = ([1, 2], -3.0), ([1, 3], -4.0)
    assert translation.agreement([same, same], [same, other]) == (
        "1 of 2 translations are the same tokens, 1 of the others more probable with regard"
    )
    assert translation.agreement([same], [same]) == "1 of 1 translations are the same tokens"


def test_the_page_is_that_of_the_results() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page()


@pytest.mark.whole
def test_8_bit_weights_against_the_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "SIZES", {"tiny": generation.Size(32, 1, 2, 60, 1, 2, 1.0)})
    monkeypatch.setattr(int8, "GENERATION", {"tiny": 1.0})
    for name, value in {"WORDS": 60, "WIDTH": 32, "LAYERS": 1, "HEADS": 2, "LENGTH": 3}.items():
        monkeypatch.setattr(translation, name, value)
    with torch.no_grad():
        (generated,) = int8.generate(ONCE)
        (translated,) = int8.CASES["sentence"](ONCE)
    assert generated.compared == "regard int8 : transformers float32"
    assert translated.compared == "regard int8 : CTranslate2 int8"
    assert "translations are those of float32; weights 0." in translated.note
    assert set(int8.cases(int8.Inputs())) == set(int8.CASES)
    assert set(int8.cases(int8.Inputs(Path(), Path(), Path()))) == {*int8.CASES, "trained", "encode"}
