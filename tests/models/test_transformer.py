"""Transformer: what it is made of, what it looks at, and what it refuses."""

import pytest
import torch
from tests.for_each import for_each
from tests.models.cases import HEADS, B, T, built, given, transformer

from regard import MECHANISMS
from regard.attn.call import Need
from regard.attn.heads.named_parts import NAMED_PARTS
from regard.layers.position_choices import POSITIONS


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_alignment_is_that_of_the_last_layer_but_one(layers: int) -> None:
    model, (source, lengths, target) = built(transformer(layers=layers)).eval(), given()
    chosen = model.decoder[max(layers - 2, 0)].cross_attention
    seen: list[torch.Tensor] = []
    attend = chosen.attend

    def watched(*args: object, **named: object) -> object:
        got = attend(*args, **{**named, "need": Need(weights=True)})
        seen.append(got.weights)
        return got

    chosen.attend = watched
    weights = model.teacher_force(source, lengths, target, Need(weights=True)).weights
    torch.testing.assert_close(weights, seen[0].mean(1))
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, T))
    assert model.teacher_force(source, lengths, target).weights is None


def test_learned_places_end_with_a_sentence() -> None:
    model = transformer(positions="learned", longest=5)().eval()
    source, lengths, target = given()
    with pytest.raises(
        ValueError,
        match="the source has 7 tokens, but Transformer has 5 learned positions; shorten it to 5 tokens, or build the "
        "model with longest=7 or other positions",
    ):
        model(source, lengths, target)
    source, lengths = source[:, :5], lengths.clamp_max(5)
    model(source, lengths, target)
    with pytest.raises(ValueError, match="the target has 6 tokens, but Transformer has 5 learned positions"):
        model(source, lengths, torch.ones(B, 6, dtype=torch.long))
    state = model.init_state(source, lengths)
    for t in range(5):
        state = model.step(target[:, t : t + 1], state).state
    with pytest.raises(ValueError, match="the target has 6 tokens, but Transformer has 5 learned positions"):
        model.step(target[:, :1], state)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_other_places_do_not_end(positions: str) -> None:
    model = transformer(positions=positions, longest=5)().eval()
    source, lengths, target = given()
    assert model(source, lengths, target.repeat(1, 3)).isfinite().all()


@for_each("name", sorted(MECHANISMS))
def test_every_mechanism_is_taken_or_refused_when_it_is_built(name: str) -> None:
    if name in HEADS or name in NAMED_PARTS.keys() - {"selective"}:
        assert len(transformer(attention=name, heads=2)().decoder) == 2
        return
    reason = {
        "hard": "it is trained by REINFORCE, to which the samples of so many heads are noise",
        "location": "it identifies keys by their index in a cache, which the hypotheses of a beam share",
        **dict.fromkeys(
            ("moba", "nsa"), "it selects blocks of keys by their index in a cache, which the hypotheses of a beam share"
        ),
    }.get(name, ".* is more than one equation")
    sentence = f"cannot be used in the heads of a Transformer: {reason}; try one of {', '.join(HEADS)}"
    if name in POSITIONS:
        sentence = f"encodes positions, beside any .*; leave it out, and give positions='{name}' to a model that has"
    if name in ("selective", "latent"):
        sentence = "is for models of one text, .*; choose another attention"
    for attention in (name, ["dot", "dot", name]):
        if name in NAMED_PARTS and attention is not name:
            sentence = "is made of all heads of a layer"
        elif name == "latent" and attention is not name:
            sentence = "cannot be used in the heads of a Transformer: Latent is more than one equation"
        with pytest.raises(ValueError, match=f"attention='{name}' {sentence}"):
            transformer(attention=attention)()


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(ValueError, match="width must split evenly over heads, got width=13 and heads=3; try width=12"):
        transformer(width=13, positions="learned")()
    with pytest.raises(ValueError, match="got width=15 and heads=3, 5 per head; try width=18"):
        transformer(width=15, positions="rotary")()
    with pytest.raises(ValueError, match="dim must be even for Sinusoidal, .* got 9"):
        transformer(width=9)()
    with pytest.raises(
        ValueError, match="attention must be one layer, or one per head for 3 heads, got 2; add or drop some"
    ):
        transformer(attention=["dot", "entmax"])()
