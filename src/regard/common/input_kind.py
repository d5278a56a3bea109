"""InputKind: the kinds of inputs that tasks predict from, and their names on a command line."""

from enum import StrEnum


class InputKind(StrEnum):
    """The kind of an input of `regard predict`, by the word that sentences have for it."""

    TEXT = "text"
    IMAGE = "image"
    CLIP = "clip"
    AUDIO = "audio"
    CLASS = "class"
    EPISODE = "episode"

    @property
    def is_text(self) -> bool:
        """Whether an input is typed, or a line of a file, of a pipe or of stdin."""
        return self is InputKind.TEXT

    @property
    def is_file(self) -> bool:
        """Whether an input is named by a path."""
        return self in (InputKind.IMAGE, InputKind.CLIP, InputKind.AUDIO)

    @property
    def is_attended(self) -> bool:
        """Whether a model can attend to the input, so that `regard record` has something to show."""
        return self is not InputKind.CLASS
