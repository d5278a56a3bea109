"""Unicode's CLDR, in the edition that the installed Babel carries."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def fresh_babel(dataset: str) -> Iterator[Any]:
    """Babel with tables as its files have them; `dataset` names who needs it where it is not installed.

    Babel writes what it looks up for one locale into tables that others share (python-babel#1234), so that the name of
    a month depends on what the process did before. Inside, tables are read afresh; afterwards the old ones are back.
    """
    try:
        import babel
        import babel.dates
        import babel.localedata
    except ImportError as error:
        raise ImportError(f"{dataset} needs babel; install it with: pip install 'regard[train]'") from error
    tables = babel.localedata._cache
    before = dict(tables)
    tables.clear()
    try:
        yield babel
    finally:
        tables.clear()
        tables.update(before)
