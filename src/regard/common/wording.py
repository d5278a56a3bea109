"""Numbers in sentences."""


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """A number with its noun: 1 line, 2 lines; `nouns` is a plural that has no -s alone, as in 2 replies."""
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def shortened(text: str, most: int = 60) -> str:
    """The text in quotes, cut off after `most` characters."""
    return repr(text if len(text) <= most else text[: most - 1] + "…")
