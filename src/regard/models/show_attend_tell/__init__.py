"""Show, Attend and Tell (Xu et al. 2015): the model and its image encoder."""

from regard.models.show_attend_tell.model import ShowAttendTell

__all__ = ["ShowAttendTell"]
