"""ImageEndpoint: the right answers in batches, maps that are the recorded ones, a status of 4xx for every bad file."""

import asyncio
import io
import signal
import threading
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from PIL import Image
from tests.common.test_image_files import claims
from tests.for_each import for_each
from tests.serve.conftest import Service, advance, get, post, read, trained, visit
from tests.serve.pictures import captioner, drawn, endpoint, glimpse_classifier, packed, sent

from regard.attn.maps.attention_map import DenseMap
from regard.cli.main import main
from regard.common import image_files
from regard.common.cancellation import Cancellation, cancelled_if
from regard.inference.limits import Limits
from regard.recording.record import record
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.tasks.shared.image_data import class_probabilities, image_tensor, read_pixels
from regard.tasks.shared.image_endpoint import ImageEndpoint
from regard.tasks.shared.image_maps import CELLS, spatial_maps

PICTURES = [packed(drawn(n), kind) for n, kind in enumerate(["PNG", "JPEG", "PNG", "JPEG", "PNG"])]


def probabilities(made: ImageEndpoint, data: bytes) -> dict[str, float]:
    """The probabilities of the classes of one image."""
    model, stats = made.predictor.model, made.predictor.stats
    (row,) = class_probabilities(model, model, read_pixels(data, stats)[None], stats)
    return dict(zip(stats.classes, row.tolist(), strict=True))


def test_many_at_once_have_each_their_own_answer() -> None:
    made = endpoint(batch=4)

    async def act(client: httpx.AsyncClient) -> list[httpx.Response]:
        bodies = [{"image": sent(data), "maps": n % 2 == 0} for n, data in enumerate(PICTURES * 3)]
        return await asyncio.gather(*[client.post("/v1/classify", json=body) for body in bodies])

    for n, (data, got) in enumerate(zip(PICTURES * 3, visit(made, act), strict=True)):
        assert got.status_code == 200
        (one,) = got.json()["answers"]
        wanted = probabilities(made, data)
        assert {row["name"]: row["probability"] for row in one["classes"]} == pytest.approx(wanted, abs=5.1e-4)
        assert [row["probability"] for row in one["classes"]] == sorted(
            (row["probability"] for row in one["classes"]), reverse=True
        )
        assert ("maps" in one) == (n % 2 == 0)


def test_maps_are_what_the_gates_weighed_by() -> None:
    made = endpoint()
    answers = post(made, {"images": [sent(PICTURES[0]), sent(PICTURES[2])], "maps": True, "top": 1}).json()["answers"]
    for data, one in zip((PICTURES[0], PICTURES[2]), answers, strict=True):
        assert len(one["classes"]) == 1
        with record(made.predictor.model) as recording:
            probabilities(made, data)
        assert (
            [look["name"] for look in one["maps"]] == [m.name for m in recording] == ["blocks.0.gate", "blocks.1.gate"]
        )
        for look, m in zip(one["maps"], recording, strict=True):
            wanted = m.weights.dense().mean((0, 1, 2)).reshape(1, *(m.grid or ()))
            torch.testing.assert_close(torch.tensor(look["weights"]), wanted, atol=1e-6, rtol=0)
            assert (look["kind"], look["verified"]) == ("gate", True)


@pytest.mark.parametrize("kind", ["cross", "alignment", "glimpse"])
def test_a_look_a_step_stays_a_look(kind: Any) -> None:
    torch.manual_seed(0)
    weights = torch.rand(2, 3, 5, 1 + 6).softmax(-1)  # a token before a grid of 2 × 3
    one = RecordedMap("a", kind, DenseMap(weights), certificate=0.0, grid=(2, 3))
    (look,) = spatial_maps(Recording((one,)), 1)
    torch.testing.assert_close(look.weights, weights[1].mean(0)[:, 1:].reshape(5, 2, 3))
    # a call a step: one below the other
    calls = tuple(RecordedMap("a", kind, DenseMap(weights[:, :, n : n + 1]), call=n, grid=(2, 3)) for n in range(5))
    (stepped,) = spatial_maps(Recording(calls), 1)
    torch.testing.assert_close(stepped.weights, look.weights)
    assert (look.verified, stepped.verified) == (True, False)


