"""Files in requests: base64, with or without the head of a data: address."""

import base64
import binascii

from regard.serve.errors import RequestError


def decode_base64(where: str, text: str, kind: str) -> bytes:
    """The bytes of a file that a request holds; `where` names it, and `kind` says which files it may be."""
    if text.startswith("data:"):
        head, comma, text = text.partition(",")
        if not comma or not head.endswith(";base64"):
            raise RequestError(422, f"{where} must be base64, and its data: address says that it is not; encode it")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(422, f"{where} must be {kind} in base64, and is none ({error})") from None
