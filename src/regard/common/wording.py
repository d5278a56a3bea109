"""Numbers in sentences."""


def plural(count: int, noun: str) -> str:
    """A number with its noun: 1 line, 2 lines."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
