"""quantize: 8-bit weights inside a model that is already trained, for inference.

    report = regard.quantize(model)           the Linear layers and embeddings of the model, in place
    print(report.explain())                   how many bytes are left, which layers stay as they are, which kernel runs

w ≈ scale · n, n from −127 to 127, one scale per output of a layer, or per row of an embedding.
"""

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.attn.quantized_linear import QuantizedEmbedding, QuantizedLinear
from regard.attn.terms.position import LearnedPositions
from regard.common import checks
from regard.kernels.int8_linear import Int8Matrix, native_reason, quantize_matrix
from regard.kernels.native_library import instruction_set
from regard.layers.adaptive_embedding import AdaptiveEmbedding
from regard.losses.vocabulary import AdaptiveSoftmax

ACTIVATIONS = ("int8", "float32")
# fewest elements of a weight in 8 bits: smaller ones save no memory, and often decide a class
LEAST = 1024
_OWNERS = (LearnedPositions, AdaptiveEmbedding, AdaptiveSoftmax)


@dataclass(frozen=True)
class Quantization:
    """The layers of a model that have 8-bit weights now, the others with the reason, and the size of all weights."""

    layers: tuple[str, ...]
    kept: Mapping[str, str]  # names of layers that stay as they are, and why
    activations: str
    bytes_before: int
    bytes_after: int
    kernel: str  # the kernel that multiplies, in one sentence
    frozen: tuple[str, ...] = ()  # names of parameters that had a gradient before, such as those of adapters

    @property
    def ratio(self) -> float:
        """The size of the weights as a part of the size before."""
        return self.bytes_after / max(self.bytes_before, 1)

    def explain(self) -> str:
        """A sentence per layer: quantised or not, and why, and the kernel that runs."""
        lines = [
            f"{len(self.layers)} layers have 8-bit weights, with activations in {self.activations}",
            f"{self.bytes_after:,} bytes of weights, {self.ratio:.3f} of the {self.bytes_before:,} before",
            self.kernel,
            *([f"{self._frozen()}; train the model before regard.quantize"] if self.frozen else []),
            *(f"kept {name}: {reason}" for name, reason in self.kept.items()),
        ]
        return "\n".join(lines)

    def _frozen(self) -> str:
        names = ", ".join(self.frozen[:3]) + (", …" if len(self.frozen) > 3 else "")
        return f"nothing trains any more: {len(self.frozen)} parameters had gradients, {names}"


def quantize(model: nn.Module, *, activations: str = "int8", keep: Collection[str] = ()) -> Quantization:
    """Replaces the Linear layers and embeddings of a model by layers with 8-bit weights, in place, for inference.

    `activations` are rounded to 8 bits row by row, or stay in "float32": less error, less speed. `keep` are names of
    layers that stay as they are; so do weights of fewer than 1,024 numbers, learned positions, and layers with hooks.
    Layers that share a weight share its 8-bit form. The model is set to evaluation mode and refuses gradients.
    """
    checks.instance_of("model", model, nn.Module, "your model")
    checks.known("activations", activations, ACTIVATIONS)
    layers, kept = _candidates(model)
    _check_keep(model, keep)
    for names in layers.values():
        if kept_name := next((name for name in names if name in keep), None):
            kept.update(dict.fromkeys(names, "it was asked for" if len(names) == 1 else f"it shares {kept_name}"))
    chosen = {weight: names for weight, names in layers.items() if names[0] not in kept}
    if not chosen and is_quantized(model):
        raise ValueError(f"{type(model).__name__} has 8-bit weights already; quantize a model once")
    if not chosen:
        dtypes = {module.weight.dtype for _, module in _named_layers(model)}
        if dtypes and torch.float32 not in dtypes:
            types = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
            raise ValueError(f"the weights of {type(model).__name__} are {types}; call model.float() before quantize")
        raise ValueError(
            f"{type(model).__name__} has no Linear layer or embedding of {LEAST:,} numbers that could have 8-bit "
            "weights; keep fewer layers, or take a larger model"
        )
    before, frozen = _size(model), tuple(name for name, p in model.named_parameters() if p.requires_grad)
    # all before the first is replaced: a weight that cannot have 8 bits leaves the model as it is
    matrices = [_quantized_weight(model, names[0], activations == "float32") for names in chosen.values()]
    for names, matrix in zip(chosen.values(), matrices, strict=True):
        for name in names:
            replace_module(model, name, _quantized(model.get_submodule(name), matrix))
    _leave_fast_paths(model)
    for module in model.modules():
        if callable(getattr(module, "save_pretrained", None)):
            module.__dict__["save_pretrained"] = _refuse_saving
    model.requires_grad_(False).eval()
    done = tuple(name for names in chosen.values() for name in names)
    return Quantization(done, kept, activations, before, _size(model), kernel_sentence(model), frozen)


def quantize_like(model: nn.Module, tensors: Container[str], activations: str) -> None:
    """Gives a model the layers with 8-bit weights that a state has; their numbers are loaded afterwards."""
    keep = [name for name in quantizable(model) if f"{name}.packed" not in tensors]
    quantize(model, activations=activations, keep=keep)


