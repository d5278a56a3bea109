"""glibc's malloc, set to keep freed memory in the process, in large pages.

By default malloc returns large blocks to the system when they are freed, and a moment later requests new ones, page by
page and zeroed: thousands of page faults per step of a small model. glibc can be set to keep them. Where Linux offers
pages of 2 MB on request (madvise), the kept memory is requested in these, so that matrices span few pages and few
address lookups miss.
"""

import ctypes
import mmap

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # numbers of mallopt's parameters in malloc.h
# Keep blocks up to 256 MB, or 32 MB where glibc refuses more (before 2.35), and 512 MB at the end of the heap.
_BLOCKS, _KEPT = (1 << 28, 1 << 25), 1 << 29
_PAGE = 1 << 21


def retain_freed_memory() -> bool:
    """Keeps memory that is freed from now on in the process; returns whether the C library supports it.

    Holds for the whole process, until it ends. Memory that is free already is returned to the system first.
    """
    try:
        library = ctypes.CDLL(None)
        library.malloc_trim(0)
        block = next((size for size in _BLOCKS if library.mallopt(_MMAP_THRESHOLD, size)), 0)
        kept = bool(library.mallopt(_TRIM_THRESHOLD, _KEPT)) and block > 0
        if kept:
            _use_large_pages(library, block // 4)
    except (OSError, TypeError, AttributeError):
        return False
    return kept


def _has_address_limit() -> bool:
    """Whether the address space of the process is limited; memory that the heap reserves is then missing elsewhere."""
    import resource

    limits = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return any(limit != resource.RLIM_INFINITY for limit in limits)


def _use_large_pages(library: ctypes.CDLL, block: int) -> None:
    """Puts the end of the heap on large pages: allocates it, advises the system, and frees it before any write."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None or _has_address_limit():
        return
    library.malloc.argtypes, library.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    library.free.argtypes, library.free.restype = [ctypes.c_void_p], None
    library.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    # less than what is kept, or malloc would return it to the system
    blocks = [start for _ in range(_KEPT // block - 1) if (start := library.malloc(block))]
    # only if all blocks lie in one heap, next to each other
    if blocks and max(blocks) - min(blocks) < _KEPT:
        first = -(-min(blocks) // _PAGE) * _PAGE
        # if the system refuses, pages stay small
        library.madvise(first, max(blocks) + block - first, advice)
    for start in reversed(blocks):
        library.free(start)
