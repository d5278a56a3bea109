"""EditedText: a text with the places where it was changed, and what stood there before."""

from dataclasses import dataclass
from typing import NamedTuple


class TextEdit(NamedTuple):
    """A changed place of a text, text[start:end], and the characters that it replaces; none, if it was inserted."""

    start: int
    end: int
    before: str


@dataclass(frozen=True)
class EditedText:
    """A text and its edits in the order of their places, none of which overlap."""

    text: str
    edits: tuple[TextEdit, ...] = ()

    def replace(self, start: int, end: int, new: str) -> "EditedText":
        """The same with `new` in place of text[start:end]; a place that was edited before keeps its first text, and one
        that has it again is no edit.

        The characters are those of an edit, or of the text between edits.
        """
        shift = len(new) - (end - start)
        before = self.text[start:end]
        edits = []
        for edit in self.edits:
            if (edit.start, edit.end) == (start, end):
                before = edit.before
            elif edit.start >= end:
                edits.append(TextEdit(edit.start + shift, edit.end + shift, edit.before))
            else:
                edits.append(edit)
        text = self.text[:start] + new + self.text[end:]
        if new != before:
            edits.append(TextEdit(start, start + len(new), before))
        return EditedText(text, tuple(sorted(edits)))

    def is_edited(self, start: int, end: int) -> bool:
        """Whether an edit changed one of these characters."""
        return any(edit.start < end and start < edit.end for edit in self.edits)

    @property
    def original(self) -> str:
        """The text before all edits."""
        text = self.text
        for edit in reversed(self.edits):
            text = text[: edit.start] + edit.before + text[edit.end :]
        return text
