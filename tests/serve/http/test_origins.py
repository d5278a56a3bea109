"""Pages of other sites: those of allowed origins may ask, and read errors too; all others are refused as before."""

import httpx
import pytest
from tests.for_each import for_each
from tests.serve.conftest import Gated, get, visit

SITE = "https://app.example:8443"


def asked(gated: Gated, origin: str, **options: object) -> httpx.Response:
    headers = {"origin": origin, "sec-fetch-site": "cross-site"}
    return visit(
        gated, lambda client: client.post("/v1/shout", json={"word": "a"}, headers=headers), origins=[SITE], **options
    )


def preflight(gated: Gated, origin: str, header: str = "authorization,content-type") -> httpx.Response:
    headers = {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": header}
    return visit(
        gated, lambda client: client.options("/v1/shout", headers=headers), origins=[SITE], tokens={"token": "token"}
    )


def test_an_allowed_page_may_ask(gated: Gated) -> None:
    answer = asked(gated, SITE)
    assert (answer.status_code, answer.json()) == (200, {"said": "A"})
    assert answer.headers["access-control-allow-origin"] == SITE
    assert answer.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in answer.headers


def test_it_may_read_why_it_is_refused(gated: Gated) -> None:
    answer = asked(gated, SITE, tokens={"token": "token"})
    assert answer.status_code == 401
    assert answer.headers["access-control-allow-origin"] == SITE
    assert "www-authenticate" in answer.headers["access-control-expose-headers"].lower()


@pytest.mark.parametrize("origin", ["https://app.example", "http://app.example:8443", f"{SITE}.evil.example", "null"])
def test_other_pages_may_not(origin: str, gated: Gated) -> None:
    answer = asked(gated, origin)
    assert answer.status_code == 403
    assert answer.json()["error"] == (
        f"the page of {origin!r} may not ask here; ask from a program, or from the page at /, "
        "or start the service with --allow-origin"
    )
    assert "access-control-allow-origin" not in answer.headers
    assert preflight(gated, origin).status_code == 403
    assert not gated.calls


def test_a_preflight_needs_no_token(gated: Gated) -> None:
    answer = preflight(gated, SITE)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == SITE
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "authorization" in answer.headers["access-control-allow-headers"].lower()
    assert preflight(gated, SITE, "x-other").status_code == 400


def test_programs_and_the_own_page_ask_as_before(gated: Gated) -> None:
    assert get(gated, "/health", origins=[SITE]).status_code == 200
    assert "access-control-allow-origin" not in get(gated, "/health", origins=[SITE]).headers
    own = {"origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-origin"}
    answer = visit(gated, lambda c: c.post("/v1/shout", json={"word": "a"}, headers=own), origins=[SITE])
    assert answer.status_code == 200


@for_each("origin", ["*", "app.example", "https://app.example/", "HTTPS://app.example", "https://*.a.b", ""])
def test_what_is_no_origin(origin: str, gated: Gated) -> None:
    with pytest.raises(ValueError, match="an allowed origin must be") as raised:
        get(gated, "/", origins=[origin])
    assert str(raised.value) == (
        f"an allowed origin must be a scheme, a host in lower case and maybe a port, got {origin!r}; "
        "try https://www.example.org"
    )
