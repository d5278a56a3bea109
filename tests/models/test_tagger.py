"""Taggers with every mechanism: batches change nothing, gradients reach every parameter."""

import pytest
import torch
from tests.for_each import for_each

from regard import MECHANISMS
from regard.common.tag_schemes import TagScheme
from regard.data.text.words import WordInputs
from regard.kernels import crf
from regard.layers.character_convolution import CharacterConvolution
from regard.layers.position_choices import POSITIONS
from regard.models.tagger import (
    RecurrentTagger,
    Tagger,
    TaggerSizes,
    TransformerTagger,
    WindowTagger,
)

SIZES = TaggerSizes(words=11, characters=9, tags=3, intents=2)
SCHEME = TagScheme("IOB2", ["O", "B-X", "I-X"])
NO_GRADIENT = "reads one sampled or chosen key, through which no gradient goes; try attention='gumbel' or"
REFUSED = {
    "hard": NO_GRADIENT,
    "hard-argmax": NO_GRADIENT,
    "co-attention": "relates two sequences, and a sentence is one; try attention='multi-head' or 'bidaf'",
}
SMALL = {"embedding": 5, "characters": 4, "scheme": SCHEME}
BUILDERS = {
    "recurrent": lambda **options: RecurrentTagger(SIZES, hidden=6, **{**SMALL, **options}),
    "transformer": lambda **options: TransformerTagger(
        SIZES, **{**SMALL, "width": 8, "heads": 2, "layers": 1, **options}
    ),
    "window": lambda **options: WindowTagger(SIZES, hidden=7, **{**SMALL, **options}),
}


def inputs() -> WordInputs:
    words = torch.tensor([[4, 5, 6, 7, 8], [9, 4, 0, 0, 0], [5, 5, 10, 0, 0]])
    characters = torch.tensor([[4, 5, 6], [7, 0, 0], [8, 4, 0]])
    return WordInputs(words, words % 3, characters, torch.tensor([5, 2, 3]))


def alone(batch: WordInputs, row: int) -> WordInputs:
    n = int(batch.lengths[row])
    cut = slice(row, row + 1)
    return WordInputs(batch.words[cut, :n], batch.spellings[cut, :n], batch.characters, batch.lengths[cut])


def check_batch(model: Tagger) -> None:
    together = model(inputs())
    for row in range(3):
        single = model(alone(inputs(), row))
        n = single.emissions.shape[1]
        torch.testing.assert_close(together.emissions[row, :n], single.emissions[0], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(together.intents[row], single.intents[0], rtol=1e-6, atol=1e-6)


@for_each("name", [name for name in MECHANISMS if name not in REFUSED])
def test_any_mechanism_attends_and_batches_change_nothing(name: str) -> None:
    check_batch(BUILDERS["recurrent"](attention=name).double().eval())


@for_each("positions", POSITIONS)
def test_any_positions_and_batches_change_nothing(positions: str) -> None:
    torch.manual_seed(0)
    model = BUILDERS["transformer"](positions=positions, longest=5).double().eval()
    check_batch(model)
    # without positions the words are a set
    batch = alone(inputs(), 0)
    turned = WordInputs(batch.words.flip(1), batch.spellings.flip(1), batch.characters, batch.lengths)
    same = torch.allclose(model(batch).emissions, model(turned).emissions.flip(1), atol=1e-9)
    # biases that learn start at zero or as functions of the distance alone, as ALiBi of two directions is
    assert same or positions not in ("none", "alibi")
    assert not same or positions in ("none", "alibi", "t5", "shaw", "kerple", "kerple-power", "fire", "cope")


@pytest.mark.parametrize("positions", ["learned", "half-wave"])
def test_positions_end(positions: str) -> None:
    with pytest.raises(ValueError, match=f"the text has 5 tokens, but TransformerTagger has 4 {positions} positions"):
        BUILDERS["transformer"](positions=positions, longest=4)(inputs())


@pytest.mark.parametrize("kind", BUILDERS)
@pytest.mark.parametrize("output", ["crf", "softmax"])
def test_every_parameter_is_trained(kind: str, output: str) -> None:
    model = BUILDERS[kind](output=output)
    check_batch(model.double().eval())
    model = model.float().train()
    emissions, intents = model(inputs())
    tags = torch.tensor([[0, 1, 2, 2, 0], [1, 2, 0, 0, 0], [0, 1, 1, 0, 0]])
    mask = torch.arange(5) < inputs().lengths.unsqueeze(1)
    loss = crf.nll(emissions, tags, mask, model.potentials(emissions)).sum() + intents.logsumexp(-1).sum()
    loss.backward()
    assert not [name for name, p in model.named_parameters() if p.grad is None]


@pytest.mark.parametrize("name", REFUSED)
def test_a_mechanism_that_cannot_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"attention='{name}' {REFUSED[name]}"):
        BUILDERS["recurrent"](attention=name)


def test_widths_are_checked() -> None:
    with pytest.raises(ValueError, match="width must split evenly over heads, got width=8 and heads=3; try width=6"):
        BUILDERS["transformer"](heads=3)


def test_padding_does_not_change_a_word() -> None:
    layer = CharacterConvolution(9, width=3, filters=5)
    word = torch.tensor([[4, 5]])
    padded = torch.tensor([[4, 5, 0, 0], [0, 0, 0, 0]])
    torch.testing.assert_close(layer(padded)[0], layer(word)[0])
    assert (layer(padded)[1] == 0).all()
