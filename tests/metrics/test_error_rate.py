"""Error rates against the recursive definition of the edit distance."""

from regard.metrics.error_rate import cer, wer


def test_ends() -> None:
    assert cer(["abc", ""], ["abc", ""]) == 0.0
    assert cer(["abcd"], ["ab"]) == 100.0
    assert wer(["a b c", "d"], ["a x c", "d"]) == 25.0
    assert wer([], []) == 0.0
