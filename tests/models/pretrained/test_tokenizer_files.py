"""Tokenizers of folders, held to transformers': the same ids from tokenizer.json and from vocabulary files."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from tests.models.pretrained.released import saved

from regard.data.text.special_tokens import SpecialTokens
from regard.data.text.subwords import PretrainedSubwords
from regard.models.pretrained import load_pretrained
from regard.models.pretrained.prompt_tokenizer import ReleasedTokenizer

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
    (tmp_path / "masked" / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    with pytest.raises(ValueError, match=r"vocab.json and merges.txt of .* are no byte pairs \(.*\); restore them"):
        loaded(tmp_path / "masked")


def test_the_library_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    word_pieces(tmp_path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"tokenizers of folders need: pip install 'regard\[train\]'"):
        loaded(tmp_path)


BROKEN: dict[str, Callable[[dict[str, Any]], object]] = {
    "a template without its token": lambda content: content["post_processor"].update(special_tokens={}),
    "an unknown token that is none": lambda content: content["model"].update(unk_token="nowhere"),
    "a map of characters that is none": lambda content: content.update(
        normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    ),
    "no pieces": lambda content: content.update(model={"type": "Unigram", "unk_id": 0, "vocab": []}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_tokenizer_that_fails_on_texts_is_refused(case: str, tmp_path: Path) -> None:
    """Also where the library panics, which no `except Exception` catches."""
    word_pieces(tmp_path).save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    BROKEN[case](content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"tokenizer.json is no tokenizer \(.*\); restore the file") as caught:
        loaded(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_that_inflates_texts_is_refused(tmp_path: Path) -> None:
    """Three replacements of one letter by a thousand make a gigabyte of a letter."""
    word_pieces(tmp_path).save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
    for part in ("normalizer", "decoder"):
        steps = {"type": "Sequence", f"{part}s": [step] * 3}
        path.write_text(json.dumps({**content, part: steps}))
        sentence = f"the {part} of .*tokenizer.json makes up to 1,000,000,000 characters of one, and 1,000 are read; "
        with pytest.raises(ValueError, match=sentence + "restore the file"):
            loaded(tmp_path)


def test_a_text_at_which_a_tokenizer_panics_is_refused(tmp_path: Path) -> None:
    """Every reader of texts, and every writer: the library panics where a regular expression takes too many steps."""
    word_pieces(tmp_path).save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    content = json.loads(path.read_text())
    content["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "(a+)+$| "},
        "behavior": "Isolated",
        "invert": False,
    }
    content["decoder"] = {"type": "Strip", "content": "a", "start": 10**18, "stop": 10**18}
    path.write_text(json.dumps(content))
    library, text = loaded(tmp_path), "a" * 40 + "!"
    special = SpecialTokens(0, -1, -1, None, ())
    subwords, prompts = PretrainedSubwords(library), ReleasedTokenizer(library, special)
    calls = [
        lambda: subwords.encode([text]),
        lambda: prompts.encode_text(text),
        lambda: prompts.encode_prompt(text),
        lambda: subwords.decode(library.encode("a").ids),
        lambda: prompts.decode(library.encode("a").ids),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"the tokenizer fails on this text \(.*\); give another text"):
            call()


def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    word_pieces(tmp_path)
    for name in ("config.json", "model.safetensors", "vocab.txt"):
        folder = tmp_path / f"with pipe {name}"
        shutil.copytree(tmp_path, folder, ignore=shutil.ignore_patterns("with*"))
        (folder / name).unlink()
        os.mkfifo(folder / name)
        read = load_pretrained if name == "model.safetensors" else loaded
        with pytest.raises(ValueError, match=f"{name} is no file; restore it"):
            read(folder)


def test_vocabularies_of_another_family_are_refused(tmp_path: Path) -> None:
    word_pieces(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "model_type": "gpt2"}))
    with pytest.raises(
        ValueError, match=r"vocab.txt would be read as the word pieces of bert, and the folder is of 'gpt2'; save"
    ):
        loaded(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    assert loaded(tmp_path).encode("the").tokens == ["[CLS]", "the", "[SEP]"]
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": 1, "tokenizer_class": "BertTokenizer"}')
    with pytest.raises(ValueError, match="do_lower_case of .*tokenizer_config.json must be true or false, got 1"):
        loaded(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    path.write_text(json.dumps({**config, "model_type": "bert"}))
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"vocab.txt is no UTF-8 \(.*\); restore the file"):
        loaded(tmp_path)
    (tmp_path / "vocab.txt").unlink()
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_text("")
    with pytest.raises(ValueError, match="vocab.json would be read as the byte pairs of gpt2, and .* of 'bert'"):
        loaded(tmp_path)
