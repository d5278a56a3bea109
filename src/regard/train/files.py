"""Files that are whole or not there: written under another name, forced to the disk, then renamed over the old one."""

import contextlib
import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

_UNFINISHED = ".unfinished"

_CAUSES = {
    errno.ENOSPC: "the disk is full; free some space and resume",
    errno.EDQUOT: "the quota of the disk is used up; free some space and resume",
    errno.EFBIG: "the file would be larger than this system allows; raise the limit and resume",
    errno.EROFS: "the folder cannot be written to; make it writable, or take another one",
    errno.EACCES: "the folder cannot be written to; make it writable, or take another one",
    errno.EPERM: "the folder cannot be written to; make it writable, or take another one",
    errno.ENOTDIR: "a part of that path is a file, not a folder; take another one",
}


def write(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """The chunks as one file. On any failure the file that was there before stays as it was."""
    unfinished = path.with_name(f".{path.name}{_UNFINISHED}")
    try:
        with open(unfinished, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        _settle(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise named(error, path) from error
        raise


def named(error: OSError, path: Path) -> OSError:
    """The same error as one sentence: which file, why, and the way out."""
    cause = _CAUSES.get(error.errno or 0, f"{error.strerror or error}; mend that and resume")
    return OSError(error.errno, f"cannot write {path}: {cause}; what was saved before is untouched")


def folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if isinstance(error, FileExistsError):
            raise NotADirectoryError(errno.ENOTDIR, f"{path} is a file, not a folder; take another one") from error
        raise named(error, path) from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """The folder for one process at a time, where the system can; the lock goes with the process, however it ends."""
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
            # A file system without locks is no reason not to train.
            if error.errno not in (errno.ENOTSUP, errno.ENOLCK, errno.EINVAL, errno.EBADF):
                raise
        yield
    finally:
        os.close(descriptor)


def sweep(path: Path) -> None:
    """Removes what a killed process left unfinished."""
    for left in path.glob(f".*{_UNFINISHED}"):
        left.unlink(missing_ok=True)


def _settle(path: Path) -> None:
    """Forces a folder's list of names to the disk, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
