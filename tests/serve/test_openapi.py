"""The OpenAPI document passes schemathesis: here a few requests per operation; make openapi sends many."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import validator_for
from tests import product
from tests.serve import pictures
from tests.serve.conftest import post, read
from tests.serve.openapi import ENDPOINTS, LIMITS, check, translate
from tests.serve.text_runs import text_for
from tests.tasks.language_model.test_generation import predictor
from tests.tasks.transcribe.test_endpoint import encoded

from regard.inference.endpoint import Endpoint
from regard.serve.errors import RequestError
from regard.serve.http import text_body
from regard.tasks.language_model.endpoint import GenerateEndpoint
from regard.tasks.registry import TASKS


def test_schemathesis() -> None:
    code, report = check(ENDPOINTS["classify-text"](), 7, "examples,fuzzing")
    assert code == 0, report
    assert "6 selected / 6 total" in report


def test_every_served_task_is_in_the_guide() -> None:
    guide = Path(__file__).parents[2].joinpath("docs/guides/serve.md").read_text(encoding="utf-8")
    table = guide.partition("## API")[2].partition("\n## ")[0]
    paths = {"language-model": "generate", "classify-image": "classify"}
    assert not [task for task in ENDPOINTS if f"/v1/{paths.get(task, task)}`" not in table]


def test_every_served_task_is_checked() -> None:
    assert set(ENDPOINTS) == {name for name, task in TASKS.items() if task.is_served}


# the fields with whole numbers of the tasks that have others than `top`
INTEGERS = {
    "translate": ["beam", "nbest", "top_k", "seed"],
    "language-model": ["tokens", "count", "top_k", "seed"],
    "respond": ["beam", "top_k", "seed"],
    "tag": ["paths"],
    "read": ["spans"],
}
WITHOUT_INTEGERS = ("caption", "transcribe", "answer", "track", "embed")


def integers(schema: dict[str, Any]) -> list[str]:
    """The fields that take whole numbers, or null."""
    return [
        name
        for name, field in schema["properties"].items()
        if "integer" in {part.get("type") for part in field.get("anyOf", [field])}
    ]


@pytest.mark.parametrize("task", product.first([*ENDPOINTS][::-1], 5))
def test_whole_numbers_may_have_a_point(task: str) -> None:
    """JSON Schema counts 1.0 as an integer, and so does every field of every request."""
    endpoint = ENDPOINTS[task]()
    schema = endpoint.schema.request.model_json_schema()
    if task == "transcribe":
        given = {"audio": encoded([0.0] * 400)}
    elif "image" in schema["properties"]:
        given = {"image": pictures.sent(pictures.packed(pictures.drawn(1)))}
    else:
        given = {"text": text_for(task, "a")}
    names = integers(schema)
    assert names == INTEGERS.get(task, [] if task in WITHOUT_INTEGERS else ["top"])
    for name in names:
        sampled = {"sample": True} if name in ("top_k", "seed") and task == "translate" else {}
        body = json.dumps({**given, **sampled}).removesuffix("}")
        whole = post(endpoint, f'{body}, "{name}": 1}}'.encode())
        assert whole.status_code == 200, whole.text
        for written in ("1.0", "1e0", "10.0E-1"):
            assert post(endpoint, f'{body}, "{name}": {written}}}'.encode()).content == whole.content
        for written in ("1.5", '"1"', "true", "1e999"):
            refused = post(endpoint, f'{body}, "{name}": {written}}}'.encode())
            assert refused.status_code == 422
            assert refused.json()["error"].startswith(f"{name} must be a whole number from ")


def generate() -> Endpoint:
    return GenerateEndpoint(predictor("bytes"), LIMITS, run="tiny", step=2)


def text_bodies() -> list[dict[str, Any]]:
    texts: list[dict[str, Any]] = [{"text": "a"}, {"text": "a" * 201}, {"texts": []}, {"text": "a", "texts": ["a"]}]
    return texts + [{"texts": ["a"] * n} for n in (1, 2, 3, 5, 16, 17, 32, 33)] + [{"texts": ["a", "a" * 201]}]


TRANSLATIONS = [
    {**texts, **options}
    for texts in text_bodies()
    for options in [
        *({"nbest": n} for n in (1, 3, 5, 6)),
        *({"beam": m, "nbest": n} for m in (1, 5, 10) for n in (1, 5, 6, 10, 11)),
        *({"alignment": True, "beam": 10, "nbest": n} for n in (1, 3, 5, 6, 8, 9)),
        *({"sample": True, **option} for option in ({"nbest": 7}, {"beam": 2}, {"seed": 3}, {"length_penalty": 0.5})),
        *({option: 1} for option in ("top_p", "seed", "length_penalty")),
    ]
]
GENERATIONS = [
    {**texts, "count": count, "stream": stream}
    for texts in text_bodies()
    for count in (1, 2, 3, 6, 10, 11, 16, 32, 33)
    for stream in (False, True)
]


@pytest.mark.parametrize(("make", "bodies"), [(translate, TRANSLATIONS), (generate, GENERATIONS)])
def test_the_document_states_the_rules_between_fields(make: Any, bodies: list[dict[str, Any]]) -> None:
    """A body fits the schema if and only if the endpoint reads it."""
    endpoint = make()
    bodies = bodies if product.whole else bodies[::3]
    schema = validator_for(endpoint.schema.request.model_json_schema())
    is_valid = [schema.is_valid(body) for body in bodies]
    assert 0.1 < sum(is_valid) / len(bodies) < 0.9
    assert is_valid == [can_read(endpoint, body) for body in bodies]


def can_read(endpoint: Endpoint, body: dict[str, Any]) -> bool:
    try:
        read(endpoint, body)
    except RequestError:
        return False
    return True


def test_a_rule_of_images() -> None:
    endpoint = pictures.endpoint(pictures=2)
    schema = validator_for(endpoint.schema.request.model_json_schema())
    for count, maps in [(2, True), (3, True), (3, False)]:
        body = {"images": ["a"] * count, "maps": maps}
        assert schema.is_valid(body) == can_read(endpoint, body) == (count == 2 or not maps)


def test_texts_that_are_refused_as_empty_do_not_fit_the_schema() -> None:
    visible = validator_for({"pattern": text_body._VISIBLE})
    blank = [character for character in map(chr, range(sys.maxunicode + 1)) if not character.strip()]
    assert "\x1c" in blank
    assert not [f"U+{ord(character):04X}" for character in blank if visible.is_valid(character)]
    assert visible.is_valid(" a")
