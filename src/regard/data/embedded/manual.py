"""The Python manual that every CPython carries (`pydoc_data.topics`), one document per topic.  No torch here."""

from pydoc_data.topics import topics


def documents() -> list[str]:
    """The topics by name, so that the order is that of every version."""
    return [topics[name] for name in sorted(topics)]
