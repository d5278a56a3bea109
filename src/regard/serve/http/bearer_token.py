"""BearerToken: the tokens of which every request must send one (RFC 6750)."""

import hmac
from collections.abc import Mapping

from fastapi import Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from regard.serve.access import CLIENT, UNNAMED
from regard.serve.errors import RequestError

_SCHEME = HTTPBearer(auto_error=False, description="A token of the service.")


class BearerToken:
    """A dependency of FastAPI, which /openapi.json lists as the scheme HTTPBearer; RequestError 401 without a token.

    The name of the token, if it has one, becomes that of the client of the request.
    """

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = {name: token.encode() for name, token in tokens.items()}

    async def __call__(
        self, request: Request, credentials: HTTPAuthorizationCredentials | None = Security(_SCHEME)
    ) -> None:
        if credentials is None:
            raise RequestError(
                401, "the service asks for a token; send the header Authorization: Bearer TOKEN", challenge="Bearer"
            )
        # each comparison takes a time that does not depend on the number of right characters, and all are made
        sent = credentials.credentials.encode()
        names = [name for name, token in self._tokens.items() if hmac.compare_digest(sent, token)]
        if not names:
            raise RequestError(401, "the token is not that of this service", challenge='Bearer error="invalid_token"')
        if names[0] != UNNAMED:
            request.scope.setdefault("state", {})[CLIENT] = names[0]
