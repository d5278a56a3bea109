"""RequestError: an HTTP status, one sentence and a cause; the JSON body of every error."""

import json

FAULT = "the service failed, which is its fault; see its log"
STOPPING = "the service is stopping; try again when it is back"
BUSY = "too many connections; try again in a moment"


# the label `cause` of regard_rejected_total, by status, of an error that does not name its own
CAUSES = {
    400: "malformed",
    401: "token",
    403: "site",
    404: "path",
    405: "path",
    408: "slow",
    413: "size",
    415: "type",
    422: "field",
    429: "queue",
    431: "size",
    499: "left",
    500: "fault",
    501: "malformed",
    503: "time",
}


class RequestError(Exception):
    """Becomes {"error": sentence} with this status; `retry` is the value of Retry-After, in seconds, and `challenge`
    that of WWW-Authenticate. `cause` is its label in the metrics."""

    def __init__(
        self, status: int, sentence: str, retry: int | None = None, challenge: str | None = None, cause: str = ""
    ) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.retry, self.challenge = status, sentence, retry, challenge
        self.cause = cause or CAUSES[status]

    @property
    def headers(self) -> dict[str, str]:
        after = {} if self.retry is None else {"retry-after": str(self.retry)}
        return after if self.challenge is None else {**after, "www-authenticate": self.challenge}

    def body(self) -> bytes:
        return error_body(self.sentence)


def error_body(sentence: str) -> bytes:
    """The body of every error."""
    return json.dumps({"error": sentence}, ensure_ascii=False).encode("utf-8", "backslashreplace")


def missing_library() -> ImportError:
    """The error for a service whose libraries are not installed."""
    return ImportError("a service needs FastAPI and uvicorn; install them with: pip install 'regard[serve]'")


_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}


def kind(value: object) -> str:
    """The JSON type of a value, in words."""
    return "null" if value is None else _KINDS[type(value)]
