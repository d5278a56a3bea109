"""Limits of a service: sizes, counts and times of requests."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Limits:
    """The limits of requests; `GET /v1/model` reports them."""

    texts: int = 32  # or images, in one request
    characters: int = 4000  # per text
    tokens: int | None = None  # per text; None: as many as the longest that was trained on
    beam: int = 10
    pictures: int = 16  # alignments in one answer, or images with maps
    pixels: int = 16_000_000  # all images of a request together, before they are resized for the model
    sound: float = 60.0  # seconds of all sounds of a request together
    body: int = 1_000_000  # bytes of a request
    batch: int = 64  # sentences or images per batch of the model
    waiting: int = 512  # sentences or images that wait for the model or are being decoded
    seconds: float = 30.0  # until an answer is ready, decoding included, and for a client to receive it
    arrival: float = 10.0  # seconds for the head of a request to arrive, and for its body
    connections: int = 512
    client_waiting: int | None = None  # inputs of one client that wait or are answered at once
    client_seconds: float | None = None  # time of the model that one client may use up per minute
    client_connections: int | None = None  # of one address

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(
                    f"{field.name} must be more than 0 and finite, got {value}; the default is {field.default}"
                )
        if self.texts > self.waiting:
            raise ValueError(
                f"waiting must hold the texts of one request, {self.texts}, got {self.waiting}; "
                f"try waiting={self.texts} or texts={self.waiting}"
            )
