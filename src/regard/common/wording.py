"""Numbers, texts and durations in sentences."""


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """A number with its noun: 1 line, 2 lines; `nouns` is a plural that has no -s alone, as in 2 replies."""
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def clipped(text: str, most: int) -> str:
    """The text, cut off after `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def shortened(text: str, most: int = 60) -> str:
    """The text in quotes, cut off after `most` characters."""
    return repr(clipped(text, most))


def corrected(output: str, right: str) -> str:
    """An output, with the right one behind it if it is wrong."""
    return output if output == right else f"{output}   right: {right}"


def number(value: float) -> str:
    """A score with two decimal places, or with four significant digits if it is small."""
    return f"{value:.2f}" if abs(value) >= 10 or value == 0 else f"{value:.4g}"


def clock(seconds: float) -> str:
    """A duration as minutes and seconds, with hours if it has any."""
    whole = round(seconds)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
