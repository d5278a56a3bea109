"""Refused: why a request gets no answer, in one sentence."""

import json


class RequestError(Exception):
    """Becomes {"error": sentence} with this status; `retry` is after how many seconds it may be tried again."""

    def __init__(self, status: int, sentence: str, retry: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.retry = status, sentence, retry

    def body(self) -> bytes:
        return error_body(self.sentence)


def error_body(sentence: str) -> bytes:
    """The body of every error."""
    return json.dumps({"error": sentence}, ensure_ascii=False).encode("utf-8", "backslashreplace")


_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}


def kind(value: object) -> str:
    """What a value is, in words of JSON."""
    return "null" if value is None else _KINDS[type(value)]


def short(text: str) -> str:
    """A word of a request in an error: quoted, and never long."""
    return repr(text if len(text) <= 40 else text[:39] + "…")
