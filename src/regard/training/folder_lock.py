"""A lock on the folder of a run: one process at a time trains in it."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def lock_folder(path: Path) -> Iterator[None]:
    """Locks the folder for one process, where the system can; the lock ends with the process, however it ends."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BlockingIOError(
                error.errno, f"another process trains in {path} now; wait for its end, or take another folder"
            ) from error
        except OSError as error:
            # on a file system without locks, train unlocked
            if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.EINVAL, errno.EBADF):
                raise
        yield
    finally:
        os.close(descriptor)
