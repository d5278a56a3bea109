"""Gates in networks that exist: behind the right modules, on any output, and out again without a trace."""

import copy
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor, nn

from regard.gates.catalogue import GATES
from regard.gates.insert import insert, remove


class Half(nn.Module):
    """Nothing learned."""

    def forward(self, x: Tensor) -> Tensor:
        return x / 2


class Scale(nn.Module):
    """One factor a channel, axis 1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.arange(2.0, 2.0 + channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor.view(1, -1, *[1] * (x.ndim - 2))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm(self.conv(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 5, 3)
        self.layer1 = nn.Sequential(Block(5), Block(5))
        self.layer2 = nn.Sequential(nn.Conv2d(5, 7, 1), Block(7))
        self.head = nn.Linear(7, 2)
        self.idle = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer2(self.layer1(self.stem(x))).mean((2, 3)))


X = torch.randn(2, 3, 6, 8)


@pytest.fixture
def net() -> Net:
    return Net().eval()


def names(places: tuple[Any, ...]) -> list[str]:
    return [place.name for place in places]


def test_behind_what_a_glob_chooses(net: Net) -> None:
    want = net.layer2(Scale(5)(net.layer1(Scale(5)(net.stem(X)))))
    places = insert(net, Scale, after=["stem", "layer1"], example=X)
    assert names(places) == ["stem", "layer1.1"]
    torch.testing.assert_close(net.layer2(net.layer1(net.stem(X))), want)


def test_a_star_does_not_cross_a_dot(net: Net) -> None:
    assert names(insert(net, Scale, after="layer*", example=X)) == ["layer1.1", "layer2.1"]
    assert names(insert(net, Scale, after="layer1.*", example=X)) == ["layer1.0", "layer1.1"]


def test_by_type_and_by_function(net: Net) -> None:
    assert names(insert(net, Scale, after=nn.Conv2d)) == [
        "stem",
        "layer1.0.conv",
        "layer1.1.conv",
        "layer2.0",
        "layer2.1.conv",
    ]
    chosen = insert(net, Scale, after=lambda name, module: name.endswith("norm"))
    assert [place.gate.factor.numel() for place in chosen] == [5, 5, 7]


def test_a_second_gate_takes_the_place_of_the_first(net: Net) -> None:
    want = Half()(net.stem(X))
    insert(net, Scale, after="stem")
    (second,) = insert(net, lambda channels: Half(), after="stem")
    assert second.child == "inserted"
    torch.testing.assert_close(net.stem(X), want)
    assert [entry.gate for entry in remove(net)] == [second.gate]


@for_each("name", GATES)
def test_gates_by_name(net: Net, name: str) -> None:
    (place,) = insert(net, name, after="layer2", example=X)
    assert type(place.gate) is type(GATES[name](7, 2))
    assert net(X).shape == (2, 2)


def test_a_gate_by_name_fits_the_axes() -> None:
    """Signals have one spatial axis, tokens too; a convolution and a norm tell theirs without an example."""
    signals = nn.Sequential(nn.Conv1d(3, 8, 3), nn.BatchNorm1d(8))
    for example in (None, torch.randn(2, 3, 9)):
        insert(signals, "cbam", after=["0", "1"], example=example)
        assert signals(torch.randn(2, 3, 9)).shape == (2, 8, 7)
    tokens = nn.Sequential(nn.Linear(3, 8))
    for example in (None, torch.randn(2, 9, 3)):
        insert(tokens, "cbam", after="0", example=example, layout="last")
        assert tokens(torch.randn(2, 9, 3)).shape == (2, 9, 8)


def test_the_model_is_whole_again(net: Net) -> None:
    before, keys = net(X), list(net.state_dict())
    hooks = {name: (len(m._forward_hooks), list(m._modules)) for name, m in net.named_modules()}
    insert(net, Scale, after=["stem", "layer*"], example=X)
    insert(net, lambda channels: Half(), after=Block, example=X)
    assert not torch.equal(net(X), before)
    assert names(remove(net)) == ["stem", "layer1.0", "layer1.1", "layer2.1"]
    assert remove(net) == ()
    assert torch.equal(net(X), before)
    assert list(net.state_dict()) == keys
    assert {name: (len(m._forward_hooks), list(m._modules)) for name, m in net.named_modules()} == hooks
    assert not any(m._load_state_dict_post_hooks or m._load_state_dict_pre_hooks for m in net.modules())


def test_a_gate_with_nothing_learned_changes_no_key(net: Net) -> None:
    old = net.state_dict()
    insert(net, lambda channels: Half(), after=Block, example=X)
    assert list(net.state_dict()) == list(old)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.load_state_dict(old)


def test_an_older_checkpoint_loads_and_the_new_keys_are_named(net: Net) -> None:
    old = copy.deepcopy(net.state_dict())
    insert(net, Scale, after=["stem", "layer2"], example=X)
    with pytest.warns(UserWarning, match="the state_dict has no") as caught:
        net.load_state_dict(old)
    assert [str(one.message) for one in caught] == [
        "the state_dict has no stem.inserted.factor, layer2.1.inserted.factor: "
        "the inserted gates keep their present weights"
    ]
    assert caught[0].filename == __file__
    whole = nn.ModuleDict({"net": net})
    with pytest.warns(UserWarning, match=r"the state_dict has no net\.stem\.inserted\.factor, net\.layer2\.1\."):
        whole.load_state_dict({f"net.{key}": value for key, value in old.items()})
    with pytest.warns(UserWarning, match=r"the state_dict has no 1\.inserted\.factor"):
        net.layer2.load_state_dict({k.removeprefix("layer2."): v for k, v in old.items() if k.startswith("layer2.")})
    insert(net, Scale, after=Block, example=X)
    with pytest.warns(UserWarning, match=r"the state_dict has no stem\.inserted\.factor, .* and 1 more: ") as caught:
        copy.deepcopy(net).load_state_dict(old)
    assert len(caught) == 1
    # its own checkpoint loads in silence, and one with a key too few is an error as ever
    own = net.state_dict()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.load_state_dict(own)
    del own["stem.bias"]
    with pytest.raises(RuntimeError, match=r"stem\.bias"):
        net.load_state_dict(own)


def test_gates_are_trained_moved_and_copied_with_the_model(net: Net) -> None:
    (place,) = insert(net.double().train(), Scale, after="stem")
    assert place.gate.training
    assert place.gate.factor.dtype == torch.float64
    other = copy.deepcopy(net)
    other.stem.inserted.factor.data.zero_()
    assert float(other.stem(X.double()).detach().abs().max()) == 0
    assert float(net.stem(X.double()).detach().abs().max()) > 0
    net(X.double()).sum().backward()
    assert place.gate.factor.grad is not None


@dataclass
class Out:
    first: Tensor
    second: int


class Several(nn.Module):
    """A convolution whose output is wrapped up."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind, self.inner = kind, nn.Conv2d(3, 5, 1)

    def forward(self, x: Tensor) -> Any:
        return self.kind(self.inner(x))


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (lambda x: (x, 1), lambda out: out),
        (lambda x: [x, 1], lambda out: out),
        (lambda x: {"first": x, "second": 1}, lambda out: out.values()),
        (lambda x: Out(x, 1), lambda out: (out.first, out.second)),
    ],
)
def test_the_first_part_of_an_output_is_gated(kind: Any, parts: Any) -> None:
    part = Several(kind)
    want = Scale(5)(part.inner(X))
    insert(_Whole(part), Scale, after="part", example=X)
    got = part(X)
    assert type(got) is type(kind(X))
    first, second = parts(got)
    torch.testing.assert_close(first, want)
    assert second == 1


