"""Inputs of a command are not overwritten."""

from pathlib import Path

import pytest

from regard.cli.parsing.output_paths import not_an_input


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
            not_an_input("--out", path, run, {})
    not_an_input("--out", new, run, {})
    not_an_input("--out", written(tmp_path / "other.txt"), run, {})


def test_a_model_may_lie_where_one_works(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a file of .* and would be written over"):
        not_an_input("--out", written(tmp_path / "merges.txt"), tmp_path, {})
    not_an_input("--out", written(tmp_path / "figures" / "one.html"), tmp_path, {})
