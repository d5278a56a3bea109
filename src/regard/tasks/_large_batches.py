"""The warning of a --batch that counts samples, such as images, and is larger than all of them.  No torch here."""

# A batch of fewer samples may hold a small data set without a warning.
_MANY = 1 << 10


def large_batch_warnings(batch: int, count: int, noun: str) -> list[str]:
    """A sentence if a batch of many samples holds all `count` of them and more; `noun` is their plural."""
    if batch <= max(count, _MANY):
        return []
    return [
        f"--batch {batch:,} is more than the {count:,} {noun} there are: an epoch is one step, in which all of them "
        f"take memory at once; try --batch {max(count // 16, 1)}"
    ]
