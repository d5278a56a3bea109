"""Pictures behind the service: right answers found together, maps that are the recorded ones, every bad file a 4xx."""

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from PIL import Image
from tests.serve.conftest import Service, get, post, visit
from tests.serve.pictures import captioning, drawn, glimpsing, packed, seeing, sent, sight
from tests.test_pictures import claims

from regard import pictures
from regard.cli import main
from regard.parts.map import Kept
from regard.serve.limits import Limits
from regard.serve.looks import CELLS, looks
from regard.serve.seeing import Seeing
from regard.tape.record import record
from regard.tape.recorded import Recorded
from regard.tape.recording import Recording
from regard.tasks.classification import probabilities
from regard.tasks.pictures import tensor

PICTURES = [packed(drawn(n), kind) for n, kind in enumerate(["PNG", "JPEG", "PNG", "JPEG", "PNG"])]


def chances(made: Seeing, data: bytes) -> dict[str, float]:
    """What `regard predict` finds."""
    facts = made.sight.facts
    pixels = pictures.read(data, size=(facts.width, facts.height), mode="L")[None]
    return dict(zip(facts.classes, probabilities(made.sight.model, pixels, facts)[0].tolist(), strict=True))


def test_many_at_once_have_each_their_own_answer() -> None:
    made = seeing(batch=4)

    async def act(client: httpx.AsyncClient) -> list[httpx.Response]:
        bodies = [{"image": sent(data), "maps": n % 2 == 0} for n, data in enumerate(PICTURES * 3)]
        return await asyncio.gather(*[client.post("/v1/classify", json=body) for body in bodies])

    for n, (data, got) in enumerate(zip(PICTURES * 3, visit(made, act), strict=True)):
        assert got.status_code == 200
        (one,) = got.json()["answers"]
        wanted = chances(made, data)
        assert {row["name"]: row["probability"] for row in one["classes"]} == pytest.approx(wanted, abs=1e-6)
        assert [row["probability"] for row in one["classes"]] == sorted(
            (row["probability"] for row in one["classes"]), reverse=True
        )
        assert ("maps" in one) == (n % 2 == 0)


def test_maps_are_what_the_gates_weighed_by() -> None:
    made = seeing()
    answers = post(made, {"images": [sent(PICTURES[0]), sent(PICTURES[2])], "maps": True, "top": 1}).json()["answers"]
    facts = made.sight.facts
    for data, one in zip((PICTURES[0], PICTURES[2]), answers, strict=True):
        assert len(one["classes"]) == 1
        pixels = pictures.read(data, size=(facts.width, facts.height), mode="L")[None]
        with record(made.sight.model) as tape:
            probabilities(made.sight.model, pixels, facts)
        assert [look["name"] for look in one["maps"]] == [m.name for m in tape] == ["blocks.0.gate", "blocks.1.gate"]
        for look, m in zip(one["maps"], tape, strict=True):
            wanted = m.weights.dense().mean((0, 1, 2)).reshape(1, *(m.grid or ()))
            torch.testing.assert_close(torch.tensor(look["weights"]), wanted, atol=1e-6, rtol=0)
            assert (look["kind"], look["verified"]) == ("gate", True)


@pytest.mark.parametrize("kind", ["cross", "alignment", "glimpse"])
def test_a_look_a_step_stays_a_look(kind: Any) -> None:
    torch.manual_seed(0)
    weights = torch.rand(2, 3, 5, 1 + 6).softmax(-1)  # a token before a grid of 2 × 3
    one = Recorded("a", kind, Kept(weights), certificate=0.0, grid=(2, 3))
    (look,) = looks(Recording((one,)), 1)
    torch.testing.assert_close(look.weights, weights[1].mean(0)[:, 1:].reshape(5, 2, 3))
    # a call a step: one below the other
    calls = tuple(Recorded("a", kind, Kept(weights[:, :, n : n + 1]), call=n, grid=(2, 3)) for n in range(5))
    (stepped,) = looks(Recording(calls), 1)
    torch.testing.assert_close(stepped.weights, look.weights)
    assert (look.verified, stepped.verified) == (True, False)


def test_what_has_no_places_is_no_map_and_fine_ones_are_pooled() -> None:
    flat = Recorded("a", "gate", Kept(torch.rand(1, 1, 5, 1)))
    fine = Recorded("b", "gate", Kept(torch.rand(1, 1, 2, 130 * 70)), grid=(130, 70))
    (look,) = looks(Recording((flat, fine)), 0)
    assert look.weights.shape == (1, CELLS, CELLS)
    assert float(look.weights.mean()) == pytest.approx(float(fine.weights.dense().mean()), abs=5e-3)


def test_colour_reaches_a_model_of_colours() -> None:
    made = seeing(channels=3)
    answers = post(made, {"images": [sent(packed(Image.new("RGB", (5, 5), c))) for c in ("red", "blue")]}).json()
    first, second = ([row["probability"] for row in one["classes"]] for one in answers["answers"])
    assert first != pytest.approx(second, abs=1e-6)


