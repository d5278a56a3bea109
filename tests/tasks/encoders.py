"""Tiny pretrained encoders: a BERT and a ViT in transformers' layout with random weights, and a run of masked-lm."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers

from regard.tasks.registry import TASKS
from regard.training.config import TrainingConfig
from regard.training.fit import fit

LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *".,-", *LETTERS, *(f"##{letter}" for letter in LETTERS)),
    *("good", "bad", "film", "it", "was", "trip", "to", "##ing"),
]


def bert_folder(folder: Path, kind: str = "BertModel", longest: int = 40, **choices: Any) -> Path:
    """A BERT of any head with BERT's word pieces, made by transformers."""
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 10}
    chosen = {"vocab_size": len(PIECES), "max_position_embeddings": longest, **sizes, **choices}
    config = transformers.BertConfig(**chosen)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, kind)(config)
        # the weights of a fresh model are so small that all texts have nearly the same states
        for p in model.parameters():
            p.data.add_(torch.randn_like(p), alpha=0.2)
        model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return folder


def vit_encoder_folder(folder: Path, kind: str = "ViTModel", **choices: Any) -> Path:
    """A ViT of any head for grey images of 8 by 8 pixels, made by transformers."""
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 10}
    config = transformers.ViTConfig(**{"image_size": 8, "patch_size": 4, "num_channels": 1, **sizes, **choices})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, kind)(config)
        for p in model.parameters():
            p.data.add_(torch.randn_like(p), alpha=0.2)
        model.save_pretrained(folder)
    side, channels = config.image_size, config.num_channels
    size = {"height": side, "width": side}
    processor = transformers.ViTImageProcessorPil(size=size, image_mean=[0.4] * channels, image_std=[0.3] * channels)
    processor.save_pretrained(folder)
    return folder


def masked_lm_run(folder: Path, steps: int = 2, **options: Any) -> Path:
    """A run of masked-lm on some lines."""
    lines = folder.with_name(f"{folder.name}.txt")
    lines.write_text("".join(f"a {word} film . it was {word}\n" for word in ("good", "bad", "long") * 20))
    sizes: dict[str, Any] = {"width": 8, "heads": 2, "layers": 2, "segment": 24, "batch": 3, "valid_tokens": 60}
    task = TASKS["masked-lm"].of(**{"train": (lines,), "vocabulary": 300, **sizes, **options})
    training = {"schedule": "constant", "warmup": 0, "threads": 1, "device": "cpu", "validate_every": 2}
    list(fit(task, folder, TrainingConfig(steps=steps, **training)))
    return folder


def edit_config(folder: Path, **values: Any) -> None:
    """Changes entries of config.json; None removes one."""
    path = folder / "config.json"
    config = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))
