"""Tiles on demand: what is served is what was recorded, only to this machine, and never the whole matrix."""

import base64
import http.client
import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from tests.viz.looking import Seen, launched, needed

import regard
from regard.attn.maps.attention_map import AttentionMap, DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording import tile_server
from regard.viz.recording.page.packing import Head
from regard.viz.recording.page.pyramid import MapPyramid, coarsest_level, halve
from regard.viz.recording.tile_server import Server, TileSource


class Counted(AttentionMap):
    """A map that tells how many rows were asked for at once."""

    def __init__(self, of: AttentionMap) -> None:
        self.of, self.most = of, 0

    @property
    def shape(self) -> tuple[int, ...]:
        return self.of.shape

    @property
    def device(self) -> torch.device:
        return self.of.device

    def rows(self, rows: torch.Tensor | slice) -> torch.Tensor:
        found = self.of.rows(rows)
        self.most = max(self.most, found.shape[-2])
        return found

    def _select(self, index: tuple[int | slice, ...]) -> AttentionMap:
        return self


def computed(n: int, heads: int = 1) -> AttentionMap:
    q, k = torch.randn(1, heads, n, 8), torch.randn(1, heads, n, 8)
    found = regard.attend(q, k, k, mask=regard.Causal(), need=regard.Need(map=True)).map
    assert found is not None
    return found


@contextmanager
def serving(recording: Recording, **wanted: Any) -> Iterator[Server]:
    with Server(recording, "127.0.0.1", 0, **{"sample": 0, "image": None, **wanted}) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def ask(server: Server, path: str, host: str | None = None, method: str = "GET") -> tuple[int, bytes, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    connection.request(method, path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, answer.headers


def recorded(n: int = 700, heads: int = 2) -> Recording:
    return Recording((RecordedMap("layers.0", "self", computed(n, heads), certificate=0.0),))


def test_tiles_before_and_after_reading_are_the_map() -> None:
    weights = computed(700).pick(0, 0)
    cells = MapPyramid(weights).to_bytes(weights.dense())
    served = TileSource([Head(weights, "gate")])
    for level in (0, 1):
        for y in range(-(-700 >> level) // -256):
            for x in range(-(-700 >> level) // -256):
                data, done = served.tile(0, level, y, x)
                part = cells[y * 256 : (y + 1) * 256, x * 256 : (x + 1) * 256]
                assert done
                assert data == np.ascontiguousarray(part).tobytes()
        cells = halve(cells)
    data, done = served.tile(0, 2, 0, 0)
    assert not done
    assert not any(data)
    served.read(0)
    data, done = served.tile(0, 2, 0, 0)
    assert done
    assert data == cells.tobytes()


def test_levels_that_no_pyramid_holds_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = computed(1100).pick(0, 0)
    pyramid = MapPyramid(weights, "gate")
    for _ in pyramid.read():
        pass
    monkeypatch.setattr(tile_server, "_MAX_CELLS", 1 << 16)
    monkeypatch.setattr(tile_server, "_IMMEDIATE_LEVEL", 0)
    served = TileSource([Head(weights, "gate")])
    served.read(0)
    assert served.pyramid(0).finest == coarsest_level(1100, 1100) == 3
    for level in range(4):
        data, done = served.tile(0, level, 0, 0)
        assert done
        assert data == np.ascontiguousarray(pyramid.levels[level][:256, :256]).tobytes()


def test_the_matrix_is_never_formed() -> None:
    counted = Counted(computed(2048).pick(0, 0))
    served = TileSource([Head(counted, "self")])
    served.tile(0, 0, 3, 3)
    served.tile(0, 1, 1, 1)
    served.read(0)
    served.row(0, 77)
    assert counted.most <= 1024  # the sample that finds the sinks
    counted.most = 0
    served.tile(0, 0, 5, 5)
    assert counted.most <= 256


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_server, "_MAX_PYRAMID_BYTES", 200_000)
    monkeypatch.setattr(tile_server, "_MAX_BLOCK_BYTES", 3 * 256 * 300 * 4)
    weights = computed(300, 4)
    served = TileSource([Head(weights.pick(0, h), "self") for h in range(4)])
    for h in range(4):
        for y in (0, 1):
            served.tile(h, 0, y, 0)
        served.read(h)
    assert len(served._pyramids) == 1
    assert sum(block.nbytes for block in served._blocks.values()) <= tile_server._MAX_BLOCK_BYTES


def test_what_is_asked_is_answered() -> None:
    recording = recorded()
    weights = recording[0].weights.pick(0, 1)
    with serving(recording) as server:
        status, page, headers = ask(server, "/")
        assert status == 200
        assert headers["Content-Type"] == "text/html; charset=utf-8"
        assert b'"remote":true' in page
        assert b"connect-src 'self'" in page
        _, row, _ = ask(server, "/row/1/699")
        assert torch.equal(torch.frombuffer(bytearray(row), dtype=torch.float32), weights[699])
        status, tile, headers = ask(server, "/tile/1/0/2/2")
        assert (status, len(tile), headers["X-Done"]) == (200, 188 * 188, "1")
        told = json.loads(ask(server, "/facts/1")[1])
        assert told["facts"]["top"] == 8
        assert told["facts"]["sums"] == [1.0, 1.0]
        exact = zlib.decompress(base64.b64decode(told["chunk"]))[: 700 * 8 * 4]
        values = np.frombuffer(exact, np.uint8).reshape(4, -1).T
        best = np.frombuffer(values.tobytes(), "<f4").reshape(700, 8)
        assert torch.equal(torch.from_numpy(best.copy()), weights.topk(8).weights)
        thumb = json.loads(ask(server, "/thumb/1")[1])["thumb"]
        assert len(zlib.decompress(base64.b64decode(thumb))) == 48 * 48
        status, body, headers = ask(server, "/", method="HEAD")
        assert (status, body) == (200, b"")
        assert int(headers["Content-Length"]) == len(page)


def test_what_is_not_there_is_not_found() -> None:
    paths = ["/x", "/row/0", "/row/0/700", "/row/2/0", "/row/0/-1", "/row/0/%D9%A3", "/tile/0/3/0/0", "/tile/0/0/3/0"]
    paths += ["/tile/0/0/0/9", "/facts/9999999999999", "/../etc/passwd", "/facts/0/0", "/%00"]
    with serving(recorded(700, 1)) as server:
        for path in paths:
            connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
            connection.putrequest("GET", path)
            connection.endheaders()
            answer = connection.getresponse()
            assert answer.status == 404, path
            assert answer.read().decode().endswith("; the page is at /\n")
            connection.close()


def test_only_who_names_this_machine_is_answered() -> None:
    with serving(recorded(5, 1)) as server:
        port = server.server_address[1]
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", "LOCALHOST", "[::1]:80"):
            assert ask(server, "/row/0/0", host)[0] == 200, host
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "[evil]"):
            status, body, _ = ask(server, "/row/0/0", host)
            assert status == 421, host
            assert body.decode() == f"this server is {server.address}; the request names another host\n"


def test_bad_addresses_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    recording = recorded(5, 1)
    with pytest.raises(ValueError, match="port must be between 0 and 65535, got 70000; 0 is any free one"):
        tile_server.serve(recording, port=70000)
    with (
        serving(recording) as server,
        pytest.raises(OSError, match=r"cannot listen on 127.0.0.1 port \d+: .*; try port=0, any free one"),
    ):
        tile_server.serve(recording, port=server.server_address[1])


def test_it_says_where_and_stops_when_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: Server, poll_interval: float = 0.5) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "serve_forever", interrupted)
    tile_server.serve(recorded(5, 1))
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("http://127.0.0.1:")
    assert said[1] == "stopped"