SMALL = sent(packed(drawn(0)))
BAD: dict[str, tuple[Any, int, str]] = {
    "nothing": ({}, 422, "give image, a string, or images, a list of strings, and not both"),
    "a number": ({"image": 3}, 422, "image must be a string, got a number"),
    "one of a list": ({"images": [SMALL, None]}, 422, "images[1] must be a string, got null"),
    "too many": ({"images": [SMALL] * 4}, 422, "images must be 1 to 3, got 4; ask several times"),
    "a field": ({"image": SMALL, "map": True}, 422, "unknown field 'map'; did you mean 'maps'? known are: image"),
    "top": ({"image": SMALL, "top": 0}, 422, "top must be a whole number from 1 to"),
    "maps": ({"image": SMALL, "maps": 1}, 422, "maps must be true or false, got a number"),
    "maps of many": ({"images": [SMALL] * 3, "maps": True}, 422, "maps are given for at most 2 images a request, got"),
    "no base64": ({"image": "§§"}, 422, "image must be a PNG or JPEG file in base64, and is none"),
    "base64 cut off": ({"image": "abc"}, 422, "image must be a PNG or JPEG file in base64, and is none"),
    "an address without base64": ({"image": "data:image/png,abc"}, 422, "image must be base64, and its data: address"),
    "an empty file": ({"image": ""}, 422, "image cannot be read as a picture"),
    "no picture": ({"image": sent(b"GIF89a no more")}, 422, "image cannot be read as a picture (none of PNG, JPEG)"),
    "another kind": (
        {"image": sent(packed(drawn(0), "BMP"))}, 422, "image cannot be read as a picture (none of PNG, JPEG)"
    ),
    "half a picture": ({"image": sent(PICTURES[1][:300])}, 422, "image cannot be read as a picture ("),
    "too many pixels": (
        {"image": sent(packed(drawn(0, 80, 26)))}, 422, "image must have at most 2,000 pixels, got 80 × 26; make it"
    ),
    "a bomb": ({"image": sent(claims(9_000, 9_000))}, 422, "image must have at most 2,000 pixels, got 9,000 × 9,000"),
    "a larger bomb": ({"image": sent(claims(60_000, 60_000))}, 422, "image cannot be read as a picture ("),
    "too many bytes": ({"image": "A" * 100_000}, 413, "a body may have at most 50,000 bytes; send less at once"),
}  # fmt: skip


@pytest.fixture(scope="module")
def strict() -> Seeing:
    return seeing(texts=3, pictures=2, pixels=2_000, body=50_000)


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_picture_is_a_sentence(name: str, strict: Seeing) -> None:
    body, status, sentence = BAD[name]
    got = post(strict, body)
    assert got.status_code == status
    assert got.json()["error"].startswith(sentence)


def test_a_data_address_is_its_picture(strict: Seeing) -> None:
    plain, addressed = (post(strict, {"image": before + SMALL}).json() for before in ("", "data:image/png;base64,"))
    assert plain == addressed


def test_a_model_that_does_not_look_at_places() -> None:
    for gate in (None, "se"):
        made = seeing(gate)
        assert not made.attends
        got = post(made, {"image": SMALL, "maps": True})
        assert got.status_code == 422
        assert got.json()["error"] == "maps need a model that looks at places, and this one does not; leave maps out"
        assert len(post(made, {"image": SMALL}).json()["answers"][0]["classes"]) == 3


def test_too_much_to_record_at_once_is_recorded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = seeing()
    body = {"images": [sent(data) for data in PICTURES], "maps": True}
    whole = post(made, body).json()["answers"]
    # SimAM keeps a weight a channel and place: those of two pictures, not of three
    monkeypatch.setattr("regard.serve.seeing._BUDGET", 2 * 4 * (4 * 77 + 8 * 24) + 1)
    for a, b in zip(whole, post(made, body).json()["answers"], strict=True):
        for first, second in zip(a["maps"], b["maps"], strict=True):
            assert np.allclose(first["weights"], second["weights"], atol=1e-6)


