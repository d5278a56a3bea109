"""MarianTokenizer, held to transformers' and to the library sentencepiece."""

import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import transformers
from tests.models.pretrained.released import saved

from regard.models.pretrained.folder import read_config
from regard.models.pretrained.sentencepiece_files import load_marian_tokenizer, read_pieces

LINES = [
    "the cat sat on the mat",
    "a dog and a cat",
    "the dogs sat, and sat",
    "ein Haus, ein Hund und ein Kätzchen",
] * 8
TEXTS = [
    *("the cat sat", "  two  spaces ", "", "   ", "Kätzchen und ﬁne ½", "unseen ☃☃ x", ">>de<< the cat"),
    *("tab\tand\nline", "a>>b<<c", "▁the", "a"),
]


def folder(path: Path, vocabulary: int = 33, **options: Any) -> Any:
    """A Marian folder with pieces trained here, and the tokenizer of transformers."""
    saved("MarianMTModel", path)
    pieces: dict[str, int] = {"</s>": 0, "<unk>": 1}
    for side in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES if side == "source" else [*LINES, "noch ein Satz"] * 3),
            model_prefix=str(path / side),
            vocab_size=vocabulary,
            minloglevel=2,
            **{"model_type": "unigram", **options},
        )
        (path / f"{side}.model").rename(path / f"{side}.spm")
        (path / f"{side}.vocab").unlink()
        model = sentencepiece.SentencePieceProcessor(model_file=str(path / f"{side}.spm"))
        for n in range(model.get_piece_size()):
            pieces.setdefault(model.id_to_piece(n), len(pieces))
    pieces[">>de<<"] = len(pieces)
    pieces["<pad>"] = len(pieces)
    (path / "vocab.json").write_text(json.dumps(pieces))
    config = json.loads((path / "config.json").read_text())
    config |= {"vocab_size": len(pieces), "decoder_vocab_size": len(pieces), "pad_token_id": len(pieces) - 1}
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.mark.filterwarnings("ignore:Recommended")
def test_ids_and_texts_are_those_of_transformers(tmp_path: Path) -> None:
    path = folder(tmp_path)
    theirs = transformers.MarianTokenizer(
        source_spm=str(path / "source.spm"), target_spm=str(path / "target.spm"), vocab=str(path / "vocab.json")
    )
    ours = load_marian_tokenizer(read_config(path))
    assert len(ours) == len(theirs.get_vocab())
    for text, ids in zip(TEXTS, ours.encode(TEXTS), strict=True):
        assert ids == theirs(text)["input_ids"], text
    # a text is never encoded as a mark: theirs would end the sentence here
    assert 0 not in ours.encode(["the </s> cat <pad>"])[0][:-1]
    for text in LINES[:4]:
        ids = theirs(text_target=text)["input_ids"]
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True) == text
    assert ours.pieces(theirs(text_target="ein Hund")["input_ids"])[-1] == "</s>"


def test_pieces_are_those_of_sentencepiece(tmp_path: Path) -> None:
    path = folder(tmp_path) / "source.spm"
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    pieces = read_pieces(path).pieces
    assert [piece for piece, _, _ in pieces] == [theirs.id_to_piece(n) for n in range(theirs.get_piece_size())]
    assert [score for _, score, _ in pieces] == pytest.approx([theirs.get_score(n) for n in range(len(pieces))])


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    path = folder(tmp_path)
    whole, ids = (path / "source.spm").read_bytes(), json.loads((path / "vocab.json").read_text())
    config = read_config(path)
    for content in (whole[:-3], b"\xff" * 20, b"text", b""):
        (path / "source.spm").write_bytes(content)
        with pytest.raises(ValueError, match="source.spm (is no model of sentencepiece|must hold a unigram model)"):
            load_marian_tokenizer(config)
    (path / "source.spm").write_bytes(whole)
    (path / "vocab.json").write_text(json.dumps({**ids, "more": len(ids)}))
    with pytest.raises(ValueError, match=f"has ids up to {len(ids)}, but the embedding has {len(ids)} rows; restore"):
        load_marian_tokenizer(config)
    (path / "vocab.json").write_text(json.dumps({"a": "b"}))
    with pytest.raises(ValueError, match="vocab.json must hold the id of each piece, <unk> among them; restore"):
        load_marian_tokenizer(config)
    (path / "target.spm").unlink()
    with pytest.raises(FileNotFoundError, match="holds no target.spm, which the tokenizer of a Marian model needs"):
        load_marian_tokenizer(config)
    bpe = folder(tmp_path / "bpe", 40, model_type="bpe")
    with pytest.raises(
        ValueError, match="source.spm must hold a unigram model with an unknown piece; take the released"
    ):
        load_marian_tokenizer(read_config(bpe))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x0a\x05abc", "the message ends inside a field"),  # three bytes of five
        (b"\x08" + b"\xff" * 10 + b"\x01", "a number is longer than 64 bits"),
        (b"\x0a\x02\x08\x07", "a field of bytes holds a number"),
    ],
    ids=["cut off", "endless number", "a number for a text"],
)
def test_a_damaged_message_has_its_reason(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "source.spm").write_bytes(content)
    with pytest.raises(ValueError, match="source.spm is no model of sentencepiece; restore the file") as caught:
        read_pieces(tmp_path / "source.spm")
    assert str(caught.value.__cause__) == reason
