"""What a native step has beside projections and softmax(q k): norms, rotations, caps, slots, differences, gates."""

import ctypes
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attn.backends.dot_softmax import plain_scale
from regard.attn.heads.differential import Differential
from regard.attn.heads.output_gate import OutputGate
from regard.attn.heads.qk_norm import L2QKNorm, LayerQKNorm, QKNorm, RMSQKNorm, WholeRMSQKNorm
from regard.attn.layer import Attention
from regard.attn.terms.normalizer import Softmax, WithNullSlot
from regard.attn.terms.rotary import Rotary
from regard.attn.terms.soft_cap import SoftCap
from regard.kernels.decoder_step import StepParts

# the kinds of norms in csrc/native.c
_NORMS: dict[type[QKNorm], int] = {RMSQKNorm: 1, WholeRMSQKNorm: 2, LayerQKNorm: 3, L2QKNorm: 4}


class NativeParts(NamedTuple):
    """The factor on q·k, the other parts (None: there are none), and the tensors that these point to."""

    scale: float
    parts: StepParts | None
    tensors: list[Tensor]  # parameters
    constants: list[Tensor]


def native_parts(heads: Any) -> NativeParts | None:
    """The parts of a MultiHead as a native step reads them; None if it has others."""
    attention = heads.attention
    if type(attention) is not Attention or attention.bias is not None or attention.backend is not None:
        return None
    known = heads.qk_norm, heads.rotate, heads.difference, heads.gate
    if any(all(part is not each for each in known) for part in heads.extra_parts):
        return None
    if attention.training and attention.dropout:
        return None
    score, normalize, sink = attention.score, attention.normalize, None
    if type(normalize) is WithNullSlot:
        sink, normalize = normalize.score, normalize.normalize
    cap = score.cap if type(score) is SoftCap else 0.0
    scale = plain_scale(score.score if type(score) is SoftCap else score, normalize, attention.read, heads.head_dim)
    if scale is None:
        return None
    if not cap and sink is None and not heads.extra_parts:
        return NativeParts(scale, None, [], [])
    assert isinstance(normalize, Softmax)
    temperature, parts = normalize.temperature or 1.0, StepParts()
    tensors: list[Tensor] = []
    constants: list[Tensor] = []
    parts.cap, parts.cooling, parts.base = cap, 1.0 / temperature, 0.0
    if sink is not None:
        if not isinstance(sink, Tensor):
            sink = torch.tensor([float(sink)], dtype=heads.query.weight.dtype)
            constants.append(sink)
        elif sink.numel() in (1, heads.heads):
            tensors.append(sink)
        else:
            return None
        parts.sink, parts.sink_step = sink.data_ptr(), int(sink.numel() > 1)
    if heads.qk_norm is not None and not _add_norm(parts, heads, tensors):
        return None
    if heads.rotate is not None:
        if type(heads.rotate) is not Rotary or heads.rotate.dim != heads.head_dim:
            return None
        parts.pairs, parts.neighbours = heads.rotate.rotary_dim // 2, heads.rotate.pairs == "neighbours"
    if heads.difference is not None and not _add_difference(parts, heads, tensors):
        return None
    if heads.gate is not None and not _add_gate(parts, heads, tensors):
        return None
    return NativeParts(scale * temperature, parts, tensors, constants)


def _add_norm(parts: StepParts, heads: Any, tensors: list[Tensor]) -> bool:
    """Writes the norm of queries and keys; False if it is of another class, or its parameters of another size."""
    norm = heads.qk_norm
    if type(norm) not in _NORMS:
        return False
    parts.norm = _NORMS[type(norm)]
    sizes = [heads.head_dim, heads.head_dim]
    if isinstance(norm, LayerQKNorm):
        parts.eps = norm.query.eps
        gains: list[Tensor | None] = [norm.query.weight, norm.key.weight]
        offsets: list[Tensor | None] = [norm.query.bias, norm.key.bias]
    else:
        parts.eps = norm.eps
        if isinstance(norm, WholeRMSQKNorm):
            sizes = [heads.heads * heads.head_dim, heads.kv_heads * heads.head_dim]
        elif isinstance(norm, L2QKNorm):
            sizes = [1, 1]
        gains = [norm.scale, None] if isinstance(norm, L2QKNorm) else [norm.query_gain, norm.key_gain]
        offsets = [None, None]
        parts.base = norm.offset if isinstance(norm, RMSQKNorm) else 0.0
    if any(t is not None and t.numel() != size for t, size in zip(gains + offsets, sizes * 2, strict=True)):
        return False
    parts.gain, parts.offset = _addresses(gains), _addresses(offsets)
    tensors += [t for t in (*gains, *offsets) if t is not None]
    return True


def _add_difference(parts: StepParts, heads: Any, tensors: list[Tensor]) -> bool:
    """Writes the difference of maps; False if it is of another class, or its vectors and norm of another width."""
    difference = heads.difference
    if type(difference) is not Differential or "subtract" in difference.__dict__ or heads.heads % 2:
        return False
    norm = difference.norm
    if type(norm) is not torch.nn.RMSNorm or norm.weight is not None or norm.normalized_shape != (2 * heads.head_dim,):
        return False
    vectors = [difference.query_1, difference.key_1, difference.query_2, difference.key_2]
    if norm.eps is None or any(vector.numel() != heads.head_dim for vector in vectors):
        return False
    parts.difference = (ctypes.c_void_p * 4)(*(vector.data_ptr() for vector in vectors))
    parts.start, parts.difference_eps = difference.start, norm.eps
    tensors += vectors
    return True


def _add_gate(parts: StepParts, heads: Any, tensors: list[Tensor]) -> bool:
    """Writes the gate of the output; False if it is of another class, or its layer is quantized."""
    gate = heads.gate
    if type(gate) is not OutputGate or type(gate.map) is not torch.nn.Linear:
        return False
    gates = gate.heads * gate.channels
    outputs = heads.heads if heads.difference is None else heads.heads // 2
    if gate.heads != outputs or tuple(gate.map.weight.shape) != (gates, heads.query.in_features):
        return False
    if gate.map.bias is not None and tuple(gate.map.bias.shape) != (gates,):
        return False
    parts.gate, parts.gates = _addresses([gate.map.weight, gate.map.bias]), gates
    tensors += [t for t in (gate.map.weight, gate.map.bias) if t is not None]
    return True


def _addresses(pair: list[Tensor | None]) -> Any:
    return (ctypes.c_void_p * 2)(*(None if t is None else t.data_ptr() for t in pair))
