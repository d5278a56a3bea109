"""Tag schemes: spans, legal pairs, and parity with seqeval."""

import warnings

import pytest
import seqeval.scheme
from hypothesis import assume, given, strategies as st
from seqeval.metrics.sequence_labeling import get_entities

import regard
from regard.common.tag_schemes import TaggedSpan

LETTERS = {"IOB1": "BI", "IOB2": "BI", "BIOES": "BIES", "BILOU": "BILU"}
THEIRS = {"IOB1": "IOB1", "IOB2": "IOB2", "BIOES": "IOBES", "BILOU": "BILOU"}


def scheme_of(name: str) -> regard.layers.TagScheme:
    return regard.layers.TagScheme(
        name, ["O", *[f"{letter}-{label}" for letter in LETTERS[name] for label in ("X", "Y-Z")]]
    )


def sequences(name: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(scheme_of(name).tags), max_size=8)


@pytest.mark.parametrize("name", LETTERS)
@given(data=st.data())
def test_strict_spans_are_those_of_seqeval(name: str, data: st.DataObject) -> None:
    tags = data.draw(sequences(name))
    # seqeval reads B-X I-X at the start of a text, which IOB1 forbids, as the span of I-X alone
    assume(name != "IOB1" or scheme_of(name).violation(tags) is None)
    theirs = seqeval.scheme.Entities([tags], getattr(seqeval.scheme, THEIRS[name])).entities[0]
    want = {TaggedSpan(entity.start, entity.end, entity.tag) for entity in theirs}
    got = set(scheme_of(name).spans(tags, "strict"))
    assert got == want


@pytest.mark.parametrize("name", ["IOB1", "IOB2", "BIOES"])
@given(data=st.data())
def test_lenient_spans_are_those_of_conlleval(name: str, data: st.DataObject) -> None:
    tags = data.draw(sequences(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = {TaggedSpan(start, end + 1, label) for label, start, end in get_entities([tags])}
    assert set(scheme_of(name).spans(tags)) == theirs


@pytest.mark.parametrize("name", LETTERS)
@given(data=st.data())
def test_spans_are_written_and_read(name: str, data: st.DataObject) -> None:
    scheme = scheme_of(name)
    edges = sorted(data.draw(st.sets(st.integers(0, 12), max_size=8)))
    labels = data.draw(st.lists(st.sampled_from(["X", "Y-Z", ""]), min_size=len(edges), max_size=len(edges)))
    spans = [TaggedSpan(a, b, label) for a, b, label in zip(edges, edges[1:], labels, strict=False) if label]
    tags = scheme.write(spans, 12)
    assert scheme.violation(tags) is None
    assert scheme.spans(tags) == scheme.spans(tags, "strict") == spans


@pytest.mark.parametrize("name", LETTERS)
@given(data=st.data())
def test_a_legal_sequence_has_the_same_spans_in_both_readings(name: str, data: st.DataObject) -> None:
    scheme, tags = scheme_of(name), data.draw(sequences(name))
    if scheme.violation(tags) is None:
        assert scheme.spans(tags) == scheme.spans(tags, "strict")
        assert scheme.write(scheme.spans(tags), len(tags)) == tags


def test_the_first_violation_is_named() -> None:
    assert scheme_of("IOB2").violation(["O", "I-X", "O"]) == 1
    assert scheme_of("IOB2").violation(["B-X", "I-Y-Z"]) == 1
    assert scheme_of("BIOES").violation(["O", "B-X"]) == 2
    assert scheme_of("BIOES").violation(["B-X", "O"]) == 1
    assert scheme_of("IOB1").violation(["I-X", "B-X", "O"]) is None
    assert scheme_of("IOB1").violation(["O", "B-X"]) == 1
    assert scheme_of("IOB2").violation([]) is None


def test_bad_tags_are_explained() -> None:
    with pytest.raises(ValueError, match="unknown scheme 'IOB'; did you mean 'IOB"):
        regard.layers.TagScheme("IOB", ["O"])
    with pytest.raises(ValueError, match="the tag 'S-X' is none of IOB2, which has O, B-LABEL, I-LABEL; choose"):
        regard.layers.TagScheme("IOB2", ["O", "S-X"])
    with pytest.raises(ValueError, match="tags must differ, but 'O' occurs twice"):
        regard.layers.TagScheme("IOB2", ["O", "O"])


def test_tags_without_a_scheme_are_spans_of_one_token() -> None:
    scheme = regard.layers.TagScheme("none", ["NOUN", "X-Y", "O"])
    assert scheme.spans(["X-Y", "X-Y", "O"]) == [TaggedSpan(0, 1, "X-Y"), TaggedSpan(1, 2, "X-Y")]
    assert scheme.violation(["NOUN", "O", "X-Y"]) is None
    assert scheme.write(scheme.spans(["X-Y", "O", "NOUN"], "strict"), 3) == ["X-Y", "O", "NOUN"]
