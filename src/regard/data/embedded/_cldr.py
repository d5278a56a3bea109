"""Unicode's CLDR, in the edition that the installed Babel carries."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def fresh_babel(dataset: str) -> Iterator[Any]:
    """Babel with tables as in its files; `dataset` names the data set in the error if Babel is not installed.

    Babel writes values that it looks up for one locale into tables that others share (python-babel#1234), so that the
    name of a month depends on earlier calls. Inside the context tables are read afresh; afterwards the old ones are
    restored.
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
