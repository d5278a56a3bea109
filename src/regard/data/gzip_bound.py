"""The bound of .gz files: a small file can unpack to any size, so a suspicious one is refused before it fills the
memory."""

from pathlib import Path

# text and images pack to a tenth or more; zeros to a thousandth
RATIO = 200
_ALWAYS = 1 << 26


def max_unpacked(path: Path) -> int:
    """The number of bytes that a .gz file may unpack to: 200 times its size, but 64 MB in any case."""
    return max(_ALWAYS, RATIO * path.stat().st_size)


def unpack_error(path: Path, place: str = "") -> ValueError:
    """The error of a .gz file that unpacks to more."""
    return ValueError(
        f"{path}{place} unpacks to more than {max_unpacked(path):,} bytes, {RATIO} times its size or more; if that is "
        "no mistake, unpack it with gunzip and name the unpacked file"
    )
