"""Options after the name of a gate: `se:reduction=4`."""

import pytest
import torch
from tests.for_each import for_each
from torch import nn

import regard
from regard.gates.catalogue import CONFIGURABLE, GATES, gate_factory
from regard.tasks.classify_image.options import ClassifyImage

TEXTS = {
    "se": "se:reduction=2:hidden=3:activation=gelu:normalize=entmax",
    "eca": "eca:kernel=5",
    "channel": "channel:reduction=2",
    "spatial-conv": "spatial-conv:kernel=3",
    "cbam": "cbam:reduction=2:kernel=3",
    "bam": "bam:reduction=2:dilation=2",
    "simam": "simam:lam=0.1",
}


@for_each("name", CONFIGURABLE)
def test_every_option_is_read(name: str) -> None:
    """One text per gate with all of its options; the gate differs from that of the name alone."""
    text = TEXTS[name]
    assert [option.partition("=")[0] for option in text.split(":")[1:]] == list(CONFIGURABLE[name].readers)
    x = torch.randn(2, 7, 5, 8)
    torch.manual_seed(0)
    plain = regard.gate(name, 7).eval()
    torch.manual_seed(0)
    varied = regard.gate(text, 7).eval()
    assert type(plain) is type(varied)
    assert not torch.allclose(plain(x), varied(x))
    assert regard.gate(text, 7, dims=3)(torch.randn(2, 7, 3, 2, 5)).shape == (2, 7, 3, 2, 5)


def test_a_name_alone_is_that_of_the_catalogue() -> None:
    assert gate_factory("se") is GATES["se"]


def test_options_are_the_arguments() -> None:
    made = regard.gate("se:reduction=4:activation=none:normalize=softmax", 16)
    assert made.down.out_features == 4
    assert isinstance(made.activation, nn.Identity)
    assert isinstance(made.normalize, regard.Softmax)
    w = made.weights(torch.randn(3, 16, 5, 7))
    torch.testing.assert_close(w.sum(1).flatten(), torch.ones(3))


def test_every_gate_has_its_own_normalizer() -> None:
    make = gate_factory("se:normalize=softmax")
    assert make(8).normalize is not make(8).normalize


def test_in_a_comparison_and_in_insert() -> None:
    variants = ClassifyImage.of().variants(["none", "se:reduction=4", "se:reduction=16", "gap"])
    counts = [sum(p.numel() for p in variant.model.build(1, (8, 8), 10).parameters()) for variant in variants.values()]
    assert counts[1] > counts[2] > counts[0] == counts[3]
    net = nn.Sequential(nn.Conv2d(3, 8, 3))
    (place,) = regard.insert(net, "se:reduction=2", after="0")
    assert place.gate.down.out_features == 4


def test_options_that_are_none() -> None:
    with pytest.raises(ValueError, match="options of a gate are option=value, got 'reduction' in 'se:reduction'; try"):
        regard.gate("se:reduction", 8)
