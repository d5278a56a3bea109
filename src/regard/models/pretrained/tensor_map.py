"""TensorMap: which tensors of a released checkpoint are which parameters of a model, in both directions."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.common import checks

# the types of weights that stand for themselves: smaller ones need scales
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class TensorMap:
    """theirs = [ours₁; ours₂; …], joined along the first axis, transposed if they keep linears as (in, out).

    `axes` is the number of leading axes of size one that theirs has before those of ours. With `groups` the rows of
    theirs are those of as many heads, each with a part of all ours.
    """

    theirs: str
    ours: tuple[str, ...]
    transposed: bool = False
    axes: int = 0
    groups: int = 1

    def shape(self, parameters: Mapping[str, Tensor]) -> tuple[int, ...]:
        """The shape of their tensor."""
        first = parameters[self.ours[0]].shape
        shape = (sum(parameters[name].shape[0] for name in self.ours), *first[1:])
        return (1,) * self.axes + (shape[::-1] if self.transposed else shape)

    def split(self, tensor: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Our tensors, of theirs."""
        tensor = tensor.reshape(tensor.shape[self.axes :])
        tensor = tensor.T if self.transposed and tensor.ndim == 2 else tensor
        sizes = [parameters[name].shape[0] // self.groups for name in self.ours]
        parts = [part.flatten(0, 1) for part in tensor.unflatten(0, (self.groups, -1)).split(sizes, 1)]
        return dict(zip(self.ours, parts, strict=True))

    def join(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """Their tensor, of ours."""
        parts = [parameters[name].unflatten(0, (self.groups, -1)) for name in self.ours]
        tensor = torch.cat(parts, 1).flatten(0, 1)
        tensor = tensor.T if self.transposed and tensor.ndim == 2 else tensor
        return tensor.reshape((1,) * self.axes + tuple(tensor.shape))


def linear_maps(pairs: Sequence[tuple[str, str]], *, bias: bool = True) -> Iterator[TensorMap]:
    """The weight and the bias of layers, by pairs of their name and ours."""
    for theirs, ours in pairs:
        yield TensorMap(f"{theirs}.weight", (f"{ours}.weight",))
        if bias:
            yield TensorMap(f"{theirs}.bias", (f"{ours}.bias",))


def layer_maps(model: Any, theirs: str, ours: str, attention: str, norms: tuple[str, str]) -> Iterator[TensorMap]:
    """The layers of an encoder and its pooler; `attention` and `norms` are the names of heads and norms in theirs."""
    pairs = {
        f"attention.{attention}.query": "attention.query",
        f"attention.{attention}.key": "attention.key",
        f"attention.{attention}.value": "attention.value",
        "attention.output.dense": "attention.out",
        norms[0]: "around_attention.norm",
        "intermediate.dense": "feed.inner",
        "output.dense": "feed.outer",
        norms[1]: "around_feed.norm",
    }
    for n in range(len(model.layers)):
        layer = f"{theirs}.encoder.layer.{n}"
        yield from linear_maps([(f"{layer}.{name}", f"{ours}layers.{n}.{part}") for name, part in pairs.items()])
    if model.pooler is not None:
        yield from linear_maps([(f"{theirs}.pooler.dense", f"{ours}pooler.linear")])


def resolve_aliases(tensors: dict[str, Tensor], aliases: Mapping[str, str], folder: Path) -> None:
    """Renames each alias to the name that it stands for, if the checkpoint has no tensor of this name.

    A copy stays, for `check_copies` to compare once the shapes are checked; one of another shape raises.
    """
    for alias, name in aliases.items():
        if alias not in tensors:
            continue
        if name not in tensors:
            tensors[name] = tensors.pop(alias)
        elif tensors[alias].shape != tensors[name].shape:
            raise _differ(alias, name, folder)


def check_copies(tensors: dict[str, Tensor], aliases: Mapping[str, str], folder: Path) -> None:
    """Removes copies of shared tensors, and raises if one differs from the tensor that the model shares."""
    for alias, name in aliases.items():
        copy = tensors.pop(alias, None)
        if copy is not None and not torch.equal(copy, tensors[name]):
            raise _differ(alias, name, folder)


def _differ(alias: str, name: str, folder: Path) -> ValueError:
    return ValueError(
        f"{alias!r} and {name!r} of {folder} must be one tensor, as regard's model shares it, but they differ; "
        "take a checkpoint with tied embeddings"
    )


def check_tensors(model: nn.Module, tensors: Mapping[str, Tensor], maps: Sequence[TensorMap], folder: Path) -> None:
    """Raises unless every parameter of the model, whose values are not read, has a tensor of its shape."""
    parameters = model.state_dict(keep_vars=True)
    for tensor_map in maps:
        shape = tensor_map.shape(parameters)
        tensor = tensors.get(tensor_map.theirs)
        if tensor is None:
            raise ValueError(
                f"{folder} has no tensor {tensor_map.theirs!r}, of shape {_shape(shape)} by its config.json; "
                "save the model there again with save_pretrained"
            )
        if tuple(tensor.shape) != shape:
            raise ValueError(
                f"tensor {tensor_map.theirs!r} of {folder} has shape {checks.shape(tensor)}, "
                f"and its config.json asks for {_shape(shape)}; restore the config.json of these weights"
            )
        if tensor.dtype not in _DTYPES:
            raise ValueError(
                f"tensor {tensor_map.theirs!r} of {folder} has the type {tensor.dtype}, and regard reads "
                "float64, float32, float16 and bfloat16; take a checkpoint that is not quantized"
            )


@torch.no_grad()
def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor], maps: Sequence[TensorMap]) -> None:
    """Copies checked tensors into the parameters of the model."""
    parameters = model.state_dict(keep_vars=True)
    for tensor_map in maps:
        for name, part in tensor_map.split(tensors[tensor_map.theirs], parameters).items():
            parameters[name].copy_(part)


def unused_tensors(tensors: Mapping[str, Tensor], maps: Sequence[TensorMap], buffers: str) -> tuple[str, ...]:
    """The names of tensors that no map reads and that are not `buffers`, a pattern of constants."""
    read = {tensor_map.theirs for tensor_map in maps}
    return tuple(sorted(name for name in tensors if name not in read and not re.fullmatch(buffers, name)))


def _shape(shape: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"