def test_a_module_that_looks_over_several_grids_has_a_map_of_each() -> None:
    """One that reads several scales of a picture, say."""
    torch.manual_seed(0)
    grids = [(2, 3), (5, 7), (2, 3)]
    calls = [
        RecordedMap("a", "gate", DenseMap(torch.rand(1, 1, 2, h * w)), call=n, grid=(h, w))
        for n, (h, w) in enumerate(grids)
    ]
    other = RecordedMap("b", "gate", DenseMap(torch.rand(1, 1, 2, 6)), grid=(2, 3))
    found = spatial_maps(Recording((*calls, other)), 0)
    assert [(one.name, one.weights.shape[1:]) for one in found] == [
        ("a, 2 × 3", (2, 3)), ("a, 5 × 7", (5, 7)), ("b", (2, 3))
    ]  # fmt: skip
    both = torch.stack([calls[n].weights.dense().mean((0, 1, 2)) for n in (0, 2)]).mean(0)
    torch.testing.assert_close(found[0].weights, both.reshape(1, 2, 3))
    torch.testing.assert_close(found[1].weights, calls[1].weights.dense().mean((0, 1, 2)).reshape(1, 5, 7))


def test_what_has_no_places_is_no_map_and_fine_ones_are_pooled() -> None:
    flat = RecordedMap("a", "gate", DenseMap(torch.rand(1, 1, 5, 1)))
    fine = RecordedMap("b", "gate", DenseMap(torch.rand(1, 1, 2, 130 * 70)), grid=(130, 70))
    (look,) = spatial_maps(Recording((flat, fine)), 0)
    assert look.weights.shape == (1, CELLS, CELLS)
    assert float(look.weights.mean()) == pytest.approx(float(fine.weights.dense().mean()), abs=5e-3)


def test_colour_reaches_a_model_of_colours() -> None:
    made = endpoint(channels=3)
    answers = post(made, {"images": [sent(packed(Image.new("RGB", (5, 5), c))) for c in ("red", "blue")]}).json()
    first, second = ([row["probability"] for row in one["classes"]] for one in answers["answers"])
    assert first != pytest.approx(second, abs=1e-6)


