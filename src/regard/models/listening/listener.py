"""Listener: the base class of models that turn frames of sound into text."""

from abc import abstractmethod

from torch import Tensor

from regard.models.encoder_decoder import EncoderDecoder


class Listener(EncoderDecoder):
    """p(y | x) = Π_t p(y_t | y_<t, x) of frames x "b s m", which the encoder shortens to fewer states."""

    @abstractmethod
    def encoded_lengths(self, lengths: Tensor) -> Tensor:  # "b" -> "b"
        """The number of states of this many frames."""
