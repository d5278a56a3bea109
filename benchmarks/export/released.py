"""A translator as it is released, with the files of sentencepiece: Marian in transformers' layout, trained a little."""

import json
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks.export.models import LIMIT, SEED, SIZES, manual_lines, train
from regard.models.pretrained import save_pretrained
from regard.models.transformer import Transformer

PIECES = 200  # of each language


def write_marian(folder: Path, steps: int) -> None:
    """Writes the folder, and trains its model to copy texts."""
    import sentencepiece

    ids: dict[str, int] = {"</s>": 0, "<unk>": 1}
    folder.mkdir(parents=True)
    for side, first in (("source", 0), ("target", 400)):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(manual_lines()[first : first + 400]),
            model_prefix=str(folder / side),
            vocab_size=PIECES,
            model_type="unigram",
            minloglevel=2,
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        for n in range(pieces.get_piece_size()):
            ids.setdefault(pieces.id_to_piece(n), len(ids))
    padding = ids["<pad>"] = len(ids)
    (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    torch.manual_seed(SEED)
    options: dict[str, Any] = {**SIZES, "norm": "post", "tied": "all", "dropout": 0.0, "padding": padding}
    special = {"eos_token_id": 0, "bad_words_ids": [[padding]], "max_length": LIMIT + 1}
    save_pretrained(Transformer(len(ids), len(ids), **options), folder, special)
    translator: Any = regard.load(folder, device="cpu")
    translator.model.requires_grad_(True)
    for place in (translator.model.source_place, translator.model.target_place):
        place.requires_grad_(False)
    save_pretrained(train(translator, steps).model, folder, special)


# released models by name, and the function that writes one
MADE = {"Marian with sentencepiece": write_marian}
