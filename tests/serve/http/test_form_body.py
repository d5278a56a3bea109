"""Forms with files: the same answer as the same request as JSON; what is no form is a sentence."""

import tempfile
from typing import Any

import httpx
import pytest
from tests.for_each import for_each
from tests.serve import pictures
from tests.serve.conftest import Gated, post, visit

from regard.serve.served_model import ServedModel
from regard.serve.server import server
from regard.tasks.shared.image_endpoint import ImageEndpoint

FILE = pictures.packed(pictures.drawn(1))
OTHER = pictures.packed(pictures.drawn(2), "JPEG")


@pytest.fixture(scope="module")
def served() -> ImageEndpoint:
    return pictures.endpoint(body=100_000)


def form(served: Any, files: list[tuple[str, Any]], **fields: str) -> httpx.Response:
    return visit(served, lambda client: client.post(f"/v1/{served.name}", files=files, data=fields))


def test_a_file_is_answered_as_its_base64(served: ImageEndpoint) -> None:
    answer = form(served, [("image", ("three.png", FILE))], top="2", maps="true")
    assert answer.status_code == 200
    assert answer.content == post(served, {"image": pictures.sent(FILE), "top": 2, "maps": True}).content
    text = visit(served, lambda c: c.post("/v1/classify", files=[("image", (None, pictures.sent(FILE)))]))
    assert text.content == post(served, {"image": pictures.sent(FILE)}).content


def test_several_files(served: ImageEndpoint) -> None:
    answer = form(served, [("images", ("a.png", FILE)), ("images", ("b.jpg", OTHER))], maps="false")
    assert answer.content == post(served, {"images": [pictures.sent(FILE), pictures.sent(OTHER)]}).content


@for_each(
    ("files", "fields", "status", "sentence"),
    [
        ([("image", ("a", FILE))], {"top": "many"}, 422, "top must be a whole number from 1 to 1000000, got a string"),
        ([("image", ("a", FILE))], {"maps": "null"}, 422, "maps must be true or false, got a string"),
        ([("image", ("a", FILE))], {"map": "true"}, 422, "unknown field 'map'; did you mean 'maps'?"),
        ([("image", ("a", FILE)), ("top", ("b", b"3"))], {}, 422, "top is no file; send its value as text"),
        ([("image", ("a", FILE)), ("image", ("b", FILE))], {}, 400, "'image' is given twice; give it once"),
        ([("image", ("a", b"text"))], {}, 422, "image cannot be read as a picture"),
        ([("image", ("a", FILE)), ("images", ("b", FILE))], {}, 422, "give image, a string, or images, a list"),
        ([("image", ("a", b"a" * 100_000))], {}, 413, "a body may have at most 100,000 bytes; send less at once"),
        ([("images", (f"{n}", b"")) for n in range(33)], {}, 422, "images must be 1 to 32, got 33; send"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_a_sentence(
    files: Any, fields: dict[str, str], status: int, sentence: str, served: ImageEndpoint
) -> None:
    answer = form(served, files, **fields)
    assert answer.status_code == status
    assert answer.json()["error"].startswith(sentence)


@pytest.mark.parametrize(
    ("kind", "body", "sentence"),
    [
        ("multipart/form-data", b"--a\r\n", "the body must be a form: Missing boundary in multipart"),
        ("multipart/form-data; boundary=a", b"nothing", "the body must be a form: "),
        ("multipart/form-data; boundary=a", b"--a\r\nx: y\r\n\r\n1\r\n--a--\r\n", "the body must be a form: "),
        (
            'multipart/form-data; boundary="a"',
            b'--a\r\nContent-Disposition: form-data; name="top"\r\n\r\n3\r\n',
            "the body must be a form: its end is missing; end it by its boundary and --",
        ),
    ],
)
def test_what_is_no_form(kind: str, body: bytes, sentence: str, served: ImageEndpoint) -> None:
    answer = visit(served, lambda c: c.post("/v1/classify", content=body, headers={"content-type": kind}))
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(sentence)


def test_a_wrong_form_is_not_logged(served: ImageEndpoint, caplog: pytest.LogCaptureFixture) -> None:
    server([ServedModel(served, served.limits)], host="127.0.0.1")
    headers = {"content-type": "multipart/form-data; boundary=a"}
    answer = visit(served, lambda c: c.post("/v1/classify", content=b"--a\r\n\xff", headers=headers))
    assert answer.status_code == 400
    assert "multipart" not in caplog.text


def test_who_has_no_files_takes_no_forms(gated: Gated) -> None:
    answer = form(gated, [("word", (None, "a"))])
    assert answer.status_code == 415
    assert answer.json()["error"].startswith("the content type must be application/json, got 'multipart/form-data; ")


def test_nothing_is_written_to_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise AssertionError("a file was written")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    large = pictures.packed(pictures.drawn(1, 800, 700))  # more than starlette keeps in memory by itself
    assert len(large) > 1_500_000
    answer = form(pictures.endpoint(body=8_000_000), [("image", ("a.png", large))])
    assert answer.status_code == 200


def test_the_document_has_both(served: ImageEndpoint) -> None:
    schema = visit(served, lambda c: c.get("/openapi.json")).json()
    content = schema["paths"]["/v1/classify"]["post"]["requestBody"]["content"]
    assert set(content) == {"application/json", "multipart/form-data"}
    fields = content["multipart/form-data"]["schema"]["properties"]
    for field in (fields["image"], fields["images"]["items"]):
        assert field["contentMediaType"] == "application/octet-stream"
    assert "contentEncoding" not in fields["image"]
    assert content["application/json"]["schema"]["properties"]["image"]["contentEncoding"] == "base64"
