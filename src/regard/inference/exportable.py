"""Exportable: the parts of a predictor that the files of another library can hold."""

from dataclasses import dataclass

from torch import nn

from regard.data.text.library_vocabulary import LibraryVocabulary


@dataclass(frozen=True, eq=False)
class Exportable:
    """A model with its vocabulary, and of a translator with that of the target.

    `longest` is the number of tokens that the model reads at once; None: any.
    """

    model: nn.Module
    vocabulary: LibraryVocabulary
    target: LibraryVocabulary | None = None
    classes: tuple[str, ...] = ()
    longest: int | None = None
