"""What the service bears: how much of everything, and how long."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """Numbers that a request must keep to; `GET /v1/model` tells them."""

    texts: int = 32  # or images, in one request
    characters: int = 4000  # of a text
    tokens: int | None = None  # of a text; None: as many as the longest that was trained on
    beam: int = 10
    pictures: int = 16  # alignments in one answer, or images with maps
    pixels: int = 16_000_000  # of the images of a request together, before they are made as small as the model's
    body: int = 1_000_000  # bytes of a request
    batch: int = 64  # sentences, or images, that the model answers at once
    waiting: int = 512  # sentences, or images, that wait for the model, or to be unpacked for it
    seconds: float = 30.0  # for an answer to be found, unpacking included, and for a client to take it
    arrival: float = 10.0  # seconds for the head of a request to arrive, and for its body
    connections: int = 512

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(
                    f"{one.name} must be more than 0 and finite, got {value}; the default is {one.default}"
                )
        if self.texts > self.waiting:
            raise ValueError(
                f"waiting must hold the texts of one request, {self.texts}, got {self.waiting}; "
                f"try waiting={self.texts} or texts={self.waiting}"
            )