class _Whole(nn.Module):
    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Any:
        return self.part(x)


def test_channels_last() -> None:
    model = nn.ModuleDict({"linear": nn.Linear(3, 5)})
    x = torch.randn(2, 7, 3)
    want = model["linear"](x) * torch.arange(2.0, 7.0)
    insert(model, Scale, after="linear", layout="last")
    torch.testing.assert_close(model["linear"](x), want)


@pytest.mark.parametrize("kind", ["ResNet", "ViT"])
def test_vision_models_of_transformers(kind: str) -> None:
    import transformers

    if kind == "ResNet":
        config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1])
        model, after, layout = transformers.ResNetModel(config).eval(), "encoder.stages.*", "first"
    else:
        config = transformers.ViTConfig(
            hidden_size=12,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=20,
            image_size=16,
            patch_size=8,
        )
        model, layout = transformers.ViTModel(config).eval(), "last"
        after = next(name for name, m in model.named_modules() if type(m).__name__ == "ViTLayer").rpartition(".")[0]
        after += ".*"
    x = torch.randn(1, 3, 16, 16)
    with torch.no_grad():
        before = model(x).last_hidden_state
        places = insert(model, Scale, after=after, example=x, layout=layout)
        assert len(places) == 2
        assert not torch.allclose(model(x).last_hidden_state, before)
        remove(model)
        torch.testing.assert_close(model(x).last_hidden_state, before, rtol=0, atol=0)