SMALL = sent(packed(drawn(0)))
BAD: dict[str, tuple[Any, int, str]] = {
    "too many": ({"images": [SMALL] * 4}, 422, "images must be 1 to 3, got 4; send several requests"),
    "top": ({"image": SMALL, "top": 0}, 422, "top must be a whole number from 1 to"),
    "maps of many": (
        {"images": [SMALL] * 3, "maps": True},
        422,
        "maps are given for at most 2 images per request, got",
    ),
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
def strict() -> ImageEndpoint:
    return endpoint(texts=3, pictures=2, pixels=2_000, body=50_000)


@for_each("name", BAD)
def test_what_is_no_picture_is_a_sentence(name: str, strict: ImageEndpoint) -> None:
    body, status, sentence = BAD[name]
    got = post(strict, body)
    assert got.status_code == status
    assert got.json()["error"].startswith(sentence)


def test_a_data_address_is_its_picture(strict: ImageEndpoint) -> None:
    plain, addressed = (post(strict, {"image": before + SMALL}).json() for before in ("", "data:image/png;base64,"))
    assert plain == addressed


def test_a_model_that_does_not_look_at_places() -> None:
    for gate in (None, "se"):
        made = endpoint(gate)
        assert not made.attends
        got = post(made, {"image": SMALL, "maps": True})
        assert got.status_code == 422
        assert got.json()["error"] == "maps need a model that attends to patches, and this one does not; leave maps out"
        assert len(post(made, {"image": SMALL}).json()["answers"][0]["classes"]) == 3


def test_images_are_recorded_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = endpoint()
    body = {"images": [sent(data) for data in PICTURES], "maps": True}
    whole = post(made, body).json()
    # SimAM keeps a weight per channel and patch: those of two images fit, not of five
    monkeypatch.setattr("regard.tasks.shared.image_endpoint._BUDGET", 2 * 4 * (4 * 77 + 8 * 24) + 1)
    assert post(made, body).json() == whole


def test_what_it_says_of_itself(strict: ImageEndpoint) -> None:
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


class Slow:
    """Unpacking that waits until it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.begun, self.count, self._read = threading.Event(), threading.Event(), 0, image_files.read
        monkeypatch.setattr("regard.tasks.shared.image_data.image_files.read", self.read)

    def read(self, *args: Any, **names: Any) -> Any:
        self.count += 1
        self.begun.set()
        assert self.open.wait(30)
        return self._read(*args, **names)


def test_reading_does_not_hold_up_who_asks_meanwhile(strict: ImageEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture that takes long to unpack is unpacked beside the others."""
    slow = Slow(monkeypatch)

    async def act(client: httpx.AsyncClient) -> tuple[int, int]:
        first = asyncio.create_task(client.post("/v1/classify", json={"image": SMALL}))
        await asyncio.to_thread(slow.begun.wait, 10)
        health = (await client.get("/health")).status_code
        slow.open.set()
        return health, (await first).status_code

    assert visit(strict, act, Limits()) == (200, 200)


def test_unpacking_has_the_time_of_an_answer(strict: ImageEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)

    async def act(client: httpx.AsyncClient) -> tuple[list[httpx.Response], list[httpx.Response], httpx.Response]:
        asking = [asyncio.create_task(client.post("/v1/classify", json={"images": [SMALL] * 2})) for _ in range(6)]
        while slow.count < 2 or "regard_waiting_pictures 12" not in (await client.get("/metrics")).text:
            await asyncio.sleep(0.01)
        advance(asyncio.get_running_loop(), 60)
        late = await asyncio.gather(*asking)
        other = [await client.get("/health"), await client.get("/metrics")]
        slow.open.set()
        return late, other, await client.post("/v1/classify", json={"image": SMALL}, timeout=30)

    late, (health, metrics), after = visit(strict, act, Limits(seconds=60))
    for got in late:
        assert got.status_code == 503
        assert got.json() == {"error": "no answer within 60 seconds; ask for less, or ask again later"}
    assert health.status_code == 200
    assert "regard_waiting_pictures 0" in metrics.text
    assert after.status_code == 200
    # two were begun and left after the picture they were at, four never begun
    assert slow.count == 3


def test_what_is_unpacked_waits_too(strict: ImageEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)

    async def act(client: httpx.AsyncClient) -> tuple[list[httpx.Response], str]:
        asking = [asyncio.create_task(client.post("/v1/classify", json={"image": SMALL})) for _ in range(7)]
        await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        metrics = (await client.get("/metrics")).text
        slow.open.set()
        return await asyncio.gather(*asking), metrics

    answers, metrics = visit(strict, act, Limits(waiting=3, texts=3))
    assert sorted(got.status_code for got in answers) == [200] * 3 + [429] * 4
    many = next(got for got in answers if got.status_code == 429)
    assert many.json() == {"error": "3 pictures wait already and 3 may; ask again in a moment"}
    assert "regard_waiting_pictures 3" in metrics


def test_nothing_is_unpacked_for_who_is_gone(strict: ImageEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch)

    async def act(client: httpx.AsyncClient) -> str:
        asking = [asyncio.create_task(client.post("/v1/classify", json={"images": [SMALL] * 3})) for _ in range(5)]
        await asyncio.to_thread(slow.begun.wait, 10)
        for one in asking:
            one.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        slow.open.set()
        await client.post("/v1/classify", json={"image": SMALL})
        return (await client.get("/metrics")).text

    assert 'regard_requests_total{path="/v1/classify",status="499"} 5' in visit(strict, act, Limits())
    assert slow.count <= 3


def test_unpacking_ends_when_it_is_over(strict: ImageEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = read(strict, {"images": [SMALL] * 3})
    assert [given.pixels.shape for given in strict.unpack(asked).inputs] == [(7, 11, 1)] * 3
    unpack, done = image_files.read, []
    monkeypatch.setattr(
        "regard.tasks.shared.image_data.image_files.read", lambda *a, **k: done.append(1) or unpack(*a, **k)
    )  # type: ignore[func-returns-value]
    with pytest.raises(Cancellation), cancelled_if(lambda: len(done) == 2):
        strict.unpack(asked)
    assert len(done) == 2


def test_pixels_are_counted_together(strict: ImageEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    fits = [sent(packed(drawn(n, 40, 25))) for n in range(3)]
    assert post(strict, {"images": fits[:2]}).status_code == 200
    monkeypatch.setattr("regard.tasks.shared.image_data.image_files.read", None)  # nothing is unpacked
    got = post(strict, {"images": fits})
    assert got.status_code == 422
    assert got.json() == {"error": "images must have at most 2,000 pixels together, got 3,000; send several requests"}


def test_a_jpeg_of_many_scans() -> None:
    held = io.BytesIO()
    drawn(0).save(held, "JPEG", progressive=True)
    data, made = held.getvalue(), endpoint()
    assert post(made, {"image": sent(data)}).status_code == 200
    last, end = data.rindex(b"\xff\xda"), data.rindex(b"\xff\xd9")
    bomb = data[:end] + data[last:end] * 1000 + data[end:]
    got = post(made, {"image": sent(bomb)})
    assert got.status_code == 422
    assert got.json()["error"].startswith("image must come in at most 100 scans, got 1,0")
    # a PNG has bytes like these by chance, and no scans
    assert post(made, {"image": sent(packed(drawn(0)) + b"\xff\xda" * 200)}).status_code == 200


def test_what_one_sees_through_is_white() -> None:
    made, ink = endpoint(), Image.fromarray(np.random.default_rng(0).integers(0, 2, (14, 22), np.uint8) * 255)
    through = Image.merge("LA", (Image.new("L", ink.size, 0), ink))
    white = Image.eval(ink, lambda value: 255 - value)
    first, second = post(made, {"images": [sent(packed(one)) for one in (through, white)]}).json()["answers"]
    assert first == second


def test_a_path_of_glimpses() -> None:
    made = ImageEndpoint(glimpse_classifier(), Limits(), run="tiny", step=4)
    got = post(made, {"images": [sent(data) for data in PICTURES], "maps": True}).json()["answers"]
    stats, model = made.predictor.stats, made.predictor.model
    pixels = np.stack([read_pixels(data, stats) for data in PICTURES])
    looked = model.look(image_tensor(pixels, stats))  # type: ignore[operator]
    for n, one in enumerate(got):
        assert [[2 * place["x"] - 1, 2 * place["y"] - 1] for place in one["path"]] == [
            pytest.approx(place, abs=1.1e-3) for place in looked.places[n].tolist()
        ]
        (look,) = one["maps"]
        assert (look["kind"], look["verified"]) == ("glimpse", True)
        assert np.array(look["weights"]).shape == (3, 7, 11)
        # the middle of what a glimpse sees is its place, where that lies inside
        best = model.retina.weights(looked.places[n], 7, 11)  # type: ignore[union-attr, operator]
        assert np.allclose(look["weights"], best, atol=1e-6)


def test_a_map_a_word() -> None:
    made = ImageEndpoint(captioner(), Limits(), run="tiny", step=4)
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
        assert alone["maps"] == one["maps"]
    refused = post(made, {"image": sent(PICTURES[0]), "top": 2})
    assert refused.status_code == 422
    assert refused.json()["error"] == "unknown field 'top'; known are: image, images, maps"


@pytest.mark.whole
def test_a_run_is_served(tmp_path: Path) -> None:
    tiny = "--data digits --gate simam --width 2 --depths 1 --batch 400 --steps 2 --validate-every 2"
    service = Service(trained(tmp_path / "run", "classify-image", tiny))
    try:
        with httpx.Client(base_url=service.address, timeout=60) as client:
            got = client.post("/v1/classify", json={"image": SMALL, "maps": True, "top": 10}).json()["answers"][0]
            assert sum(row["probability"] for row in got["classes"]) == pytest.approx(1, abs=5e-3)
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
