"""Seq2Seq: what it is made of, and what it refuses."""

import pytest
from tests.for_each import for_each
from tests.models.cases import SOURCE, TARGET

from regard import MECHANISMS
from regard.attn.stepwise import part_without_steps
from regard.attn.terms.score import Additive, Bilinear
from regard.models import Seq2Seq
from regard.models.seq2seq import DECODERS


@pytest.mark.parametrize(
    ("decoder", "score"), [("bahdanau", Additive), ("luong", Bilinear), ("luong-feeding", Bilinear)]
)
def test_the_attention_of_the_paper_unless_another_is_named(decoder: str, score: type) -> None:
    assert isinstance(Seq2Seq(SOURCE, TARGET, decoder=decoder).decoder.attention.score, score)
    named = Seq2Seq(SOURCE, TARGET, decoder=decoder, attention="concat")
    assert type(named.decoder.attention.score) is type(MECHANISMS["concat"](4, 4).score)
    mine = MECHANISMS["sparsemax"](256, 256)
    assert Seq2Seq(SOURCE, TARGET, decoder=decoder, attention=lambda q, k: mine).decoder.attention is mine


def test_keys_are_as_wide_as_queries_unless_told() -> None:
    assert Seq2Seq(SOURCE, TARGET, hidden=10).encoder.out_features == 10
    assert Seq2Seq(SOURCE, TARGET, hidden=9, bidirectional=False).encoder.out_features == 9
    assert Seq2Seq(SOURCE, TARGET, hidden=9, encoder_hidden=4).encoder.out_features == 8


@pytest.mark.parametrize("name", sorted(MECHANISMS))
@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "luong-feeding"])
def test_every_mechanism_is_taken_or_refused_when_it_is_built(name: str, decoder: str) -> None:
    if part_without_steps(MECHANISMS[name](8, 6)) is not None:
        with pytest.raises(
            ValueError,
            match=f"attention='{name}' does not fit decoder='{decoder}': .* needs all queries together, but a decoder "
            "has one at a time; try attention='general' or attention='additive'",
        ):
            Seq2Seq(SOURCE, TARGET, width=6, hidden=8, decoder=decoder, attention=name)
        return
    assert Seq2Seq(SOURCE, TARGET, width=6, hidden=8, decoder=decoder, attention=name).decoder.out_features == 6


@for_each("name", ["dot", "trilinear", "cosine", "distance", "linear", "memory-hop"])
def test_widths_that_clash_are_told_when_it_is_built(name: str) -> None:
    with pytest.raises(
        ValueError,
        match=rf"attention='{name}' does not fit decoder='luong': queries are hidden=11 wide, the encoder's states 8: "
        r".*; try attention='general' or attention='additive', which fit all of them",
    ):
        Seq2Seq(SOURCE, TARGET, hidden=11, encoder_hidden=4, decoder="luong", attention=name)
    assert Seq2Seq(SOURCE, TARGET, hidden=11, encoder_hidden=4, decoder="luong", attention="additive")


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(ValueError, match="unknown decoder 'luongfeeding'; did you mean 'luong-feeding'"):
        Seq2Seq(SOURCE, TARGET, decoder="luongfeeding")
    with pytest.raises(
        ValueError, match=r"hidden must be even to be halved .*, got 9; try hidden=10 or give encoder_hidden"
    ):
        Seq2Seq(SOURCE, TARGET, hidden=9)
    with pytest.raises(
        ValueError, match="attention='dot' cannot be used with decoder='fixed', .* or leave attention out"
    ):
        Seq2Seq(SOURCE, TARGET, decoder="fixed", attention="dot")
    assert set(DECODERS) == {"fixed", "initial", "per-position", "bahdanau", "luong", "luong-feeding"}