def quantizable(model: nn.Module) -> list[str]:
    """The names of the layers that can have 8-bit weights."""
    return [name for names in _candidates(model)[0].values() for name in names]


def is_quantized(model: nn.Module) -> bool:
    """Whether a layer of the model has 8-bit weights."""
    return any(isinstance(module, QuantizedLinear | QuantizedEmbedding) for module in model.modules())


def kernel_sentence(model: nn.Module) -> str:
    """The kernel that multiplies the 8-bit weights of a model where it is now, and the reason against others."""
    reason = _torch_reason(model)
    if reason is None:
        return f"native 8-bit products run, on {instruction_set()}"
    return f"8-bit weights are multiplied by torch, which is slow: {reason}"


def is_native_model(model: nn.Module) -> bool:
    """Whether the native kernels multiply the 8-bit weights of a model where it is now."""
    return _torch_reason(model) is None


def _torch_reason(model: nn.Module) -> str | None:
    linear = next((module for module in model.modules() if isinstance(module, QuantizedLinear)), None)
    if linear is None:
        return None
    x = torch.empty(0, linear.in_features, dtype=linear.scale.dtype, device=linear.scale.device)
    return native_reason(x, linear.matrix)


def _candidates(model: nn.Module) -> tuple[dict[int, list[str]], dict[str, str]]:
    """Names of the layers that can have 8-bit weights, by the identity of their weight; and the others, with why."""
    layers: dict[int, list[str]] = {}
    kept: dict[str, str] = {}
    owned = {
        id(module): type(owner).__name__
        for owner in model.modules()
        if isinstance(owner, _OWNERS)
        for module in owner.modules()
    }
    for name, module in _named_layers(model):
        if id(module) in owned:
            kept[name] = f"{owned[id(module)]} reads its weight"
        elif (reason := _reason(module)) is not None:
            kept[name] = reason
        else:
            layers.setdefault(id(module.weight), []).append(name)
    return layers, kept


def _named_layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """All modules that are linear layers or embeddings, under every name that they have."""
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, nn.Linear | nn.Embedding) or _is_conv1d(module):
            yield name, module


def _is_conv1d(module: nn.Module) -> bool:
    """Whether the module is the linear layer of GPT-2 in transformers, whose weight is (in, out)."""
    return type(module).__name__ == "Conv1D" and type(module).__module__ == "transformers.pytorch_utils"


def _reason(module: Any) -> str | None:
    """The reason that a layer cannot have 8-bit weights; None if it can."""
    if type(module) not in (nn.Linear, nn.Embedding) and not _is_conv1d(module):
        return f"{type(module).__name__} is another class than nn.Linear"
    if module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__:
        return "it has hooks, which another layer would not call"
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return "max_norm changes its weight at every call"
    if module.weight.numel() < LEAST:
        return f"its weight has fewer than {LEAST:,} numbers"
    if module.weight.dtype != torch.float32:
        return f"its weight is {module.weight.dtype}, not float32"
    return None


def _check_keep(model: nn.Module, keep: Collection[str]) -> None:
    if isinstance(keep, str):
        raise ValueError(f"keep must be a collection of names of layers, got {keep!r}; pass [{keep!r}]")
    modules = dict(model.named_modules(remove_duplicate=False))
    for name in keep:
        if name not in modules:
            raise ValueError(
                f"keep has {name!r}, which is no layer of {type(model).__name__}; take names of model.named_modules()"
            )


def _quantized_weight(model: nn.Module, name: str, is_float: bool) -> Int8Matrix:
    try:
        return quantize_matrix(_matrix_of(model.get_submodule(name)), is_float)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _matrix_of(module: Any) -> Tensor:  # "f d"
    weight: Tensor = module.weight
    return weight.T if _is_conv1d(module) else weight


def _quantized(module: Any, matrix: Int8Matrix) -> nn.Module:
    if isinstance(module, nn.Embedding):
        return QuantizedEmbedding(matrix, module.padding_idx)
    return QuantizedLinear(matrix, module.bias)


def replace_module(model: nn.Module, name: str, module: nn.Module) -> None:
    """Puts a module into the place of the one with this name."""
    if not name:
        raise ValueError("a single layer cannot be replaced inside itself; wrap it: nn.Sequential(layer)")
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)


def _leave_fast_paths(model: nn.Module) -> None:
    """Makes torch's encoder layers call their linear layers: their fast path reads weights, as floats at every call."""
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer) and is_quantized(module):
            # the condition for the fast path that belongs to a layer alone
            module.activation_relu_or_gelu = 0
        elif isinstance(module, nn.TransformerEncoder) and is_quantized(module):
            # packed texts, which the fast path alone reads
            module.use_nested_tensor = False


def _refuse_saving(*args: Any, **kwargs: Any) -> None:
    """In the place of save_pretrained of a model of transformers, whose from_pretrained reads no 8-bit weights."""
    raise ValueError(
        "save_pretrained would write 8-bit weights that from_pretrained does not read; save model.state_dict(), "
        "and load it by load_state_dict into the original model after the same regard.quantize"
    )


def _size(model: nn.Module) -> int:
    """Bytes of all parameters and buffers; a shared one counts once."""
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}
    return sum(t.nbytes for t in tensors.values())
