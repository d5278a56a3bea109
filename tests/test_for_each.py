"""A folded test fails where its cases would, and a sample of a product leaves no value out."""

import inspect
import itertools
from pathlib import Path

import pytest
import torch
from tests import product
from tests.for_each import for_each


def test_every_value_is_tried_and_every_offender_is_named() -> None:
    tried = []

    @for_each(("name", "number"), [("a", 1), ("b", 2), ("c", 3), ("d", 4)])
    def odd(name: str, number: int) -> None:
        tried.append(name)
        if name == "d":
            pytest.fail("never d")
        assert number % 2, number

    with pytest.raises(BaseExceptionGroup, match="odd fails with name, number: b-2, d-4") as caught:
        odd()
    assert tried == ["a", "b", "c", "d"]
    first, second = caught.value.exceptions
    assert isinstance(first, AssertionError)
    assert isinstance(second, pytest.fail.Exception)


def test_a_share_of_the_values_is_tried_and_all_of_them_under_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    @for_each("number", range(9), share=0.3)
    def test(number: int) -> None:
        tried.append(number)

    monkeypatch.setattr(product, "whole", False)
    test()
    test()
    assert tried[:3] == tried[3:]
    assert len(set(tried)) == 3
    monkeypatch.setattr(product, "whole", True)
    tried.clear()
    test()
    assert tried == list(range(9))


def test_each_call_has_its_seed_its_folder_and_its_patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, folders = [], []

    @for_each("name", "abc")
    def independent(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not hasattr(inspect, "never_there")
        monkeypatch.setattr(inspect, "never_there", name, raising=False)
        drawn.append(torch.rand(()).item())
        folders.append(tmp_path)
        assert not list(tmp_path.iterdir())

    assert list(inspect.signature(independent).parameters) == ["tmp_path", "monkeypatch"]
    independent(tmp_path=tmp_path, monkeypatch=monkeypatch)
    assert len(set(drawn)) == 1
    assert len(set(folders)) == 3
    assert not hasattr(inspect, "never_there")


def test_a_test_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="name has no values: a test of nothing cannot fail"):
        for_each("name", [])
    with pytest.raises(ValueError, match="3 values of name have 2 ids"):
        for_each("name", "abc", ids="de")


def test_no_value_skips_the_others() -> None:
    @for_each("name", "abc")
    def skipping(name: str) -> None:
        if name == "b":
            pytest.skip("not b")

    with pytest.raises(AssertionError, match="b skips, and the values behind it with it: leave it out"):
        skipping()


@pytest.mark.parametrize("sizes", [(7, 3), (5, 5), (4, 3, 6), (2, 3, 5, 2)], ids=str)
def test_a_sample_has_every_value_or_every_pair(sizes: tuple[int, ...]) -> None:
    cases = list(itertools.product(*map(range, sizes)))
    chosen = [cases[number] for number in product.sample(cases)]
    assert len(chosen) < len(cases)
    for together in itertools.combinations(range(len(sizes)), min(2, len(sizes) - 1)):
        met = {tuple(case[axis] for axis in together) for case in chosen}
        assert met == set(itertools.product(*(range(sizes[axis]) for axis in together)))
    assert product.sample(cases) == product.sample(cases)


def test_holes_in_a_product_are_no_reason_to_leave_a_value_out() -> None:
    cases = [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 4)]
    chosen = [cases[number] for number in product.sample(cases)]
    assert {name for name, _ in chosen} == set("abc")
    assert {number for _, number in chosen} == {1, 2, 3, 4}
