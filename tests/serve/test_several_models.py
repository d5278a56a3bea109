"""Several models in one service: each under its name, with its own page, limits and batches."""

import asyncio
from typing import Any

import httpx
import pytest
from tests.for_each import for_each
from tests.serve import pictures
from tests.serve.conftest import Gated, Make, visit_models as visit
from tests.serve.http.test_metrics import samples

from regard.inference.limits import Limits
from regard.serve.served_model import ServedModel, check_names
from regard.serve.server import server


@pytest.fixture
def models(translating: Make, gated: Gated) -> list[ServedModel]:
    loud = Gated()
    return [
        ServedModel(translating(), Limits(), "reverse"),
        ServedModel(pictures.endpoint(), Limits(), "digits"),
        ServedModel(gated, Limits(), "quiet"),
        ServedModel(loud, Limits(body=20), "loud"),
    ]


def test_each_answers_under_its_name(models: list[ServedModel]) -> None:
    async def act(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [
            await client.post("/reverse/v1/translate", json={"text": "a b c"}),
            await client.post("/digits/v1/classify", files={"image": pictures.packed(pictures.drawn(1))}),
            await client.post("/quiet/v1/shout", json={"word": "a much longer word"}),
            await client.post("/loud/v1/shout", json={"word": "a much longer word"}),
            await client.post("/v1/shout", json={"word": "a"}),
            await client.get("/digits/v1/model"),
        ]

    *answers, about = visit(models, act)
    assert [answer.status_code for answer in answers] == [200, 200, 200, 413, 404]
    assert about.json()["task"] == "classify"


def test_pages_are_relative_to_their_model(models: list[ServedModel]) -> None:
    async def act(client: httpx.AsyncClient) -> dict[str, httpx.Response]:
        paths = ("/", "/page.css", "/quiet", "/quiet/", "/quiet/page.js", "/quiet/page.css")
        return {path: await client.get(path) for path in paths}

    found = visit(models, act)
    for name in ("reverse", "digits", "quiet", "loud"):
        assert f'<a href="{name}/">{name}</a>' in found["/"].text
    assert "Translate with tiny" in found["/"].text
    assert (found["/quiet"].status_code, found["/quiet"].headers["location"]) == (307, "quiet/")
    assert "<title>Shout</title>" in found["/quiet/"].text
    assert 'src="page.js"' in found["/quiet/"].text
    assert all(answer.status_code == 200 for path, answer in found.items() if path != "/quiet")


def test_one_document_and_one_set_of_metrics(models: list[ServedModel]) -> None:
    async def act(client: httpx.AsyncClient) -> tuple[Any, str, Any]:
        await client.post("/quiet/v1/shout", json={"word": "a"})
        return (
            (await client.get("/openapi.json")).json(),
            (await client.get("/metrics")).text,
            await client.get("/health"),
        )

    schema, metrics, health = visit(models, act)
    assert {path for path in schema["paths"] if "/v1/" in path} == {
        f"/{path}" for name, task in
        [("reverse", "translate"), ("digits", "classify"), ("quiet", "shout"), ("loud", "shout")]
        for path in (f"{name}/v1/{task}", f"{name}/v1/model")
    }  # fmt: skip
    assert schema["paths"]["/quiet/v1/shout"]["post"]["tags"] == ["quiet"]
    operations = [op["operationId"] for verbs in schema["paths"].values() for op in verbs.values()]
    assert len(set(operations)) == len(operations)
    found = samples(metrics)
    assert found["regard_batch_sentences_count", 'model="quiet"'] == 1
    assert found["regard_batch_sentences_count", 'model="loud"'] == 0
    assert found["regard_waiting_pictures", 'model="digits"'] == 0
    assert found["regard_requests_total", 'path="/quiet/v1/shout",status="200"'] == 1
    assert health.json() == {"status": "ok"}


def test_a_busy_model_does_not_hold_up_the_other(models: list[ServedModel], gated: Gated) -> None:
    gated.gate.clear()

    async def act(client: httpx.AsyncClient) -> tuple[str, str]:
        first = asyncio.create_task(client.post("/quiet/v1/shout", json={"word": "a"}))
        await asyncio.to_thread(gated.begun.wait, 60)
        other = await client.post("/loud/v1/shout", json={"word": "b"})
        gated.gate.set()
        return other.text, (await first).text

    assert visit(models, act) == ('{"said":"B"}', '{"said":"A"}')


def test_connections_keep_the_strictest_number_and_the_longest_time(gated: Gated) -> None:
    limits = [Limits(connections=64, seconds=30.0, arrival=3.0), Limits(connections=512, seconds=50.0, arrival=2.0)]
    made = server([ServedModel(gated, each, name) for each, name in zip(limits, "ab", strict=True)], host="127.0.0.1")
    kept: Any = made.config.http
    assert (kept.limits.connections, kept.limits.seconds, kept.limits.arrival) == (64, 50.0, 3.0)


@for_each(
    ("names", "sentence"),
    [
        (["a", "b", "a"],
         "two runs have the name 'a', which is the path of a model; rename a folder, or make a link to it"),
        *(
            ([name, "b"],
             f"{name!r} cannot be the path of a model: give the folder a name of letters, digits, '.', '_', '~' "
             "and '-', other than docs, health, metrics, v1, openapi.json, page.css, page.js; or serve it alone")
            for name in ("a b", "{x}", "é", "", ".hidden", "docs", "v1")
        ),
    ],
)  # fmt: skip
def test_names_that_are_no_paths(names: list[str], sentence: str) -> None:
    check_names(["en-de", "run_2.1~x"])
    with pytest.raises(ValueError, match="path of a model") as raised:
        check_names(names)
    assert str(raised.value) == sentence
