"""TextEncoder: padding is absent, frozen parts keep their weights and have no dropout, rates fall layer by layer."""

import pytest
import torch
from torch import Tensor, nn

from regard.models.bert import BERT
from regard.models.transfer.fine_tuned_encoder import copy_weights, fine_tuning_rates
from regard.models.transfer.text_encoder import TextEncoder
from regard.training.config import TrainingConfig
from regard.training.step import optimizer

LAYERS = 3


def encoder(frozen: int = 0, norm: str = "post") -> TextEncoder:
    torch.manual_seed(0)
    bert = BERT(19, width=6, layers=LAYERS, heads=2, longest=11, norm=norm, pooler=True, dropout=0.5)
    return TextEncoder(bert, frozen=frozen)


class Classifier(nn.Module):
    """An encoder below a linear layer and a parameter of its own."""

    def __init__(self, encoder: TextEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.output = nn.Linear(encoder.width, 2)
        self.bias = nn.Parameter(torch.zeros(2))


def trainable(model: nn.Module) -> list[str]:
    return [name for name, p in model.named_parameters() if p.requires_grad]


def test_a_batch_is_its_texts() -> None:
    model = encoder().eval()
    tokens, lengths = torch.randint(19, (3, 7)), torch.tensor([7, 2, 5])
    states = model(tokens, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model(tokens[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(states[row : row + 1, :length], alone, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(model(tokens, torch.full((3,), 7)), model.bert(tokens))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_states_of_several_layers_side_by_side(norm: str) -> None:
    bert = encoder(norm=norm).eval().bert
    model = TextEncoder(bert, levels=(0, 2, LAYERS)).eval()
    tokens, lengths = torch.randint(19, (2, 7)), torch.tensor([7, 4])
    states = model(tokens, lengths)
    assert model.width == states.shape[-1] == 18
    embedded, middle, last = states.chunk(3, -1)
    torch.testing.assert_close(embedded, bert.embed(tokens))
    torch.testing.assert_close(last, TextEncoder(bert)(tokens, lengths))
    below = BERT(19, width=6, layers=2, heads=2, longest=11, norm=norm, pooler=True).eval()
    below.load_state_dict({name: t for name, t in bert.state_dict().items() if "layers.2" not in name}, strict=False)
    below.norm = nn.Identity()
    torch.testing.assert_close(middle, TextEncoder(below)(tokens, lengths))


def test_levels_that_an_encoder_has_not() -> None:
    for levels in ((0, 4), (-1,)):
        with pytest.raises(ValueError, match=r"levels must be from 0 to 3, the layers of the encoder, got .*; try lev"):
            TextEncoder(encoder().bert, levels=levels)


@pytest.mark.parametrize("frozen", range(LAYERS + 2))
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_frozen_parts_are_the_lowest(frozen: int, norm: str) -> None:
    model = encoder(frozen, norm)
    names = trainable(model)
    assert any(name.startswith(("bert.embedding.", "bert.types", "bert.place")) for name in names) == (frozen == 0)
    for n in range(LAYERS):
        assert any(name.startswith(f"bert.layers.{n}.") for name in names) == (n + 1 >= frozen)
    assert bool(names) == (frozen <= LAYERS)
    assert not any("pooler" in name for name, _ in model.named_parameters())


@pytest.mark.parametrize("frozen", range(LAYERS + 2))
def test_frozen_parts_have_no_dropout(frozen: int) -> None:
    model = encoder(frozen).train()
    assert not model.eval().bert.layers[-1].training
    model.train()
    assert [layer.training for layer in model.bert.layers] == [n + 1 >= frozen for n in range(LAYERS)]
    assert model.bert.dropout.training == (frozen == 0)
    tokens, lengths = torch.randint(19, (2, 5)), torch.tensor([5, 3])
    same = torch.equal(model(tokens, lengths), model(tokens, lengths))
    assert same == (frozen == LAYERS + 1)


def test_rates_fall_from_layer_to_layer() -> None:
    model = Classifier(encoder(norm="pre"))
    rates = fine_tuning_rates(model, decay=0.5, head=8.0)
    model.lr_multipliers = rates  # type: ignore[assignment]
    groups = optimizer(model, TrainingConfig(steps=1, lr=1.0), torch.device("cpu")).param_groups
    found = {id(p): group["lr_multiplier"] for group in groups for p in group["params"]}
    for name, p in model.named_parameters():
        layer = next((n for n in range(LAYERS) if f"layers.{n}." in name), None)
        if layer is not None:
            expected = 0.5 ** (LAYERS - 1 - layer)
        elif name.startswith("encoder.bert.norm"):
            expected = 1.0
        else:
            expected = 0.5**LAYERS if name.startswith("encoder.") else 8.0
        assert found[id(p)] == expected, name


def test_frozen_parameters_are_not_in_the_optimizer() -> None:
    model = Classifier(encoder(frozen=2))
    model.lr_multipliers = fine_tuning_rates(model, decay=0.9, head=2.0)  # type: ignore[assignment]
    chosen = optimizer(model, TrainingConfig(steps=1), torch.device("cpu"))
    optimized = {id(p) for group in chosen.param_groups for p in group["params"]}
    assert optimized == {id(p) for p in model.parameters() if p.requires_grad}
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    tokens, lengths = torch.randint(19, (2, 5)), torch.tensor([5, 3])
    (model.output(model.encoder.train()(tokens, lengths)) + model.bias).square().sum().backward()
    chosen.step()
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name]) != p.requires_grad, name


def test_weights_are_copied_but_not_to_the_meta_device() -> None:
    model, weights = encoder(), dict(encoder().bert.named_parameters())
    changed: dict[str, Tensor] = {name: torch.ones_like(p) for name, p in weights.items()}
    copy_weights(model.bert, changed)
    assert all(bool((p == 1).all()) for p in model.parameters())
    with torch.device("meta"):
        copy_weights(BERT(19, width=6, layers=LAYERS, heads=2, longest=11), changed)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: encoder(frozen=5), "frozen must be from 0 to 4, the embeddings and 3 layers, got 5; try frozen=1"),
        (lambda: encoder().lr_multipliers("encoder", 0.0), "decay must be above 0 and at most 1, got 0.0; try"),
        (lambda: fine_tuning_rates(Classifier(encoder()), 0.9, 0.0), "head must be positive, got 0.0; try head=10"),
    ],
)  # fmt: skip
def test_errors(build: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()  # type: ignore[operator]
