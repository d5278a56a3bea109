"""load_tokenizer: tokenizer.json, or the vocabulary files of older folders, as a tokenizer of `tokenizers`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.models.pretrained.folder import CheckpointConfig, read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER, OPTIONS = "tokenizer.json", "tokenizer_config.json"
WORD_PIECES = "vocab.txt"
BYTE_PAIRS = ("vocab.json", "merges.txt")


def load_tokenizer(config: CheckpointConfig) -> "Tokenizer":
    """The tokenizer of a folder; raises if one of its ids has no row in the embedding.

    tokenizer.json defines everything. vocab.txt are BERT's word pieces, vocab.json with merges.txt GPT-2's byte pairs.
    """
    try:
        import tokenizers  # noqa: F401
    except ImportError as error:
        raise ImportError("tokenizers of folders need: pip install 'regard[train]'") from error
    folder = config.folder
    if (folder / TOKENIZER).exists():
        tokenizer = _from_json(folder / TOKENIZER)
    elif (folder / WORD_PIECES).exists():
        tokenizer = _word_pieces(folder)
    elif all((folder / name).exists() for name in BYTE_PAIRS):
        tokenizer = _byte_pairs(folder)
    else:
        raise FileNotFoundError(
            f"{folder} holds no tokenizer: neither {TOKENIZER} nor {WORD_PIECES} nor {' with '.join(BYTE_PAIRS)}; "
            "save it there with the tokenizer's save_pretrained"
        )
    rows, last = config.integer("vocab_size"), max(tokenizer.get_vocab().values(), default=-1)
    if last >= rows:
        raise ValueError(
            f"the tokenizer of {folder} has ids up to {last}, but the embedding has {rows} rows; "
            "restore the tokenizer that the model was trained with"
        )
    return tokenizer


def _from_json(path: Path) -> "Tokenizer":
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"{path} is no tokenizer ({error}); restore the file") from error
    # a released file may cut and pad to the lengths of its training
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _word_pieces(folder: Path) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    options = _options(folder)
    lines = (folder / WORD_PIECES).read_text(encoding="utf-8").splitlines()
    vocabulary = {piece: n for n, piece in enumerate(lines)}
    names = {
        key: _token(options.get(f"{key}_token"), f"[{key.upper()}]") for key in ("unk", "sep", "cls", "mask", "pad")
    }
    for name in names.values():
        if name not in vocabulary:
            raise ValueError(f"{folder / WORD_PIECES} has no piece {name!r}; restore the vocabulary of the model")
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=names["unk"]))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=options.get("do_lower_case", True),
        strip_accents=options.get("strip_accents"),
        handle_chinese_chars=options.get("tokenize_chinese_chars", True),
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    first, last = names["cls"], names["sep"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{first}:0 $A:0 {last}:0",
        pair=f"{first}:0 $A:0 {last}:0 $B:1 {last}:1",
        special_tokens=[(first, vocabulary[first]), (last, vocabulary[last])],
    )
    tokenizer.add_special_tokens(list(names.values()))
    return tokenizer


def _byte_pairs(folder: Path) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    options = _options(folder)
    try:
        model = models.BPE.from_file(*(str(folder / name) for name in BYTE_PAIRS))
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"{' and '.join(BYTE_PAIRS)} of {folder} are no byte pairs ({error}); restore them") from error
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=options.get("add_prefix_space", False))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    end = _token(options.get("eos_token"), "<|endoftext|>")
    if tokenizer.token_to_id(end) is not None:
        tokenizer.add_special_tokens([end])
    return tokenizer


def _options(folder: Path) -> dict[str, Any]:
    return read_json(folder / OPTIONS) if (folder / OPTIONS).exists() else {}


def _token(value: Any, default: str) -> str:
    """The text of a special token, which older files write as an object."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else default