def test_compiled_and_exported(net: Net) -> None:
    insert(net, "cbam", after=["stem", "layer1"], example=X)
    want = net(X)
    torch.testing.assert_close(torch.compile(net, fullgraph=True, backend="aot_eager")(X), want)
    torch.testing.assert_close(torch.export.export(net, (X,), strict=False).module()(X), want)


@for_each(
    ("choice", "sentence"),
    [
        ({"after": "layr*"}, r"after='layr\*' selects no module; there are: stem, layer1, layer1\.0, layer1\.0\.conv"),
        ({"after": nn.Conv3d}, "after=Conv3d selects no module; there are: stem"),
        ({"after": None}, "after must be a glob of names, a type, a function or several, got None; try 'layer\\*'"),
        (
            {"after": "head", "make": "se", "example": X},
            r"head returns vectors or more than three spatial axes, and the gate 'se' weights maps \(batch, ch",
        ),
        ({"after": "stem", "make": "see"}, "unknown gate 'see'; did you mean 'se'"),
        (
            {"after": "head"},
            "head is a Linear, whose output may have its channels on any axis; pass layout='last' for tokens",
        ),
        ({"after": "layer1", "layout": "middle"}, "layout must be 'first' or 'last', got 'middle'"),
        (
            {"after": "layer1"},
            r"layer1\.1 is a Block, which does not declare its number of channels; pass example=, an input of the",
        ),
        ({"after": "idle", "example": X}, r"idle did not run in model\(example\); select modules that do"),
        (
            {"after": "stem", "make": Half()},
            "make must be a function .*, got the module Half; every module needs its own",
        ),
        ({"after": "stem", "make": 3}, "make must be a function of a number of channels, got 3; try lambda channels"),
        (
            {"after": "stem", "make": lambda c: c},
            "make must return a module, got int for 5 channels; try lambda channels",
        ),
    ],
)
def test_a_refused_insertion_changes_nothing(net: Net, choice: dict[str, Any], sentence: str) -> None:
    keys = list(net.state_dict())
    with pytest.raises((ValueError, TypeError), match=sentence):
        insert(net, **{"make": Scale, **choice})
    assert list(net.state_dict()) == keys
    assert not any(m._forward_hooks for m in net.modules())


def test_nothing_is_half_done(net: Net) -> None:
    def once(channels: int) -> nn.Module:
        if channels == 7:
            raise RuntimeError("no")
        return Scale(channels)

    with pytest.raises(RuntimeError, match="no"):
        insert(net, once, after=Block, example=X)
    assert not any("inserted" in key for key in net.state_dict())


def test_lists_empty_sequentials_and_outputs_without_a_tensor_are_refused() -> None:
    model = nn.ModuleDict({"list": nn.ModuleList([nn.Linear(2, 2)]), "none": nn.Sequential(), "odd": _Odd()})
    sentence = (
        r"list is an nn\.ModuleList, which has no output of its own; select the modules in it, as in after='list\.\*'"
    )
    with pytest.raises(ValueError, match=sentence):
        insert(model, Scale, after="list")
    with pytest.raises(
        ValueError, match=r"none is an empty nn\.Sequential, which has no last module; select another one"
    ):
        insert(model, Scale, after="none")
    with pytest.raises(TypeError, match="a gate acts on a tensor, but the module returns str; select another module"):
        insert(_Whole(_Odd()), Scale, after="part", example=X)
    with pytest.raises(ValueError, match=r"part returns \(\), which has no axis of channels; select another"):
        insert(_Whole(_Flat()), Scale, after="part", example=X)
    sentence = r"0 returns \(2, 7, 5\), whose channels may be axis 1 or the last; pass layout='last' for tokens"
    with pytest.raises(ValueError, match=sentence):
        insert(nn.Sequential(nn.Linear(3, 5)), Scale, after="0", example=torch.randn(2, 7, 3))
    with pytest.raises(ValueError, match=r"after='x' selects no module; the model has no modules inside"):
        insert(nn.Linear(2, 2), Scale, after="x")


class _Odd(nn.Module):
    def forward(self, x: Tensor) -> str:
        return "odd"


class _Flat(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum()


def test_an_example_of_several_arguments_leaves_the_model_as_it_was(net: Net) -> None:
    net.train()
    net.layer1.eval()
    before = copy.deepcopy(net.state_dict())
    insert(net, Scale, after="layer1", example={"x": X})
    remove(net)
    insert(net, Scale, after="layer1", example=(X,))
    remove(net)
    assert net.training
    assert not net.layer1[0].training
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())
