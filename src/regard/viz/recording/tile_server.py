"""A server that shows a recording on this machine: it computes tiles of a map on request, never the whole map.

The page is that of `regard.viz.recording.page.builder` with its header alone. It requests tiles of 256 by 256 cells:
single weights come from their rows, pooled levels from a pyramid that one pass over the rows builds in the background,
from the top down. Only the standard library is used; a request must name this machine, so that no other site reads it.
"""

import http.server
import itertools
import json
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.recording.recording import Recording
from regard.viz.html.security import SECURITY_HEADERS, names_this_machine
from regard.viz.recording.page import builder, packing
from regard.viz.recording.page.mask import mask_spans
from regard.viz.recording.page.packing import Head
from regard.viz.recording.page.pyramid import TILE, Bytes, MapPyramid, coarsest_level, halve, level_side, row_blocks
from regard.viz.recording.page.summaries import with_words

# bytes of cached blocks of rows, and of cached pyramids
_MAX_BLOCK_BYTES, _MAX_PYRAMID_BYTES = 104 << 20, 256 << 20
# cells of the finest level of a pyramid
_MAX_CELLS = 1 << 26
# up to this level, a tile whose rows have not been read yet is computed from them at once
_IMMEDIATE_LEVEL = 1


class TileSource:
    """The tiles, rows, masks and statistics of the heads of a recording, computed on request and cached."""

    def __init__(self, heads: list[Head]) -> None:
        self.heads = heads
        self._pyramids: OrderedDict[int, MapPyramid] = OrderedDict()
        self._blocks: OrderedDict[tuple[int, int], Tensor] = OrderedDict()
        self._masks: dict[int, Future[bytes]] = {}
        self._pyramid_lock = threading.Lock()
        self._waiting: set[int] = set()  # threads that wait for a tile
        self._is_closed = False
        # One thread computes requested tiles, one reads whole heads in the background, however many clients ask:
        # every thread that computes holds memory of its own.
        self._urgent, self._background = ThreadPoolExecutor(1), ThreadPoolExecutor(1)

    def close(self) -> None:
        """Cancels all computations."""
        self._is_closed = True
        for pool in (self._urgent, self._background):
            pool.shutdown(wait=False, cancel_futures=True)

    def _compute_first(self, compute: Callable[[], bytes]) -> bytes:
        """The result of a computation that background reading gives way to."""
        self._waiting.add(threading.get_ident())
        try:
            return self._urgent.submit(compute).result()
        finally:
            self._waiting.discard(threading.get_ident())

    def pyramid(self, n: int) -> MapPyramid:
        """The pyramid of a head, as far as it has been read."""
        with self._pyramid_lock:
            if n not in self._pyramids:
                head = self.heads[n]
                q, k = head.weights.shape
                sizes = ((level, level_side(q, level) * level_side(k, level)) for level in range(64))
                finest = min(next(level for level, cells in sizes if cells <= _MAX_CELLS), coarsest_level(q, k))
                pyramid = self._urgent.submit(MapPyramid, head.weights, head.kind, signed=head.signed, finest=finest)
                self._pyramids[n] = pyramid.result()
                while (
                    len(self._pyramids) > 1 and sum(map(_pyramid_bytes, self._pyramids.values())) > _MAX_PYRAMID_BYTES
                ):
                    self._pyramids.popitem(last=False)
            self._pyramids.move_to_end(n)
            return self._pyramids[n]

    def read(self, n: int) -> MapPyramid:
        """The pyramid of a head after all its rows have been read; requested tiles are computed first."""
        return self._background.submit(self._read, self.pyramid(n)).result()

    def _read(self, pyramid: MapPyramid) -> MapPyramid:
        if pyramid.rows_read == pyramid.q:
            return pyramid
        for _ in pyramid.read():
            deadline = time.monotonic() + 1.0
            while self._waiting and time.monotonic() < deadline:
                time.sleep(0.001)
            if self._is_closed:
                raise ConnectionAbortedError("the server stops")
        return pyramid

    def tile(self, n: int, level: int, y: int, x: int) -> tuple[bytes, bool]:
        """The bytes of a tile, and whether all its rows have been read."""
        pyramid = self.pyramid(n)
        last = min(pyramid.q, (y + 1) * TILE << level)
        if pyramid.rows_read >= last and level in pyramid.levels:
            return _tile_bytes(pyramid.levels[level], y, x), True
        if level <= _IMMEDIATE_LEVEL or level < pyramid.finest:
            return self._compute_first(lambda: self._tile_from_rows(pyramid, n, level, y, x)), True
        return _tile_bytes(pyramid.levels[level], y, x), False

    def row(self, n: int, i: int) -> bytes:
        """One exact row: float32, little-endian."""
        weights = self.heads[n].weights
        return self._compute_first(
            lambda: _finite_weights(weights.rows(slice(i, i + 1))).numpy().astype("<f4").tobytes()
        )

    def mask(self, n: int) -> bytes:
        """The mask of a head as JSON, computed once; in the background if it must be searched pair by pair."""
        if n not in self._masks:
            has_spans = self.heads[n].weights.spans() is not None
            self._masks[n] = (self._urgent if has_spans else self._background).submit(_mask_json, self.heads[n])
        return self._masks[n].result()

    def _tile_from_rows(self, pyramid: MapPyramid, n: int, level: int, y: int, x: int) -> bytes:
        span = 1 << level
        numbers = range(y * span, min((y + 1) * span, level_side(pyramid.q, 8)))
        columns = slice(x * TILE * span, (x + 1) * TILE * span)
        cells = np.concatenate([self._block_cells(pyramid, n, number, columns) for number in numbers])
        for _ in range(level):
            cells = halve(cells, pyramid.signed)
        return cells.tobytes()

    def _block_cells(self, pyramid: MapPyramid, n: int, number: int, columns: slice) -> Bytes:
        """Some columns of a block of 256 rows as bytes, without the sinks."""
        cells = pyramid.to_bytes(_finite_weights(self._block(pyramid, n, number)[:, columns]))
        for sink in pyramid.sinks:
            if columns.start <= sink < columns.stop:
                cells[:, sink - columns.start] = 0
        return cells

    def _block(self, pyramid: MapPyramid, n: int, number: int) -> Tensor:
        """A block of 256 whole rows, cached for the other tiles of these rows."""
        if (n, number) not in self._blocks:
            end = min((number + 1) * TILE, pyramid.q)
            parts = [rows for _, rows in row_blocks(pyramid.weights, number * TILE, end)]
            self._blocks[n, number] = torch.cat(parts) if len(parts) > 1 else parts[0]
            while len(self._blocks) > 2 and sum(block.nbytes for block in self._blocks.values()) > _MAX_BLOCK_BYTES:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end((n, number))
        return self._blocks[n, number]


