"""Who may come in: names of this machine, pages of this service, programs; and what every answer carries."""

import re

import httpx
import pytest
from tests.for_each import for_each
from tests.serve.conftest import Gated, get, visit
from tests.serve.http.test_metrics import samples

from regard.serve.http.trusted_host import allowed_names
from regard.viz.html.security import is_loopback

SAID = {"content-type": "application/json"}


def asked(gated: Gated, headers: dict[str, str], **options: object) -> tuple[int, str]:
    answer = visit(
        gated, lambda c: c.post("/v1/shout", content=b'{"word": "a"}', headers={**SAID, **headers}), **options
    )
    return answer.status_code, answer.json().get("error", "")


@pytest.mark.parametrize("host", ["127.0.0.1:8080", "localhost", "LOCALHOST:1", "[::1]:8080"])
def test_names_of_this_machine(host: str, gated: Gated) -> None:
    assert asked(gated, {"host": host})[0] == 200


@for_each("host", ["evil.example", "127.0.0.1.evil.example", "localhost:80@evil.example", "", "[::1", "::1"])
def test_other_names_are_refused(host: str, gated: Gated) -> None:
    status, error = asked(gated, {"host": host})
    assert status == 403
    assert error.startswith("the service does not go by the name ")
    assert error.endswith("start it with --allow-host")
    assert not gated.calls


def test_a_name_may_be_allowed(gated: Gated) -> None:
    assert asked(gated, {"host": "look.example"}, allowed=("Look.example",))[0] == 200
    assert asked(gated, {"host": "other.example"}, allowed=("look.example",))[0] == 403
    # who listens for everyone goes by any name, unless names are given
    assert asked(gated, {"host": "other.example"}, host="0.0.0.0")[0] == 200
    assert asked(gated, {"host": "other.example"}, host="0.0.0.0", allowed=("look.example",))[0] == 403


def test_a_wildcard_allows_subdomains(gated: Gated) -> None:
    assert asked(gated, {"host": "a.look.example"}, allowed=("*.look.example",))[0] == 200
    assert asked(gated, {"host": "alook.example"}, allowed=("*.look.example",))[0] == 403
    for name in ("*", "look.*", "a*.example", "*.*.example"):
        with pytest.raises(ValueError, match=r"may have '\*\.' at its beginning only, got .*; try '\*\.example\.org'"):
            allowed_names("127.0.0.1", (name,))


@for_each(
    ("headers", "status"),
    [
        ({"origin": "http://127.0.0.1:8080"}, 200),
        ({"origin": "http://127.0.0.1:8081"}, 403),
        ({"origin": "http://localhost:8080"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://[bad"}, 403),
        ({"origin": "127.0.0.1:8080"}, 403),
        ({"origin": ""}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_other_sites_may_not_ask(headers: dict[str, str], status: int, gated: Gated) -> None:
    found, error = asked(gated, headers)
    assert found == status
    assert ("may not ask here; ask from a program, or from the page at /" in error) == (status == 403)


def test_a_link_from_elsewhere_may_lead_here(gated: Gated) -> None:
    assert visit(gated, lambda c: c.get("/", headers={"sec-fetch-site": "cross-site"})).status_code == 200


def test_a_proxy_that_encrypts(gated: Gated) -> None:
    headers = {"host": "look.example", "origin": "https://look.example"}
    assert asked(gated, headers, allowed=("look.example",))[0] == 200


@for_each(
    "path",
    [
        "/",
        "/page.js",
        "/page.css",
        "/health",
        "/v1/model",
        "/metrics",
        "/openapi.json",
        "/docs",
        "/docs/swagger-ui.css",
        "/none",
    ],
)
def test_every_answer_is_strict(path: str, gated: Gated) -> None:
    headers = get(gated, path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


def test_loopback() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.3.2.1", "::1", "localhost", "LOCALHOST"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "example.org", ""]))
    assert allowed_names("127.0.0.2", ()) == {"localhost", "127.0.0.1", "::1", "127.0.0.2"}
    assert allowed_names("10.0.0.1", ()) is None
    assert allowed_names("10.0.0.1", ("a",)) == {"10.0.0.1", "a"}


def test_a_line_a_request_without_its_text(gated: Gated) -> None:
    lines: list[str] = []
    asked(gated, {}, log=lines.append)
    visit(gated, lambda c: c.get("/secret?word=secret"), log=lines.append)
    first, second = lines
    assert " POST /v1/shout 200 " in first
    assert " GET other 404 " in second
    assert "secret" not in second


def test_every_answer_has_the_id_of_its_request(gated: Gated) -> None:
    """An id that is a short word is kept; any other is replaced, since the log prints it."""
    lines: list[str] = []

    async def act(client: httpx.AsyncClient) -> list[str]:
        found = []
        for given in ("abc-1.2_Z", "two words", "\x1b[31m".encode("latin1"), "a" * 65, ""):
            answer = await client.get("/none", headers={"x-request-id": given})
            found.append(answer.headers["x-request-id"])
        return found

    found = visit(gated, act, log=lines.append)
    assert found[0] == "abc-1.2_Z"
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in found[1:])
    assert len(set(found)) == 5
    assert [line.split()[-1] for line in lines] == found


def test_rejections_are_counted_by_cause(gated: Gated) -> None:
    async def act(client: httpx.AsyncClient) -> str:
        await client.post("/v1/shout", json={"word": 3})
        await client.post("/v1/shout", content=b"{", headers=SAID)
        await client.post("/v1/shout", content=b"{}", headers={"content-type": "text/plain"})
        await client.post("/v1/shout", json={"word": "broken"})
        await client.post("/v1/shout", json={"word": "poison"})
        await client.post("/v1/shout", json={"word": "panic in reading"})
        await client.get("/none")
        await client.get("/", headers={"host": "evil.example"})
        await client.get("/", headers={"origin": "https://evil.example"})
        await client.get("/metrics")
        return (await client.get("/metrics", headers={"authorization": "Bearer one"})).text

    found = samples(visit(gated, act, tokens={"ann": "one"}))
    assert found["regard_rejected_total", 'cause="token"'] == 7
    found = samples(visit(gated, act))
    causes = {labels: value for (name, labels), value in found.items() if name == "regard_rejected_total"}
    assert causes == {
        f'cause="{cause}"': float(count)
        for cause, count in {
            "field": 1, "malformed": 1, "type": 1, "fault": 3, "path": 1, "host": 1, "site": 1,
        }.items()
    }  # fmt: skip
