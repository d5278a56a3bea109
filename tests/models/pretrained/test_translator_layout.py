"""in_layout: copies of translators in the form of transformers' classes compute the same."""

from typing import Any

import pytest
import torch

from regard.attn.terms.position import Sinusoidal
from regard.models.pretrained.translator_layout import in_layout, translator_class
from regard.models.transformer import Transformer

SIZES: dict[str, Any] = {"width": 6, "layers": 2, "decoder_layers": 1, "heads": 3, "feed": 5, "dropout": 0.0}


def translator(**options: Any) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(11, options.pop("target", 13), **{**SIZES, **options}).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


@pytest.mark.parametrize("scale", [None, 1.0])
@pytest.mark.parametrize("tied", ["none", "target", "all"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_copies_compute_the_same(norm: str, tied: str, scale: float | None) -> None:
    model = translator(norm=norm, tied=tied, scale=scale, target=11 if tied == "all" else 13)
    copy = in_layout(model)
    copy.source_place, copy.target_place = (Halves() for _ in range(2))
    source, lengths, target = torch.randint(1, 11, (3, 7)), torch.tensor([7, 5, 2]), torch.randint(1, 11, (3, 5))
    ours = model(source, lengths, target).log_softmax(-1)
    theirs = copy(source, lengths, target).log_softmax(-1)
    torch.testing.assert_close(theirs[..., : ours.shape[-1]], ours, rtol=0, atol=1e-10)
    assert theirs[..., ours.shape[-1] :].exp().sum() == 0
    assert (copy.output.weight is copy.target.weight) == (tied != "none")


class Halves(torch.nn.Module):
    """The sinusoids of regard with all sines before all cosines, not rounded to a table."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        encoding = Sinusoidal(x.shape[-1]).encoding(torch.arange(x.shape[1]))
        return x + torch.cat([encoding[:, ::2], encoding[:, 1::2]], -1).to(x.dtype)


def test_a_model_in_the_layout_is_not_copied() -> None:
    model = translator(positions="learned", target=11)
    assert in_layout(model) is model
    assert translator_class(model) == "BlenderbotForConditionalGeneration"
    copy = in_layout(translator())
    assert in_layout(copy) is copy
    assert translator_class(copy) == "PegasusForConditionalGeneration"
    assert not any(place.table.weight.requires_grad for place in (copy.source_place, copy.target_place))  # type: ignore[union-attr]
    assert translator_class(in_layout(translator(norm="post"))) == "MarianMTModel"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_copies_keep_their_type(norm: str, dtype: torch.dtype) -> None:
    """Sinusoids that are rounded are still sinusoids, and a token that only fills up is never predicted."""
    copy = in_layout(translator(norm=norm, target=7).to(dtype))
    assert {parameter.dtype for parameter in copy.parameters()} == {dtype}
    assert translator_class(copy) == ("MarianMTModel" if norm == "post" else "PegasusForConditionalGeneration")
    assert copy.output.bias.isfinite().all()
    assert (copy.output.bias[7:] < -1e4).all()
