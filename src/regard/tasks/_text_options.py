"""Options of `regard serve` that several text tasks have.  No torch here."""

from dataclasses import dataclass

from regard.common.option_fields import left_open


@dataclass(frozen=True)
class ServeTextInputs:
    """Limits of `regard serve` for predictors of texts."""

    characters: int = left_open("4,000")
    """Characters per text, at most."""
    body: int = left_open("1,000,000")
    """Bytes per request, at most."""
