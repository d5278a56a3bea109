"""Checked-in numbers of calls on a pretended GPU, in text files that a pull request shows line by line."""

from collections.abc import Collection, Mapping
from pathlib import Path

FOLDER = Path(__file__).with_name("pretended")
WRITE = "write it with `python -m tests.gpu --write-tables`"


class Table:
    """A file with a name and a number per line. A number may only fall, and then the file says so; no line is zero, and
    none is of a call that no test makes.
    """

    def __init__(self, path: Path, heading: str, is_written: bool) -> None:
        self.path, self.heading, self.is_written = path, heading, is_written
        self.rows: dict[str, int] = {}
        self.seen: dict[str, int] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            if line and not line.startswith("#"):
                name, number = line.rsplit(maxsplit=1)
                self.rows[name] = int(number)

    def compare(self, numbers: Mapping[str, int], details: str = "") -> None:
        """Raises if a number is not that of the file."""
        self.seen.update(numbers)
        if self.is_written:
            return
        changed = [(name, self.rows.get(name, 0), n) for name, n in numbers.items() if self.rows.get(name, 0) != n]
        rose = [f"{name}: {after}, not {before}" for name, before, after in changed if after > before > 0]
        added = [f"{name}: {after}" for name, before, after in changed if not before]
        fell = [f"{name}: {after} instead of {before}" for name, before, after in changed if after < before]
        if rose:
            raise AssertionError(f"{self.path.name}: more than the table allows. {'; '.join(rose)}. {details}")
        if added:
            new = f"{self.path.name}: not in the table. {'; '.join(added)}. {details}"
            raise AssertionError(f"{new} If the call is new, {WRITE}; if not, it shall cost nothing")
        if fell:
            raise AssertionError(f"{self.path.name}: fewer, which is good. {'; '.join(fell)}. Lower the table: {WRITE}")

    def check_names(self, skipped: Collection[str]) -> None:
        """Raises if the file has a call that no test made, unless its last word is the name of a skipped test."""
        stale = [name for name in self.rows.keys() - self.seen.keys() if name.split()[-1] not in skipped]
        if stale:
            raise AssertionError(f"{self.path.name}: no test makes these calls: {'; '.join(sorted(stale))}. {WRITE}")

    def write(self, skipped: Collection[str] | None) -> None:
        """Replaces the numbers of the calls that ran; lines of skipped calls stay, all lines if that is None."""
        kept = {name: n for name, n in self.rows.items() if skipped is None or name.split()[-1] in skipped}
        rows = {name: number for name, number in {**kept, **self.seen}.items() if number}
        width = max(map(len, rows), default=0)
        heading = "".join(f"# {line}\n" for line in self.heading.splitlines())
        self.path.write_text(
            heading + "".join(f"{name:{width}}  {number:5}\n" for name, number in sorted(rows.items()))
        )


def read_tables(are_written: bool) -> dict[str, Table]:
    """The tables by their names."""
    return {
        "reads": Table(
            FOLDER / "reads.txt",
            "Reads per call on a GPU: how often the host asks for a number, and waits for the GPU.\n"
            "A call that is not here reads nothing. Numbers may only fall.",
            are_written,
        ),
        "operations": Table(
            FOLDER / "operations.txt",
            "Operations per call on a GPU: launches of kernels, without views. Numbers may only fall.",
            are_written,
        ),
    }
