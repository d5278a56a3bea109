"""load_tokenizer: tokenizer.json, or the vocabulary files of older folders, as a tokenizer of `tokenizers`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.common.panics import failures_as_errors
from regard.data.text.subwords import check_growth
from regard.models.pretrained.folder import CheckpointConfig, read_json, refuse_pointer

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
        _check_family(config, "bert", WORD_PIECES, "word pieces")
        tokenizer = _word_pieces(folder)
    elif all((folder / name).exists() for name in BYTE_PAIRS):
        _check_family(config, "gpt2", BYTE_PAIRS[0], "byte pairs")
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

    check_growth(read_json(path), str(path))
    with failures_as_errors(f"{path} is no tokenizer", "restore the file"):
        tokenizer = Tokenizer.from_file(str(path))
        # some faults show in a text only: a template or an unknown token that the vocabulary does not have
        tokenizer.encode("a ᚠ", "b")
    # a released file may cut and pad to the lengths of its training
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _word_pieces(folder: Path) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    options = _options(folder)
    refuse_pointer(folder / WORD_PIECES)
    try:
        lines = (folder / WORD_PIECES).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{folder / WORD_PIECES} is no UTF-8 ({error}); restore the file") from error
    vocabulary = {piece: n for n, piece in enumerate(lines)}
    names = {
        key: _token(options.values.get(f"{key}_token"), f"[{key.upper()}]")
        for key in ("unk", "sep", "cls", "mask", "pad")
    }
    for name in names.values():
        if name not in vocabulary:
            raise ValueError(f"{folder / WORD_PIECES} has no piece {name!r}; restore the vocabulary of the model")
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=names["unk"]))
    tokenizer.normalizer = normalizers.BertNormalizer(
        lowercase=options.flag("do_lower_case", True),
        strip_accents=options.flag("strip_accents", True) if options.values.get("strip_accents") is not None else None,
        handle_chinese_chars=options.flag("tokenize_chinese_chars", True),
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
    for name in BYTE_PAIRS:
        refuse_pointer(folder / name)
    with failures_as_errors(f"{' and '.join(BYTE_PAIRS)} of {folder} are no byte pairs", "restore them"):
        model = models.BPE.from_file(*(str(folder / name) for name in BYTE_PAIRS))
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=options.flag("add_prefix_space", False))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    end = _token(options.values.get("eos_token"), "<|endoftext|>")
    if tokenizer.token_to_id(end) is not None:
        tokenizer.add_special_tokens([end])
    return tokenizer


def _check_family(config: CheckpointConfig, family: str, file: str, pieces: str) -> None:
    """Raises if a vocabulary file would be read as that of another family: its marks would stand around each text."""
    named = _options(config.folder).values.get("tokenizer_class")
    kind = named if isinstance(named, str) else str(config.values.get("model_type") or family)
    if not kind.lower().startswith(family):
        raise ValueError(
            f"{config.folder / file} would be read as the {pieces} of {family}, and the folder is of {kind!r}; save "
            f"its tokenizer there as {TOKENIZER}"
        )


def _options(folder: Path) -> CheckpointConfig:
    return CheckpointConfig(folder, read_json(folder / OPTIONS) if (folder / OPTIONS).exists() else {}, OPTIONS)


def _token(value: Any, default: str) -> str:
    """The text of a special token, which older files write as an object."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else default
