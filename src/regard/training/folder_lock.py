"""A lock on the folder of a run: one process at a time trains in it."""

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LockedFolder:
    """A folder with an open descriptor, by which another folder of the same name is told apart; None cannot tell."""

    path: Path
    descriptor: int | None = None
    created: bool = False  # whether this training created the folder

    @property
    def is_in_place(self) -> bool:
        """Whether the path still leads to the folder that was locked."""
        if self.descriptor is None:
            return True
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.descriptor))
        except OSError:
            return False

    def check_in_place(self) -> None:
        """Raises if the folder is no longer in place, before anything is written into another one."""
        if not self.is_in_place:
            raise FileNotFoundError(
                errno.ENOENT,
                f"{self.path} was deleted, moved or replaced while a training wrote into it; the training ends and "
                "writes nothing into the new folder: train in another folder, or resume the moved one",
            )


@contextlib.contextmanager
def lock_folder(path: Path) -> Iterator[LockedFolder]:
    """Locks the folder for one process, where the system can; the lock ends with the process, however it ends."""
    try:
        import fcntl
    except ImportError:
        yield LockedFolder(path)
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
        yield LockedFolder(path, descriptor)
    finally:
        os.close(descriptor)
