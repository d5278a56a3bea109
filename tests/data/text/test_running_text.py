"""Running text: documents, their end, and their tokens."""

import gzip
from pathlib import Path

import pytest

from regard.data.embedded import manual
from regard.data.text.running_text import hold_out_end, read_documents, token_stream
from regard.data.text.special_tokens import EOS
from regard.data.text.tokenizer import Kind, Tokenizer

TEXT = "Thé cat  sat.\n\n  On the\tmat — 12 times.\nIt 's \U0001f600 fine\n"


@pytest.mark.parametrize(("kind", "size"), [("characters", 100), ("bpe", 260), ("bpe", 280)])
def test_running_text_comes_back_id_by_id(kind: Kind, size: int) -> None:
    tokenizer = Tokenizer.train(kind, [TEXT], size)
    ids = tokenizer.encode_text(TEXT)
    assert tokenizer.decode_text(ids) == TEXT
    decoder = tokenizer.text_decoder()
    assert "".join([*map(decoder.add, ids), decoder.finish()]) == TEXT
    if size == 260:
        assert len(ids) == len(TEXT.encode())


def test_half_a_character_is_held_back() -> None:
    tokenizer = Tokenizer.train("bpe", [TEXT], 260)
    decoder = tokenizer.text_decoder()
    pieces = [decoder.add(n) for n in tokenizer.encode_text("é")]
    assert pieces == ["", "é"]
    assert decoder.add(tokenizer.encode_text("é")[0]) == ""
    assert decoder.finish() == "�"


def test_long_text_is_encoded_in_pieces_without_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.train("bpe", [TEXT * 3], 300)
    whole = tokenizer.encode_text(TEXT * 5)
    monkeypatch.setattr("regard.data.text.tokenizer._CHUNK", 1)
    assert tokenizer.encode_text(TEXT * 5) == whole


def test_the_end_is_held_out() -> None:
    splits = hold_out_end(["abcde", "fghij", "klmno"], 0.4)
    assert splits == (["abcde", "fghi"], ["j", "klmno"])
    with pytest.raises(ValueError, match=r"a share of 0\.1 of 1 characters leaves none"):
        hold_out_end(["a"], 0.1)


def test_files_are_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\r\ntwo")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"three\n"))
    documents = read_documents([tmp_path / "a.txt", tmp_path / "b.txt.gz"])
    assert documents == ["one\ntwo\n", "three\n"]
    tokenizer = Tokenizer.train("characters", documents, 100)
    stream = token_stream(tokenizer, documents).tolist()
    assert [n for n, token in enumerate(stream) if token == EOS] == [0, 9]
    assert tokenizer.decode_text(stream) == "one\ntwo\nthree\n"


def test_files_without_text_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "empty.txt"
    path.write_text("")
    with pytest.raises(ValueError, match=r"empty\.txt is empty; it must hold running text"):
        read_documents([path])
    path.write_text(" \n\n")
    with pytest.raises(ValueError, match="holds no text, only white space; name a file with text"):
        read_documents([path])


def test_the_manual_is_one_document_per_topic() -> None:
    documents = manual.documents()
    assert len(documents) > 50
    assert all(isinstance(text, str) and text for text in documents)
