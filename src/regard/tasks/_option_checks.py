"""Checks of options that several tasks have.  No torch here."""

from typing import Any

from regard.common.option_checks import check_finite, check_positive
from regard.common.option_fields import resolve


def check_beam(options: Any) -> None:
    """Raises for a beam below one, and for a length penalty without a beam; fills in the penalty."""
    check_positive(options, "beam")
    check_finite(options, "length_penalty")
    if options.beam == 1 and options.length_penalty is not None:
        raise ValueError(f"--length-penalty {options.length_penalty} means nothing to --beam 1; raise --beam")
    resolve(options, {"length_penalty": 1.0})


def check_split(options: Any) -> None:
    """Raises for --split beside --test; fills in the split."""
    if options.test and options.split is not None:
        raise ValueError(f"--split {options.split} and --test {options.test[0]} exclude each other; give one of them")
    resolve(options, {"split": "test"})
