"""Memory that one step frees stays with the process for the next one, in large pages.

The C library gives large blocks back to the system when they are freed, and takes new ones, page by page and cleared,
a moment later, thousands of page faults a step of a small model. GNU's library can be told to keep them. Where Linux
gives pages of 2 MB to those who ask, what is kept is asked for in these: matrices then lie on few pages, and a
processor finds them without looking up where.
"""

import ctypes
import mmap

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of mallopt's parameters in malloc.h
# Blocks up to 256 MB are kept, up to 32 MB where glibc refuses more (before 2.35), and 512 MB free at the heap's end.
_BLOCKS, _KEPT = (1 << 28, 1 << 25), 1 << 29
_PAGE = 1 << 21


def keep() -> bool:
    """Keep what is freed, from now on, for the whole process; what is free now is given back first.  Can it be told?"""
    try:
        library = ctypes.CDLL(None)
        library.malloc_trim(0)
        block = next((size for size in _BLOCKS if library.mallopt(_MMAP_THRESHOLD, size)), 0)
        kept = bool(library.mallopt(_TRIM_THRESHOLD, _KEPT)) and block > 0
        if kept:
            _enlarge(library, block // 4)
    except (OSError, TypeError, AttributeError):
        return False
    return kept


def _limited() -> bool:
    """Is a process given so much room for addresses and no more?  What the heap takes, threads then lack."""
    import resource

    limits = (resource.getrlimit(one)[0] for one in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return any(limit != resource.RLIM_INFINITY for limit in limits)


def _enlarge(library: ctypes.CDLL, block: int) -> None:
    """The end of the heap in large pages: the room is taken, told to be so, and freed before it is written to."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None or _limited():
        return
    library.malloc.argtypes, library.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    library.free.argtypes, library.free.restype = [ctypes.c_void_p], None
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    # less than what is kept, or it would be given back
    taken = [start for _ in range(_KEPT // block - 1) if (start := library.malloc(block))]
    if taken and max(taken) - min(taken) < _KEPT:  # one behind the other, in one heap
        first = -(-min(taken) // _PAGE) * _PAGE
        library.madvise(first, max(taken) + block - first, advice)  # refused: pages stay small
    for start in reversed(taken):
        library.free(start)
