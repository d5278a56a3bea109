"""Pictures and captions of one's own: several captions a picture, and errors that name the file and the line."""

from pathlib import Path

import pytest
from PIL import Image
from tests.for_each import for_each

from regard.data.images.captions import read_captions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "of").mkdir()
    Image.new("L", (6, 4), 9).save(tmp_path / "a.png")
    Image.new("RGB", (6, 4), (1, 2, 3)).save(tmp_path / "of" / "b.png")
    Image.new("L", (5, 5), 9).save(tmp_path / "c.png")
    (tmp_path / "broken.png").write_bytes(b"not a picture")
    return tmp_path


def written(folder: Path, *lines: str) -> Path:
    path = folder / "captions.tsv"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_pictures_with_several_captions(folder: Path) -> None:
    some = read_captions(written(folder, "a.png\tgrey", "of/b.png\tdark blue", "a.png\tall grey", "a.png\tgrey"))
    assert some.captions == [("grey", "all grey"), ("dark blue",)]
    assert some.pixels.shape == (2, 4, 6, 3)
    assert some.pixels[0, 0, 0].tolist() == [9, 9, 9]
    assert some.boxes is None
    alike = read_captions(written(folder, "a.png\tgrey", "c.png\tgrey"), size=8)
    assert alike.pixels.shape == (2, 8, 8, 1)
    whole = read_captions(written(folder, f"{folder / 'a.png'}\tgrey"))
    assert len(whole) == 1


def test_a_picture_is_one_however_it_is_spelled(folder: Path) -> None:
    (folder / "of" / "link.png").symlink_to(folder / "a.png")
    spelled = ("a.png", "of/../a.png", "./a.png", str(folder / "a.png"), "of/link.png")
    some = read_captions(written(folder, *(f"{name}\t{n}" for n, name in enumerate(spelled)), "of/b.png\tblue"))
    assert some.captions == [("0", "1", "2", "3", "4"), ("blue",)]
    assert len(some.pixels) == 2


@for_each(
    ("lines", "said"),
    [
        (["a.png\tgrey", "a.png grey"], r"captions.tsv:2: a line must be the path of a picture, tab, caption, got 'a"),
        (["a.png\tgrey\tmore"], r"captions.tsv:1: a line must be"),
        (["a.png\t "], r"captions.tsv:1: a line must be"),
        (["a.png\tgrey", "d.png\tgrey"], r"captions.tsv:2: there is no file .*d.png"),
        (["broken.png\tx"], r"captions.tsv:1: .*broken.png cannot be read as a picture"),
        (["a.png\tgrey", "c.png\tx"], r"captions.tsv:2: .*c.png is 5 × 5, .*:1: .*a.png 6 × 4; give"),
        ([], r"captions.tsv is empty; it must hold the path of a picture, tab, caption, one per line"),
    ],
)
def test_errors_name_file_and_line(folder: Path, lines: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_captions(written(folder, *lines))