def _finite_weights(weights: Tensor) -> Tensor:
    return torch.nan_to_num(weights.cpu().float(), posinf=0.0, neginf=0.0)


def _pyramid_bytes(pyramid: MapPyramid) -> int:
    levels = sum(cells.nbytes for cells in pyramid.levels.values())
    return levels + pyramid.top_weights.nbytes + pyramid.top_columns.nbytes


def _tile_bytes(cells: Bytes, y: int, x: int) -> bytes:
    return np.ascontiguousarray(cells[y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE]).tobytes()


# a body, its content type, and whether it is final
_Answer = tuple[bytes, str, bool]


class _TileRequestHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 60
    server: "Server"

    def do_GET(self) -> None:
        """The page, facts/N, thumb/N, mask/N, tile/N/LEVEL/Y/X or row/N/I."""
        if not names_this_machine(self.headers.get("Host", ""), self.server.host):
            message = f"this server is {self.server.address}; the request names another host\n"
            self._send_error(HTTPStatus.MISDIRECTED_REQUEST, message)
            return
        try:
            compute = self._route(self.path.partition("?")[0].strip("/"))
        except LookupError:
            self._send_error(HTTPStatus.NOT_FOUND, f"there is nothing at {self.path!r}; the page is at /\n")
            return
        try:
            answer = compute()
        except ConnectionError:
            raise
        except Exception as error:  # a map may raise anything: the client gets a sentence, and the server goes on
            message = (
                f"{self.path!r} could not be computed: {error!r}; leave that map out, recording['name'] picks some\n"
            )
            self._send_error(HTTPStatus.INTERNAL_SERVER_ERROR, message)
            return
        self._send(HTTPStatus.OK, *answer)

    do_HEAD = do_GET

    def _route(self, path: str) -> Callable[[], _Answer]:
        """A function that computes the answer to a path; raises LookupError for an unknown one."""
        if not path:
            return lambda: (self.server.page, "text/html; charset=utf-8", True)
        resource, *parts = path.split("/")
        if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
            raise LookupError
        numbers = [int(part) for part in parts]
        tiles = self.server.tiles
        if resource not in _ROUTES or len(numbers) != _ROUTES[resource] or numbers[0] >= len(tiles.heads):
            raise LookupError
        n = numbers[0]
        q, k = tiles.heads[n].weights.shape
        if resource == "tile":
            _, level, y, x = numbers
            is_outside = y * TILE >= level_side(q, level) or x * TILE >= level_side(k, level)
            if level > coarsest_level(q, k) or is_outside:
                raise LookupError
            return lambda: _binary(*tiles.tile(n, level, y, x))
        if resource == "row":
            if numbers[1] >= q:
                raise LookupError
            return lambda: _binary(tiles.row(n, numbers[1]), True)
        if resource == "mask":
            return lambda: (tiles.mask(n), "application/json", True)
        return lambda: _json(_head_facts(tiles.read(n)) if resource == "facts" else _thumbnails(tiles.read(n)))

    def _send_error(self, status: HTTPStatus, message: str) -> None:
        self._send(status, message.encode("utf-8", "replace"), "text/plain; charset=utf-8")

    def _send(self, status: HTTPStatus, body: bytes, content_type: str, is_final: bool = True) -> None:
        self.send_response(status)
        headers = {"Content-Type": content_type, "Content-Length": str(len(body)), "X-Done": str(int(is_final))}
        for name, value in (headers | SECURITY_HEADERS | {"X-Frame-Options": "DENY"}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: one view of a map is many requests."""


def _head_facts(pyramid: MapPyramid) -> dict[str, object]:
    facts = packing.head_facts(pyramid, pyramid.top, [])
    return {"facts": facts, "chunk": packing.row_chunk(pyramid, pyramid.top)}


def _thumbnails(pyramid: MapPyramid) -> dict[str, object]:
    thumbnails = zip(("thumb", "bare"), pyramid.thumbnails(), strict=True)
    return {name: packing.chunk(cells.tobytes()) for name, cells in thumbnails}


def _mask_json(head: Head) -> bytes:
    mask = mask_spans(head.weights)
    return json.dumps(None if mask is None else mask.to_json()).encode()


def _json(value: object) -> _Answer:
    return json.dumps(value).encode(), "application/json", True


def _binary(data: bytes, is_final: bool) -> _Answer:
    return data, "application/octet-stream", is_final


# the count of numbers behind the first word of a path
_ROUTES = {"facts": 1, "thumb": 1, "mask": 1, "tile": 4, "row": 2}


class Server(http.server.ThreadingHTTPServer):
    """The page and its tiles at `address`; `serve_forever()` answers requests."""

    daemon_threads = True

    def __init__(self, recording: Recording, host: str, port: int, *, sample: int, image: Tensor | None) -> None:
        recording, words = with_words(recording)
        layers = builder.page_layers(recording, None, sample, words)
        heads = [layer.heads(sample) for layer in layers]
        header = builder.page_header(recording, layers, list(map(len, heads)), image)
        header["remote"] = True
        self.page = builder.page_document(header, {}, [], f"<p>{builder.CAUTION}</p>").encode()
        self.tiles = TileSource(list(itertools.chain.from_iterable(heads)))
        self.host = host
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _TileRequestHandler)
        except OSError as error:
            raise OSError(f"cannot listen on {host} port {port}: {error.strerror}; try port=0, any free one") from error

    @property
    def address(self) -> str:
        host, port = self.server_address[:2]
        host = host.decode() if isinstance(host, bytes) else str(host)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def server_close(self) -> None:
        super().server_close()
        self.tiles.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Reports an error of a request, unless the client merely disconnected."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def serve(
    recording: Recording,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    sample: int = 0,
    image: Tensor | None = None,  # "c h w" or "h w", from 0 to 1
) -> None:
    """Serves the recording at the address that it prints, until it is interrupted.

    Only this machine can reach 127.0.0.1; with another host, everyone who can reach that host can see the recording.
    """
    if not 0 <= port < 1 << 16:
        raise ValueError(f"port must be between 0 and 65535, got {port}; 0 is any free one")
    with Server(recording, host, port, sample=sample, image=image) as server:
        print(f"{server.address}  (Ctrl+C stops)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped")
