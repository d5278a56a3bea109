"""Options after the name of a gate: `se:reduction=4`."""

import torch
from tests.for_each import for_each
from torch import nn

import regard
from regard.gates.catalogue import GATES, gate_factory
from regard.tasks.classify_image.options import ClassifyImage

VALUES = {
    "reduction": "2",
    "activation": "gelu",
    "normalize": "entmax",
    "kernel": "5",
    "order": "mean-max",
    "bias": "yes",
    "dilation": "2",
    "combine": "product",
    "min_hidden": "3",
    "heads": "1",
    "d": "5",
    "units": "5",
    "update": "input",
    "select": "sigmoid",
    "dropout": "0.5",
    "lam": "0.1",
    "power": "3",
    "hidden": "3",
    "value": "3",
    "window": "3",
    "frequencies": "2",
    "codewords": "5",
    "groups": "2",
    "extent": "2",
    "far": "5",
    "features": "3",
    "kernels": "3",
    "radix": "3",
}
# other values where these are the default, or change nothing below a least width
OTHERS = {
    ("se", "bias"): "no",
    ("scse", "reduction"): "4",
    ("large-kernel", "kernel"): "3",
    ("selective-kernel", "reduction"): "1",
    ("split", "reduction"): "1",
}


@for_each(("name", "option"), [(name, option) for name, factory in GATES.items() for option in factory.readers])
def test_every_option_changes_the_gate(name: str, option: str) -> None:
    """The options of a gate are the parameters of its constructor."""
    text, x = f"{name}:{option}={OTHERS.get((name, option), VALUES[option])}", torch.randn(2, 64, 5, 8)
    torch.manual_seed(0)
    plain = regard.gate(name, 64)
    torch.manual_seed(0)
    varied = regard.gate(text, 64)
    assert type(plain) is type(varied)
    for module in (plain, varied):
        for parameter in module.parameters():
            if not parameter.any():  # starts at zero, as the residual scale of non-local does
                nn.init.constant_(parameter, 0.7)
    assert not torch.allclose(plain(x), varied(x))
    assert regard.gate(text, 64, dims=3)(torch.randn(2, 64, 3, 2, 5)).shape == (2, 64, 3, 2, 5)


def test_a_name_alone_is_that_of_the_catalogue() -> None:
    assert gate_factory("se") is GATES["se"]


def test_options_are_the_arguments() -> None:
    module = regard.gate("se:reduction=4:activation=none:normalize=softmax", 16)
    assert module.down.out_features == 4
    assert isinstance(module.activation, nn.Identity)
    assert isinstance(module.normalize, regard.Softmax)
    w = module.weights(torch.randn(3, 16, 5, 7))
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
