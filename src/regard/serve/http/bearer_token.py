"""BearerToken: a token that every request must send (RFC 6750)."""

import hmac

from fastapi import Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from regard.serve.errors import RequestError

_SCHEME = HTTPBearer(auto_error=False, description="The token of the service.")


class BearerToken:
    """A dependency of FastAPI, which /openapi.json lists as the scheme HTTPBearer; RequestError 401 without it."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def __call__(self, credentials: HTTPAuthorizationCredentials | None = Security(_SCHEME)) -> None:
        if credentials is None:
            raise RequestError(
                401, "the service asks for a token; send the header Authorization: Bearer TOKEN", challenge="Bearer"
            )
        # the comparison takes a time that does not depend on the number of right characters
        if not hmac.compare_digest(credentials.credentials.encode(), self._token):
            raise RequestError(401, "the token is not that of this service", challenge='Bearer error="invalid_token"')
