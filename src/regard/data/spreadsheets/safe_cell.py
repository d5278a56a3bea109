"""safe_cell: a text that a spreadsheet shows as it is, and does not compute."""

# a cell that begins with one of these is a formula
_FORMULA = ("=", "+", "-", "@", "\t")


def safe_cell(text: str) -> str:
    """The text, behind an apostrophe if a spreadsheet would take it for a formula.

    A carriage return becomes a space: csv does not quote it, and some spreadsheets begin a row behind it.
    """
    text = text.replace("\r", " ")
    return f"'{text}" if text.startswith(_FORMULA) else text