@needed
def test_the_page_in_a_browser() -> None:
    """Thumbnails come, a cell says its exact weight, zooming in reaches single weights, nothing is asked elsewhere."""
    weights = torch.softmax(torch.randn(1, 2, 900, 900), -1)
    recording = Recording((RecordedMap("layers.0", "self", DenseMap(weights), certificate=0.0),))
    with serving(recording) as server, launched() as chromium:
        seen = Seen(chromium, server.address + "#head=1&q=500&k=300")
        w = float(weights[0, 1, 500, 300])
        rank = 1 + int((weights[0, 1, 500] > w).sum())
        assert seen.at == f"query 500 → key 300 {w:.4f}, rank {rank}"
        seen.page.wait_for_function("document.querySelector('.facts').innerText.includes('mean entropy')")
        seen.press(*["+"] * 8)
        assert seen.page.get_attribute("#panel-heat .figure", "data-level") == "0"
        for tab in ("lines", "text", "steps", "difference", "table"):
            seen.tab(tab)
        assert all(url.startswith((server.address, "data:", "blob:")) for url in seen.requests)
        assert seen.complaints == []
        seen.close()


def test_what_cannot_be_computed_is_no_missing_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> bytes:
        raise IndexError("index 9 is out of bounds")

    with serving(recorded(7, 1)) as server:
        monkeypatch.setattr(server.tiles, "row", broken)
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
        connection.request("GET", "/row/0/3")
        answer = connection.getresponse()
        assert answer.status == 500
        assert b"'/row/0/3' could not be computed: IndexError('index 9 is out of bounds'); leave" in answer.read()
        connection.close()