def test_what_it_says_of_itself(strict: Seeing) -> None:
    about = get(strict, "/v1/model").json()
    assert about["task"] == "classify"
    assert about["classes"] == ["cat", "dog <b>", "ねこ"]
    assert about["picture"] == {"width": 11, "height": 7, "channels": 1}
    assert about["limits"] == {"images": 3, "pixels": 2_000, "maps": 2, "body": 50_000, "seconds": 30.0}
    paths = get(strict, "/openapi.json").json()["paths"]
    schema = paths["/v1/classify"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == {"image", "images", "top", "maps"}
    assert post(strict, schema["example"]).status_code == 200
    page = get(strict, "/")
    assert "<title>Classify pictures with tiny</title>" in page.text
    assert "regard_waiting_pictures 0" in get(strict, "/metrics").text


def test_reading_does_not_hold_up_who_asks_meanwhile(strict: Seeing, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that takes long to unpack is unpacked beside the others."""
    open_, begun = threading.Event(), threading.Event()
    read = pictures.read

    def slow(*args: Any, **names: Any) -> Any:
        begun.set()
        assert open_.wait(30)
        return read(*args, **names)

    monkeypatch.setattr("regard.serve.seeing.pictures.read", slow)

    async def act(client: httpx.AsyncClient) -> tuple[int, int]:
        first = asyncio.create_task(client.post("/v1/classify", json={"image": SMALL}))
        await asyncio.to_thread(begun.wait, 10)
        health = (await client.get("/health")).status_code
        open_.set()
        return health, (await first).status_code

    assert visit(strict, act, Limits()) == (200, 200)


def test_a_sight_is_alone_as_in_company() -> None:
    made = sight("non-local")
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 11, 1), np.uint8)
    together = made.see(pixels)
    for n, one in enumerate(together):
        (alone,) = made.see(pixels[n : n + 1])
        assert [name for name, _ in alone.classes] == [name for name, _ in one.classes]
        assert [p for _, p in alone.classes] == pytest.approx([p for _, p in one.classes], abs=1e-6)


def test_a_path_of_glimpses() -> None:
    made = Seeing(glimpsing(), Limits(), run="tiny", step=4)
    got = post(made, {"images": [sent(data) for data in PICTURES], "maps": True}).json()["answers"]
    facts = made.sight.facts
    pixels = np.stack([pictures.read(data, size=(facts.width, facts.height), mode="L") for data in PICTURES])
    looked = made.sight.model.look(tensor(pixels, facts))  # type: ignore[operator]
    for n, one in enumerate(got):
        assert [[2 * place["x"] - 1, 2 * place["y"] - 1] for place in one["path"]] == [
            pytest.approx(place, abs=1e-6) for place in looked.places[n].tolist()
        ]
        (look,) = one["maps"]
        assert (look["kind"], look["verified"]) == ("glimpse", True)
        assert np.array(look["weights"]).shape == (3, 7, 11)
        # the middle of what a glimpse sees is its place, where that lies inside
        best = made.sight.model.retina.weights(looked.places[n], 7, 11)  # type: ignore[union-attr, operator]
        assert np.allclose(look["weights"], best, atol=1e-6)


def test_a_map_a_word() -> None:
    made = Seeing(captioning(), Limits(), run="tiny", step=4)
    assert made.name == "caption"
    got = post(made, {"images": [sent(data) for data in PICTURES], "maps": True}).json()["answers"]
    for data, one in zip(PICTURES, got, strict=True):
        assert len(one["words"]) > 0
        assert "classes" not in one
        (look,) = one["maps"]
        assert look["kind"] == "alignment"
        assert len(look["weights"]) == len(one["words"])
        assert np.array(look["weights"]).sum((1, 2)) == pytest.approx(1, abs=1e-5)
        # alone as in company
        (alone,) = post(made, {"image": sent(data), "maps": True}).json()["answers"]
        assert (alone["text"], alone["words"]) == (one["text"], one["words"])
        assert np.allclose(alone["maps"][0]["weights"], look["weights"], atol=1e-5)


def test_a_run_is_served(tmp_path: Path) -> None:
    tiny = "--data digits --gate simam --width 2 --depths 1 --batch 400 --threads 1 --steps 2 --validate-every 2"
    threads = torch.get_num_threads()
    try:
        assert main(["train", "classify-image", *tiny.split(), "--out", str(tmp_path / "run")]) == 0
    finally:
        torch.set_num_threads(threads)
    service = Service(tmp_path / "run")
    try:
        with httpx.Client(base_url=service.address, timeout=60) as client:
            got = client.post("/v1/classify", json={"image": SMALL, "maps": True, "top": 10}).json()["answers"][0]
            assert sum(row["probability"] for row in got["classes"]) == pytest.approx(1)
            assert [look["name"] for look in got["maps"]] == ["blocks.0.gate"]
            # a picture may be larger than a text
            large = client.post("/v1/classify", json={"image": "A" * 7_000_000})
            assert large.json()["error"].startswith("image cannot be read as a picture")
            assert client.post("/v1/classify", json={"image": "A" * 8_000_000}).status_code == 413
    finally:
        code, err = service.stop(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in err
    for option in (["--tokens", "5"], ["--characters", "5"], ["--beam", "2"]):
        assert main(["serve", str(tmp_path / "run"), *option]) == 2


def test_the_page_has_its_scripts(strict: Seeing, tmp_path: Path) -> None:
    script = get(strict, "/page.js").text
    assert "function drawSheet" in script
    assert 'addEventListener("drop"' in script
