"""Released models in folders: tiny ones with random weights and tokenizers of their own, saved by transformers."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
import torch
import transformers
from PIL import Image
from tests.models.pretrained.released import bert, gpt2, llama, marian, vit, with_large_weights
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

LINES = [
    "the cat sat on the mat",
    "a dog and a cat sat, and sat",
    "unhappily the dogs sat on it",
    "Kätzchen und Hund",
] * 8


class Released(NamedTuple):
    """A folder, with the model and the tokenizer, or image processor, that transformers made."""

    folder: Path
    model: Any
    tokenizer: Any


class Case(NamedTuple):
    """A folder of one architecture, inputs to predict, targets for `Predictor.loss`, and the name of its task."""

    make: Callable[[Path], Released]
    task: str
    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    predict: str = ""


def save(folder: Path, model: Any, tokenizer: Any) -> Released:
    model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return Released(folder, model, tokenizer)


def _start(seed: int = 3) -> None:
    torch.manual_seed(seed)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def byte_pairs() -> Any:
    """GPT-2's kind: bytes, merged by frequency, with one special token."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=290, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"], show_progress=False
    )
    library.train_from_iterator(LINES, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=library, bos_token="<|endoftext|>", eos_token="<|endoftext|>")


def spaced_pairs() -> Any:
    """Llama's kind: ▁ for spaces, and <s> before every text."""
    library = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    library.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(vocab_size=70, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False)
    library.train_from_iterator(LINES, trainer)
    library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=library, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", ",", ".", "un", "##happi"),
    *("##ly", "a", "dog", "##s", "and", "it", "is", "good", "bad"),
]


def word_pieces() -> Any:
    """BERT's kind: ## continues a word, and [CLS] and [SEP] stand around a text."""
    library = Tokenizer(models.WordPiece({piece: n for n, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    marks = [("[CLS]", 2), ("[SEP]", 3)]
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=marks
    )
    names = {f"{key}_token": f"[{key.upper()}]" for key in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(tokenizer_object=library, **names)


def masked_folder(folder: Path, kind: str = "BertForMaskedLM") -> Released:
    _start()
    return save(folder, with_large_weights(bert(kind, vocab_size=len(PIECES)).eval()), word_pieces())


def encoder_folder(folder: Path) -> Released:
    return masked_folder(folder, "BertModel")


def classifier_folder(folder: Path) -> Released:
    _start()
    names = {0: "good", 1: "bad", 2: "so-so"}
    sizes = {"vocab_size": len(PIECES), "num_labels": 3, "id2label": names}
    model = bert("BertForSequenceClassification", **sizes)
    return save(folder, with_large_weights(model.eval()), word_pieces())


def vit_folder(folder: Path, **processing: Any) -> Released:
    _start()
    names = {0: "cat", 1: "dog", 2: "cat", 3: "owl", 4: "crane"}
    model = vit("ViTForImageClassification", image_size=12, patch_size=4, num_channels=3, id2label=names)
    made = save(folder, with_large_weights(model.eval(), 0.3), None)
    mean_std = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4]}
    processor = transformers.ViTImageProcessorPil(size={"height": 12, "width": 12}, **{**mean_std, **processing})
    processor.save_pretrained(folder)
    return made._replace(tokenizer=processor)


def write_image(path: Path, size: tuple[int, int] = (30, 21)) -> Path:
    draw = np.random.default_rng(len(path.name))
    Image.fromarray(draw.integers(0, 255, (*size, 3), np.uint8)).save(path)
    return path


def gpt2_folder(folder: Path) -> Released:
    _start()
    tokenizer = byte_pairs()
    size = len(tokenizer)
    model = gpt2(vocab_size=size, n_positions=40, bos_token_id=0, eos_token_id=0)
    return save(folder, with_large_weights(model.eval()), tokenizer)


def decoder_folder(folder: Path, make: Callable[..., Any], **choices: Any) -> Released:
    _start()
    tokenizer = spaced_pairs()
    model = make(vocab_size=len(tokenizer), bos_token_id=1, eos_token_id=2, **choices)
    return save(folder, with_large_weights(model.eval()), tokenizer)


def llama_folder(folder: Path, kind: str = "LlamaForCausalLM", **choices: Any) -> Released:
    return decoder_folder(folder, functools.partial(llama, kind), **choices)


def marian_folder(folder: Path) -> Released:
    """Sentences end at many lengths: the bias of the end is high."""
    _start()
    pieces: dict[str, int] = {"</s>": 0, "<unk>": 1}
    folder.mkdir(exist_ok=True)
    for side in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES if side == "source" else [*LINES, "noch ein Satz"] * 3),
            model_prefix=str(folder / side),
            vocab_size=34,
            minloglevel=2,
            model_type="unigram",
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        (folder / f"{side}.vocab").unlink()
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        for n in range(model.get_piece_size()):
            pieces.setdefault(model.id_to_piece(n), len(pieces))
    pieces["<pad>"] = len(pieces)
    (folder / "vocab.json").write_text(json.dumps(pieces))
    padding = {"pad_token_id": len(pieces) - 1, "decoder_start_token_id": len(pieces) - 1}
    translator: Any = marian(vocab_size=len(pieces), **padding).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for key, p in translator.named_parameters():
            if "norm" not in key and "embed_positions" not in key:
                p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
        translator.final_logits_bias.copy_(torch.randn(1, len(pieces), generator=generator))
        translator.final_logits_bias[0, 0] = 3.5
    translator.generation_config.max_length = 20
    translator.generation_config.bad_words_ids = [[len(pieces) - 1]]
    translator.save_pretrained(folder)
    files = {f"{side}_spm": str(folder / f"{side}.spm") for side in ("source", "target")}
    return Released(folder, translator, transformers.MarianTokenizer(**files, vocab=str(folder / "vocab.json")))


CASES: dict[str, Case] = {
    "BertForMaskedLM": Case(masked_folder, "masked-lm", ("the [MASK] sat", "a [MASK] is [MASK]."), ("cat", "dog good")),
    "BertModel": Case(encoder_folder, "embed", ("the cat sat unhappily", "a dog"), ("cats", "the dog is good")),
    "BertForPreTraining": Case(
        lambda folder: masked_folder(folder, "BertForPreTraining"),
        "masked-lm",
        ("[MASK]s sat", "it [MASK]"),
        ("cat", "is"),
    ),
    "BertForSequenceClassification": Case(
        classifier_folder, "classify-text", ("the cat sat unhappily.", "it is bad. A dog and it"), ("good", "so-so")
    ),
    "ViTForImageClassification": Case(vit_folder, "classify-image", ("IMAGE", "IMAGE"), ("owl", "dog")),
    "MarianMTModel": Case(marian_folder, "translate", ("the cat sat", "a dog"), ("Hund", "ein Satz")),
    "GPT2LMHeadModel": Case(gpt2_folder, "language-model", ("the cat", "a dög sat on"), (" sat", " it"), "--tokens 9"),
    "LlamaForCausalLM": Case(
        llama_folder, "language-model", ("the cat", "a dog sat on"), (" sat", " it"), "--tokens 9"
    ),
}
