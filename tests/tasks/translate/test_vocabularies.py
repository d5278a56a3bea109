"""The vocabularies of a run: one or two, saved and loaded again."""

from pathlib import Path
from typing import Any

import pytest

from regard.data.text.pairs import Pairs
from regard.tasks.translate.options import Translate
from regard.tasks.translate.vocabularies import SHARED, SOURCE, TARGET, Vocabularies, kinds

PAIRS = Pairs(["abc ab", "cab"], ["xy z", "zz"])


def trained(**options: Any) -> Vocabularies:
    return Vocabularies.train(Translate.of(**options), PAIRS)


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"data": "dates"}, ("characters", "characters")),
        ({"data": "pronounce"}, ("characters", "words")),
        ({"train": (Path("a.tsv"),)}, ("bpe", "bpe")),
        ({"train": (Path("a.tsv"),), "tokens": "words"}, ("words", "words")),
        ({"data": "dates", "tokens": "bpe"}, ("bpe", "bpe")),
    ],
)
def test_what_is_cut_into_what(options: dict[str, Any], want: tuple[str, str]) -> None:
    assert kinds(Translate.of(**options)) == want


def test_shared_where_it_is_bpe_or_asked_for() -> None:
    assert not trained(data="reverse").shared
    both = trained(data="reverse", shared=True)
    assert both.shared
    assert both.source.decode(both.source.encode(["xa"])[0]) == "xa"
    assert trained(data="reverse", tokens="bpe", vocabulary=300).shared
    apart = trained(data="reverse", tokens="bpe", vocabulary=300, shared=False)
    assert not apart.shared


def test_each_side_learns_from_its_own() -> None:
    two = trained(data="reverse")
    assert two.source.decode(two.source.encode(["abx"])[0]) == "ab⁇"
    assert two.target.decode(two.target.encode(["xya"])[0]) == "xy⁇"


@pytest.mark.parametrize("options", [{}, {"shared": True}, {"tokens": "bpe", "vocabulary": 300}, {"tokens": "words"}])
def test_saved_and_loaded(options: dict[str, Any], tmp_path: Path) -> None:
    made = trained(data="reverse", **options)
    assert not Vocabularies.saved(tmp_path)
    made.save(tmp_path)
    assert Vocabularies.saved(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ([SHARED] if made.shared else [SOURCE, TARGET])
    again = Vocabularies.load(tmp_path)
    assert again.shared == made.shared
    for one, other, lines in ((made.source, again.source, PAIRS.source), (made.target, again.target, PAIRS.target)):
        assert len(one) == len(other)
        assert one.encode(lines) == other.encode(lines)


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="shared=True needs one kind of tokens, this data has characters and words"):
        trained(data="pronounce", shared=True)
    with pytest.raises(
        FileNotFoundError, match=r"holds no vocabulary \(tokens.json\); name the folder of a training run"
    ):
        Vocabularies.load(tmp_path)
    (tmp_path / SOURCE).write_text("{}")
    with pytest.raises(FileNotFoundError, match="holds no vocabulary"):  # one of two is none
        Vocabularies.load(tmp_path)
    (tmp_path / SHARED).write_text('{"half": ')
    with pytest.raises(
        ValueError, match=r"tokens.json is no vocabulary \(.*\); restore it, or train in another folder"
    ):
        Vocabularies.load(tmp_path)
