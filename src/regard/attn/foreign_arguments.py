"""Arguments of torch's attentions that regard spells otherwise: each error names the equivalent."""

import inspect
from collections.abc import Iterable
from typing import NoReturn

# arguments of torch's attentions, and what they are called here; those of one class alone stand behind its name
_EQUIVALENTS = {
    "causal": "pass mask=regard.Causal()",
    "Window.causal": "leave it out: Window(left) is causal, and Window(left, right) is open on both sides",
    **dict.fromkeys(
        ("MultiHead.causal", "MultiHead.is_causal"),
        "pass attention=regard.Attention(mask=regard.Causal()), or mask=regard.Causal() in each call",
    ),
    **{
        f"MultiHead.{term}": f"pass attention=regard.Attention({term}=...), the equation of all heads"
        for term in ("score", "normalize", "read")
    },
    "MultiHead.embed_dim": "it is called dim",
    "MultiHead.d_model": "it is called dim",
    "MultiHead.num_heads": "it is called heads",
    "MultiHead.num_kv_heads": "it is called kv_heads",
    "MultiHead.kdim": "it is called key_dim",
    "MultiHead.vdim": "it is called value_dim",
    **dict.fromkeys(
        ("MultiHead.sinks", "MultiHead.sink", "MultiHead.s_aux", "MultiHead.softmax1"),
        "pass attention=regard.Attention(normalize=regard.normalizers.WithNullSlot(score=regard.Learnable(0.0, "
        "heads=8)))",
    ),
    **dict.fromkeys(
        ("MultiHead.softcap", "MultiHead.soft_cap", "MultiHead.logit_softcapping", "MultiHead.attn_logit_softcapping"),
        "pass attention=regard.Attention(regard.scores.SoftCap(50.0))",
    ),
    **dict.fromkeys(
        ("MultiHead.use_qk_norm", "MultiHead.qk_layernorm", "MultiHead.qk_rmsnorm"),
        "pass qk_norm=regard.layers.RMSQKNorm(head_dim), or another QKNorm",
    ),
    "MultiHead.batch_first": "leave it out: the batch is the first axis",
    "is_causal": "pass mask=regard.Causal()",
    "key_padding_mask": "pass mask=regard.Lengths(lengths), or mask=~key_padding_mask[:, None]: True may attend",
    "attn_mask": "pass booleans as mask=, where True may attend, and numbers to be added to the scores as a bias",
    "need_weights": "call attend(..., need=regard.Need(weights=True)), whose result has them",
    "average_attn_weights": "call attend(..., need=regard.Need(weights=True)), and take weights.mean(-3)",
    "dropout_p": "it is called dropout",
    "scale": "pass score=regard.Dot(scale=...)",
    "enable_gqa": "leave it out: k and v may have fewer heads than q",
}


def refuse_arguments(owner: str, names: Iterable[str]) -> NoReturn:
    """Raises for arguments that `owner` does not have, and names the equivalent of those of torch's attentions."""
    name = next(iter(names))
    hint = _equivalent(owner, name) or f"help({owner}) lists those it has"
    raise TypeError(f"{owner} has no argument {name}; {hint}")


def refuse_equivalents(owner: type, names: Iterable[str]) -> None:
    """Raises for arguments of torch's attentions that the constructor of `owner` does not have."""
    foreign = [name for name in names if _equivalent(owner.__name__, name) is not None]
    parameters = inspect.signature(owner).parameters if foreign else {}
    unknown = [name for name in foreign if name not in parameters]
    if unknown:
        refuse_arguments(owner.__name__, unknown)


def _equivalent(owner: str, name: str) -> str | None:
    return _EQUIVALENTS.get(f"{owner}.{name}") or _EQUIVALENTS.get(name)
