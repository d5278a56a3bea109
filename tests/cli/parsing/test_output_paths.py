"""Output paths can be written, and inputs of a command are not overwritten."""

import re
from pathlib import Path

import pytest

from regard.cli.parsing.output_paths import check_output


def written(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}", encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["run.json", "config.toml", "source.ids", "validated/4.safetensors", "samples/4.png"])
def test_no_file_of_a_run_is_written_over(name: str, tmp_path: Path) -> None:
    run, link, new = tmp_path / "run", tmp_path / "link", tmp_path / "run" / "new.txt"
    written(run / "run.json")
    link.symlink_to(written(run / name))
    for path in (run / name, link):
        with pytest.raises(ValueError, match=rf"--out .* is a file of {run} and would be written over; name another"):
            check_output("--out", path, run)
    check_output("--out", new, run)
    check_output("--out", written(tmp_path / "other.txt"), run)


def test_a_model_may_lie_where_one_works(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a file of .* and would be written over"):
        check_output("--out", written(tmp_path / "merges.txt"), tmp_path)
    check_output("--out", written(tmp_path / "figures" / "one.html"), tmp_path)


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    for path, suffixes, sentence in (
        ("", (".png",), f"--out {tmp_path} is a folder; name a file in it, such as {tmp_path / 'output.png'}"),
        ("", (), f"--out {tmp_path} is a folder; name a file in it, such as {tmp_path / 'output.txt'}"),
        ("a.doc", (".png", ".pdf"), "unknown suffix of --out '.doc'; known are: .png, .pdf"),
        ("nix/a", (), f"--out {tmp_path / 'nix/a'}: there is no folder {tmp_path / 'nix'}; make it first"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
            check_output("--out", tmp_path / path, tmp_path / "run", suffixes)
    check_output("--out", None, tmp_path)
