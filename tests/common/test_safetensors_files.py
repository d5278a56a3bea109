"""Tensors and JSON in a file with a checksum: any bit that flips is reported, and older files are read as before."""

import json
import random
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.for_each import for_each

from regard.common.atomic_files import write_atomically
from regard.common.safetensors_files import encode, read_tagged

TENSORS = {"a": torch.arange(35.0).reshape(5, 7), "none": torch.zeros(0, 3), "one": torch.tensor(3)}


def write(path: Path, facts: object = None) -> bytes:
    write_atomically(path, encode(TENSORS, {"key": json.dumps({"format": 2} if facts is None else facts)}))
    return path.read_bytes()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write(tmp_path / "a", {"format": 2, "checksum": "00000000", "text": '"checksum": "00000000"'})
    tensors, facts = read_tagged(tmp_path / "a", "key", 2, "file")
    assert facts["text"] == '"checksum": "00000000"'
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], t) for name, t in TENSORS.items())
    assert load_file(tmp_path / "a").keys() == TENSORS.keys(), "the library of the format reads it"


def test_every_flipped_bit_is_reported(tmp_path: Path) -> None:
    whole = write(tmp_path / "a")
    for bit in random.Random(0).sample(range(8 * len(whole)), 400):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / "a").write_bytes(flipped)
        with pytest.raises(ValueError, match="a (is|has) ") as caught:
            read_tagged(tmp_path / "a", "key", 2, "file")
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["__metadata__", "checksum", "format", "key"])
def test_a_flipped_bit_of_a_name_hides_nothing(tmp_path: Path, name: str) -> None:
    """Above all of the checksum's own name: a file of regard has one."""
    whole = write(tmp_path / "a")
    start = whole.index(name.encode())
    for place in range(start, start + len(name)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << bit
            (tmp_path / "a").write_bytes(flipped)
            with pytest.raises(ValueError, match="; (take another file|update regard)$"):
                read_tagged(tmp_path / "a", "key", 2, "file")


def test_a_flipped_tensor_is_explained(tmp_path: Path) -> None:
    whole = bytearray(write(tmp_path / "a"))
    whole[-1] ^= 1
    (tmp_path / "a").write_bytes(whole)
    with pytest.raises(ValueError, match="its checksum does not match its content, so at least one bit has changed"):
        read_tagged(tmp_path / "a", "key", 2, "file")


def test_a_file_that_another_program_wrote_again(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "a", {"key": '{"format": 2}', "checksum": "00000000"})
    with pytest.raises(ValueError, match="its checksum is not where regard writes it"):
        read_tagged(tmp_path / "a", "key", 2, "file")
    save_file(TENSORS, tmp_path / "a", {"key": '{"format": 2}'})
    with pytest.raises(ValueError, match="a has no checksum, so it is damaged; take another file"):
        read_tagged(tmp_path / "a", "key", 2, "file")


def test_files_of_other_formats_are_refused(tmp_path: Path) -> None:
    for version in (1, 3):
        write(tmp_path / "a", {"format": version})
        with pytest.raises(ValueError, match=f"a has format {version}, this version reads format 2; open it with the"):
            read_tagged(tmp_path / "a", "key", 2, "file")
    save_file(TENSORS, tmp_path / "a", {"key": "{}"})
    with pytest.raises(ValueError, match="a is no file of regard: its metadata has no 'key' entry; take another file"):
        read_tagged(tmp_path / "a", "key", 2, "file")


@for_each("version", [0, -1, True, "2", None, 1.0, [2]])
def test_a_format_that_is_no_number(tmp_path: Path, version: object) -> None:
    write(tmp_path / "a", {"format": version})
    with pytest.raises(ValueError, match="a has format .*, which is no whole number; take another file"):
        read_tagged(tmp_path / "a", "key", 2, "file")


def test_headers_of_all_kinds(tmp_path: Path) -> None:
    """Types, shapes and offsets that do not fit, and JSON of any depth."""
    for entry in (
        {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "C64", "shape": [], "data_offsets": [0, 4]},
    ):
        header = json.dumps({"a": entry, "__metadata__": {"key": "[" * 100_000}}).encode()
        (tmp_path / "a").write_bytes(struct.pack("<Q", len(header)) + header + bytes(4))
        with pytest.raises(ValueError, match="a is damaged or no safetensors file .*; take another file"):
            read_tagged(tmp_path / "a", "key", 2, "file")
