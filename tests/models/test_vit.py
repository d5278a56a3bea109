"""ViT: the order of patches, the class token, and what it refuses."""

from pathlib import Path

import pytest
import torch
from tests.for_each import for_each
from torch import nn

from regard import save_pretrained
from regard.layers.position_choices import POSITIONS
from regard.models import ViT, ViTClassifier


def built(**choices: object) -> ViT:
    sizes = {"patch": 3, "channels": 2, "width": 12, "heads": 3, "layers": 2, "feed": 10}
    torch.manual_seed(1)
    return ViT((9, 6), **{**sizes, **choices}).double().eval()


@torch.no_grad()
def test_patches_are_read_row_by_row() -> None:
    model, images = built(), torch.randn(5, 2, 9, 6).double()
    states = model(images)
    assert states.shape == (5, 7, 12)
    weight = model.patches.weight.flatten(1)
    rows = [images[:, :, 3 * r : 3 * r + 3, 3 * c : 3 * c + 3].flatten(1) for r in range(3) for c in range(2)]
    x = torch.stack([row @ weight.T + model.patches.bias for row in rows], 1)
    x = torch.cat([model.class_token.expand(5, 1, -1), x], 1) + model.place.table.weight
    for layer in model.layers:
        x = layer(x).out
    torch.testing.assert_close(states, model.norm(x))
    torch.testing.assert_close(model(images[1:2]), states[1:2])


@torch.no_grad()
@for_each("positions", POSITIONS)
def test_positions_count_the_patches(positions: str, tmp_path: Path) -> None:
    model, images = (
        built(positions=positions, width=6 if positions != "rotary" else 12),
        torch.randn(2, 2, 9, 6).double(),
    )
    states = model(images)
    assert states.isfinite().all()
    torch.testing.assert_close(model(images[1:]), states[1:])
    if positions != "learned":
        with pytest.raises(ValueError, match=f"a ViT with positions='{positions}' cannot be saved in transformers'"):
            save_pretrained(model, tmp_path / "vit")


@pytest.mark.parametrize("attention", [None, "additive", "entmax"])
def test_the_classifier_reads_the_class_token(attention: str | None) -> None:
    model, images = ViTClassifier(built(attention=attention, dropout=0.0), 4).double(), torch.randn(5, 2, 9, 6).double()
    torch.testing.assert_close(model(images), model.output(model.encoder(images)[:, 0]))
    model(images).square().sum().backward()
    for key, p in model.named_parameters():
        if not key.endswith("key.bias"):
            assert p.grad is not None, key
            assert p.grad.abs().max() > 0, key
    assert isinstance(built(pooler=True).pooler, nn.Module)


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(
        ValueError, match=r"images must be \(b, 2, 9, 6\) for this ViT, got \(5, 2, 6, 9\); resize them"
    ):
        built()(torch.zeros(5, 2, 6, 9).double())
    with pytest.raises(ValueError, match="image must divide into patches, got image=10 and patch=3; try image=9"):
        ViT(10, patch=3)
