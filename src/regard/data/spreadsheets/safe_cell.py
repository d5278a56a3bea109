"""safe_cell: a text that a spreadsheet shows as it is, and does not compute."""

# a cell that begins with one of these is a formula
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def safe_cell(text: str) -> str:
    """The text, behind an apostrophe if a spreadsheet would take it for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
