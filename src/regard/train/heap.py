"""Memory that one step frees stays with the process for the next one.

The C library gives large blocks back to the system when they are freed, and takes new ones, page by page and cleared,
a moment later, thousands of page faults a step of a small model. GNU's library can be told to keep them.
"""

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of mallopt's parameters in malloc.h
# Blocks up to 256 MB are kept, up to 32 MB where glibc refuses more (before 2.35), and 512 MB free at the heap's end.
_BLOCKS, _KEPT = (1 << 28, 1 << 25), 1 << 29


def keep() -> bool:
    """Keep what is freed, from now on, for the whole process; what is free now is given back first.  Can it be told?"""
    try:
        library = ctypes.CDLL(None)
        library.malloc_trim(0)
        blocks = any(library.mallopt(_MMAP_THRESHOLD, size) for size in _BLOCKS)
        return bool(library.mallopt(_TRIM_THRESHOLD, _KEPT)) and blocks
    except (OSError, TypeError, AttributeError):
        return False
