"""Tokenizers of folders, held to transformers': the same ids from tokenizer.json and from vocabulary files."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers
from tests.models.pretrained.released import saved

from regard.models.pretrained import load_pretrained

TEXTS = ["The cat sat, on the mat.", "unseen Wörter ÇA 中文字", "", "a [MASK] b", "it's  two   spaces\n"]
PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "mat", ",", ".", "un", "##seen"),
    *("worter", "Wörter", "中", "文", "a", "b", "The", "##s", "it", "'"),
]


def word_pieces(folder: Path, rows: int = 30, **options: Any) -> Any:
    """A folder with vocab.txt alone, and the tokenizer that transformers makes of it."""
    saved("BertModel", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": rows}))
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    return transformers.BertTokenizerFast.from_pretrained(folder)


def loaded(folder: Path) -> Any:
    """Its tokenizer; the embedding of the checkpoint itself is not of its size."""
    from regard.models.pretrained.folder import read_config
    from regard.models.pretrained.tokenizer_files import load_tokenizer

    return load_tokenizer(read_config(folder))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"tokenize_chinese_chars": False},
    ],
    ids=str,
)
def test_word_pieces(options: dict[str, Any], tmp_path: Path) -> None:
    theirs = word_pieces(tmp_path, **options)
    ours = loaded(tmp_path)
    for text in TEXTS:
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
        assert ours.decode(ours.encode(text).ids) == theirs.decode(theirs(text)["input_ids"], skip_special_tokens=True)
    pair = ours.encode("the cat", "sat")
    assert (pair.ids, pair.type_ids) == tuple(theirs("the cat", "sat")[key] for key in ("input_ids", "token_type_ids"))


def test_tokenizer_json_comes_first_and_is_not_cut(tmp_path: Path) -> None:
    theirs = word_pieces(tmp_path)
    theirs.save_pretrained(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    (tmp_path / "vocab.txt").write_text("nothing of it")
    for text in TEXTS:
        assert loaded(tmp_path).encode(text).ids == theirs(text)["input_ids"]


@pytest.mark.parametrize("prefix", [False, True], ids=["", "prefix space"])
def test_byte_pairs(prefix: bool, tmp_path: Path) -> None:
    saved("GPT2LMHeadModel", tmp_path)
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("a", "t"), ("c", "at")]
    pieces = [*letters, *("".join(pair) for pair in merges), "<|endoftext|>"]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: n for n, piece in enumerate(pieces)}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(" ".join(pair) for pair in merges))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": prefix}))
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": len(pieces)}))
    theirs = transformers.GPT2TokenizerFast.from_pretrained(tmp_path, add_prefix_space=prefix)
    ours = loaded(tmp_path)
    for text in [*TEXTS, "the cat<|endoftext|> that", "ünï\u0000 \t"]:
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
        assert ours.decode(ours.encode(text).ids) == theirs.decode(theirs(text)["input_ids"], skip_special_tokens=True)


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    saved("BertModel", tmp_path / "none")
    with pytest.raises(
        FileNotFoundError, match="holds no tokenizer: neither tokenizer.json nor vocab.txt nor vocab.json"
    ):
        load_pretrained(tmp_path / "none").load_tokenizer()
    # 24 pieces for 23 rows
    word_pieces(tmp_path / "large", rows=23)
    with pytest.raises(
        ValueError, match="the tokenizer of .* has ids up to 23, but the embedding has 23 rows; restore the tokenizer"
    ):
        load_pretrained(tmp_path / "large").load_tokenizer()
    word_pieces(tmp_path / "masked")
    (tmp_path / "masked" / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n")
    with pytest.raises(ValueError, match=r"vocab.txt has no piece '\[MASK\]'; restore the vocabulary of the model"):
        loaded(tmp_path / "masked")
    (tmp_path / "masked" / "tokenizer.json").write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer.json is no tokenizer \(.*\); restore the file"):
        loaded(tmp_path / "masked")
    (tmp_path / "masked" / "tokenizer.json").unlink()
    (tmp_path / "masked" / "vocab.txt").unlink()
    (tmp_path / "masked" / "vocab.json").write_text("[1]")
    (tmp_path / "masked" / "merges.txt").write_text("x")
    with pytest.raises(ValueError, match=r"vocab.json and merges.txt of .* are no byte pairs \(.*\); restore them"):
        loaded(tmp_path / "masked")


def test_the_library_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    word_pieces(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"tokenizers of folders need: pip install 'regard\[train\]'"):
        loaded(tmp_path)
