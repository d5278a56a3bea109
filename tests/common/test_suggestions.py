"""Names that are not known: the error lists those that are, and of very many the first few."""

import pytest

from regard.common.suggestions import known


def test_few_of_very_many_names_are_listed() -> None:
    known("token", "99", map(str, range(1_101)))
    with pytest.raises(ValueError, match="^unknown token") as caught:
        known("token", "x", map(str, range(1_101)))
    assert str(caught.value) == "unknown token 'x'; known are: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 1,091 more"
