"""A token: who has none is refused, wherever a model is computed or described, and nowhere else."""

import pytest
from tests.for_each import for_each
from tests.serve.conftest import Gated, get, visit

from regard.serve.access import check_token

TOKEN = "s3cret-token_~+/.=="
MISSING = "the service asks for a token; send the header Authorization: Bearer TOKEN"
WRONG = "the token is not that of this service"


@pytest.mark.parametrize(
    ("header", "status", "challenge", "error"),
    [
        (None, 401, "Bearer", MISSING),
        ("", 401, "Bearer", MISSING),
        (f"Basic {TOKEN}", 401, "Bearer", MISSING),
        (TOKEN, 401, "Bearer", MISSING),
        ("Bearer s3cret", 401, 'Bearer error="invalid_token"', WRONG),
        (f"Bearer {TOKEN}x", 401, 'Bearer error="invalid_token"', WRONG),
        (f"Bearer é{TOKEN}", 401, 'Bearer error="invalid_token"', WRONG),
        (f"Bearer {TOKEN}", 200, None, None),
        (f"bearer {TOKEN}", 200, None, None),
    ],
)
def test_who_has_no_token_is_refused(
    header: str | None, status: int, challenge: str | None, error: str | None, gated: Gated
) -> None:
    headers = {} if header is None else {"authorization": header.encode("latin1")}
    answer = visit(
        gated, lambda client: client.post("/v1/shout", json={"word": "a"}, headers=headers), tokens={"token": TOKEN}
    )
    assert (answer.status_code, answer.headers.get("www-authenticate")) == (status, challenge)
    assert answer.json().get("error") == error
    assert len(gated.calls) == (status == 200)


@for_each(
    ("path", "status"),
    [("/v1/model", 401), ("/metrics", 401), ("/", 200), ("/page.js", 200), ("/health", 200), ("/openapi.json", 200),
     ("/docs", 200), ("/none", 404)],
)  # fmt: skip
def test_models_are_behind_the_token_and_pages_are_not(path: str, status: int, gated: Gated) -> None:
    assert get(gated, path, tokens={"token": TOKEN}).status_code == status


def test_the_document_names_the_scheme(gated: Gated) -> None:
    schema = get(gated, "/openapi.json", tokens={"token": TOKEN}).json()
    assert schema["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    operations = {(path, verb): op for path, verbs in schema["paths"].items() for verb, op in verbs.items()}
    for (path, _), operation in operations.items():
        assert ("security" in operation) == ("401" in operation["responses"]) == (not path.startswith("/health"))
    plain = get(gated, "/openapi.json").json()
    assert "securitySchemes" not in plain["components"]


@pytest.mark.parametrize("token", ["", "two words", "é", "a=b", "line\n"])
def test_a_token_that_no_header_holds(token: str, gated: Gated) -> None:
    with pytest.raises(ValueError, match="a token must be") as raised:
        get(gated, "/", tokens={"token": token})
    assert str(raised.value) == (
        "a token must be letters, digits and the signs - . _ ~ + /, at least one; "
        "python -c 'import secrets; print(secrets.token_urlsafe())' makes one"
    )
    assert check_token(TOKEN) == TOKEN
