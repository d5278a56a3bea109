"""Checks a name against the known names and suggests the nearest. No torch here: the command line uses it too."""

import difflib
from collections.abc import Iterable, Sequence

# names that an error lists; of more, such as the tokens of a vocabulary, the first few
_MOST, _FEW = 50, 10


# names of papers, tutorials and other libraries, without dashes and capitals, and the names here: those that are known
_SYNONYMS = {
    "learningrate": ("lr",),
    "batchsize": ("batch",),
    "numlayers": ("layers",),
    "numheads": ("heads",),
    "hiddensize": ("width",),
    "dmodel": ("width",),
    "embeddim": ("width",),
    "epochs": ("steps",),
    "maxsteps": ("steps",),
    "outputdir": ("out",),
    "output": ("out",),
    "dataset": ("data",),
    "multiheadattention": ("MultiHead", "multi-head"),
    "selfattention": ("MultiHead", "multi-head"),
    "crossattention": ("MultiHead", "multi-head"),
    "dotproduct": ("Dot", "dot"),
    "scaleddotproduct": ("Dot", "scaled-dot"),
    "bahdanau": ("Additive", "additive"),
    "luong": ("Bilinear", "general"),
    "multiplicative": ("Bilinear", "general"),
    "slidingwindow": ("Window", "window"),
    "rope": ("Rotary", "rotary"),
    "gqa": ("grouped",),
    "mqa": ("multi-query",),
    "mla": ("Latent", "latent"),
    "multiheadlatent": ("Latent", "latent"),
    "softmax1": ("WithNullSlot", "null"),
    "offbyone": ("WithNullSlot", "null"),
    "quietattention": ("WithNullSlot", "null"),
    "attentionsink": ("WithNullSlot", "sink"),
    "sinks": ("WithNullSlot", "sink"),
    "softcapping": ("SoftCap", "soft-cap"),
    "logitcap": ("SoftCap", "soft-cap"),
    "qklayernorm": ("LayerQKNorm", "qk-norm"),
    "querykeynorm": ("RMSQKNorm", "qk-norm"),
    "gatedattention": ("OutputGate", "output-gate"),
    "difftransformer": ("Differential", "differential"),
    "senet": ("SqueezeExcite", "se"),
    "squeezeexcitation": ("SqueezeExcite", "se"),
    "squeezeandexcitation": ("SqueezeExcite", "se"),
    "ner": ("tag",),
    "tokenclassification": ("tag",),
    "textclassification": ("classify-text",),
    "sentiment": ("classify-text",),
    "imageclassification": ("classify-image",),
    "translation": ("translate",),
    "questionanswering": ("read",),
    "nli": ("match",),
    "speechrecognition": ("transcribe",),
    "asr": ("transcribe",),
    "languagemodelling": ("language-model",),
    "mlm": ("masked-lm",),
}


def known(kind: str, name: object, names: Iterable[str], prefix: str = "") -> None:
    """Raises if `name` is not one of `names`; the error suggests the nearest one, by what follows the `prefix`."""
    names = list(names)
    if name in names:
        return
    if not isinstance(name, str):
        raise TypeError(f"{kind} must be a name, got {name!r}; known are: {listed(names)}")
    ends = [each.removeprefix(prefix) for each in names]
    raise ValueError(
        f"unknown {kind} {name!r}; {suggestion(name.removeprefix(prefix), ends, prefix)}known are: {listed(names)}"
    )


def suggestion(name: str, names: Iterable[str], prefix: str = "") -> str:
    """The question for the nearest of the names, which stands behind the prefix; empty if none is near."""
    near = nearest(name, names)
    return "" if near is None else f"did you mean {prefix + near!r}? "


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that is meant by another one: a synonym, or one that is spelt almost like it."""
    names = list(names)
    plain = name.lower().replace("-", "").replace("_", "").replace(" ", "")
    for synonym in _SYNONYMS.get(plain, ()):
        if synonym in names:
            return synonym
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return near[0] if near else None


def listed(names: Sequence[str]) -> str:
    if len(names) <= _MOST:
        return ", ".join(names)
    return f"{', '.join(names[:_FEW])} and {len(names) - _FEW:,} more"
