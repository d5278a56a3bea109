"""Names that are not known: the error lists those that are, and of very many the first few."""

import pytest

import regard
from regard.common import suggestions
from regard.common.suggestions import known, nearest


def test_few_of_very_many_names_are_listed() -> None:
    known("token", "99", map(str, range(1_101)))
    with pytest.raises(ValueError, match="^unknown token") as caught:
        known("token", "x", map(str, range(1_101)))
    assert str(caught.value) == "unknown token 'x'; known are: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 1,091 more"


@pytest.mark.parametrize(
    ("name", "names", "meant"),
    [
        ("learning-rate", ["head-rate", "lr"], "lr"),
        ("learning-rate", ["head-rate"], "head-rate"),
        ("ner", ["tag", "read"], "tag"),
        ("text-classification", ["classify-text", "classify-image"], "classify-text"),
        ("self-attention", ["co-attention", "multi-head"], "multi-head"),
        ("SENet", ["se", "eca"], "se"),
        ("softmax1", ["null", "softmax"], "null"),
        ("attention sink", ["null", "sink"], "sink"),
        ("MLA", ["latent", "dot"], "latent"),
        ("xyz", ["se", "eca"], None),
    ],
)
def test_names_of_the_field_mean_those_here(name: str, names: list[str], meant: str | None) -> None:
    assert nearest(name, names) == meant


def test_every_synonym_is_a_name() -> None:
    from regard.tasks.registry import TASKS

    options = {"lr", "batch", "layers", "heads", "width", "steps", "out", "data"}
    names = {
        *options,
        *TASKS,
        *regard.__all__,
        *regard.gates.__all__,
        *dir(regard.layers),
        *dir(regard.scores),
        *dir(regard.normalizers),
        *regard.MECHANISMS,
        *regard.GATES,
    }
    assert not {name for synonyms in suggestions._SYNONYMS.values() for name in synonyms} - names
