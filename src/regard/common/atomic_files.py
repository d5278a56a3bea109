"""Atomic file writes: a file is written under another name, forced to the disk, then renamed over the old one."""

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path

UNFINISHED = ".unfinished"

_CAUSES = {
    errno.ENOSPC: "the disk is full; free some space and resume",
    errno.EDQUOT: "the quota of the disk is used up; free some space and resume",
    errno.EFBIG: "the file would be larger than this system allows; raise the limit and resume",
    errno.EROFS: "the folder cannot be written to; make it writable, or take another one",
    errno.EACCES: "the folder cannot be written to; make it writable, or take another one",
    errno.EPERM: "the folder cannot be written to; make it writable, or take another one",
    errno.ENOTDIR: "a part of that path is a file, not a folder; take another one",
}


def write_atomically(path: Path, chunks: Iterable[bytes | memoryview]) -> None:
    """Writes the chunks as one file. On any failure the previous file stays as it was.

    Several writers of one path, in any threads and processes, do not disturb each other; the last one wins.
    """
    # The name begins as that of the file, shortened: a file system may limit names to 255 bytes.
    unfinished = path.with_name(f".{path.name[:40]}.{os.getpid()}.{secrets.token_hex(4)}{UNFINISHED}")
    try:
        with open(unfinished, "xb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        _sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise write_error(error, path) from error
        raise


def write_error(error: OSError, path: Path) -> OSError:
    """The error of a failed write as one sentence: the file, the cause, and the way out."""
    cause = _CAUSES.get(error.errno or 0, f"{error.strerror or error}; fix that and resume")
    return OSError(error.errno, f"cannot write {path}: {cause}; files saved before are unchanged")


def make_folder(path: Path) -> None:
    """Makes the folder and its parents if they do not exist; an error is one sentence."""
    try:
        created = [each for each in (path, *path.parents) if not each.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for each in created:
            # as for files: after a power loss the name of the folder is in its parent
            _sync_folder(each.parent)
    except OSError as error:
        if isinstance(error, FileExistsError):
            raise NotADirectoryError(errno.ENOTDIR, f"{path} is a file, not a folder; take another one") from error
        cause = _CAUSES.get(error.errno or 0, f"{error.strerror or error}; take another one")
        raise OSError(error.errno, f"cannot make the folder {path}: {cause}") from error


def remove_unfinished(folder: Path) -> None:
    """Removes the unfinished files that a killed process left in the folder; those of running processes stay."""
    for path in folder.glob(f".*{UNFINISHED}"):
        if not _is_written_now(path):
            path.unlink(missing_ok=True)


def _is_written_now(unfinished: Path) -> bool:
    """Whether another process of this machine that is running writes the file."""
    name = re.search(r"\.([1-9]\d*)\.[0-9a-f]{8}$", unfinished.name.removesuffix(UNFINISHED))
    if os.name != "posix" or name is None or int(name[1]) == os.getpid():
        return False
    try:
        os.kill(int(name[1]), 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _sync_folder(path: Path) -> None:
    """Forces the directory entries of a folder to the disk, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
