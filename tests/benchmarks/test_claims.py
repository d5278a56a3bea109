"""Claims about attention: every command runs, verdicts follow from numbers, the page from the result files."""

import math
from pathlib import Path

import pytest
from benchmarks.claims.__main__ import main
from benchmarks.claims.catalogue import CLAIMS
from benchmarks.claims.claim import Claim, Criterion, Measured, Number, Panel, gather
from benchmarks.claims.figures import draw
from benchmarks.claims.page import IMAGES, PAGE, numbers, page, read_results
from benchmarks.claims.sentences import letters, reverse
from tests.for_each import for_each


@for_each("name", CLAIMS)
def test_every_command_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--seeds", "1", "--quick"], tmp_path) == 0
    verdict, *lines = capsys.readouterr().out.splitlines()
    assert verdict.startswith(f"{name}: ")
    assert all(any(criterion.text in line for line in lines) for criterion in CLAIMS[name].criteria)
    assert not list(tmp_path.iterdir())


def test_the_page_is_that_of_the_results() -> None:
    results = read_results()
    assert list(results) == list(CLAIMS)
    assert len(results) >= 12
    text = page(results)
    assert PAGE.read_text(encoding="utf-8") == text
    for name, result in results.items():
        claim = CLAIMS[name]
        assert f"\npython -m benchmarks.claims {name} --seeds {result.seeds}\n" in text
        assert result.seeds == 3
        assert {point.panel for point in result.points} == claim.panels.keys()
        # a point that not every seed reached would have a mean of others
        assert all(len(point.values) == 3 and all(map(math.isfinite, point.values)) for point in result.points)
        assert result.settings.keys() == claim.settings.keys()
        assert (IMAGES / f"{name}.svg").stat().st_size < 100_000


def measure(seed: int, settings: object) -> list[Number]:
    return [Number("score", "a", 1, 2.0 + seed), Number("score", "a", 2, 5.0), Number("score", "b", 1, 0.001)]


def claim(*outcomes: bool) -> Claim:
    criteria = [Criterion(f"the value is {n}", lambda _, met=met: met) for n, met in enumerate(outcomes)]
    panels = {"score": Panel("place", "score", log_x=True)}
    return Claim(
        "test", "A title", "It is so.", "Someone 2001", "{n:,} times.", {"n": 1000}, {}, measure, panels, criteria
    )


def test_verdicts_and_tables() -> None:
    result = Measured("test", 2, {"n": 1000}, gather([measure(seed, {}) for seed in range(2)]), 1.5)
    assert claim(True, True).verdict(result) == "holds"
    assert claim(True, False).verdict(result) == "holds in part"
    assert claim(False, False).verdict(result) == "does not hold here"
    point = result.at("score", "a", 1)
    assert (point.low, point.mean, point.high) == (2.0, 2.5, 3.0)
    assert numbers(claim(True), result, "score").splitlines()[2:] == [
        "| a | 2.5 [2.0, 3.0] | 5.0 |",
        "| b | 1.0e-03 | – |",
    ]
    with pytest.raises(KeyError, match="test has no number of 'b' at 2 in 'score'"):
        result.at("score", "b", 2)


def test_a_result_is_read_as_it_was_written_and_drawn_the_same(tmp_path: Path) -> None:
    result = Measured("test", 2, {"n": 1000}, gather([measure(seed, {}) for seed in range(2)]), 1.5)
    assert Measured.read(result.write(tmp_path)) == result
    assert Measured.read(tmp_path / "other.json") is None
    first, second = (draw(claim(True), result, tmp_path / name).read_bytes() for name in ("a.svg", "b.svg"))
    assert first == second


def test_letters_are_reversed_within_their_lengths() -> None:
    strings, lengths = letters(0, 20, 5)
    for string, length, turned in zip(
        strings.tolist(), lengths.tolist(), reverse(strings, lengths).tolist(), strict=True
    ):
        assert turned[:length] == string[:length][::-1]
        assert turned[length:] == string[length:]


def test_bad_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["moon"], "there is no claim 'moon'; known are: distance"),
        (["path", "--seeds", "0"], "--seeds must be 1 or more, got 0; try --seeds 3"),
        ([], "name a claim, or give --docs"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        assert message in capsys.readouterr().err
