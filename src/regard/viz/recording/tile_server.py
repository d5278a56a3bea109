"""A recording on a page of this machine: tiles of a map are computed when they come into sight, the matrix never is.

The page is that of `regard.viz.recording.page.builder`, with nothing in it but names. It asks for tiles of 256 by 256 cells:
single weights come from the rows they stand in; far-off views from a pyramid that one pass over the rows builds while
one looks, from the top down. Standard library only; whoever asks must name this machine, so that no other page can.
"""

import http.server
import ipaddress
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
from regard.viz.html.security import SECURITY_HEADERS, host_name
from regard.viz.recording.page import builder, packing
from regard.viz.recording.page.mask import veil
from regard.viz.recording.page.packing import Head
from regard.viz.recording.page.pyramid import TILE, Bytes, MapPyramid, blocks, coarsest, halved, side

# bytes of blocks of rows, and of pyramids, that are kept
_BLOCKS, _PYRAMIDS = 104 << 20, 256 << 20
# the finest level of a pyramid has at most so many cells
_CELLS = 1 << 26
# up to this level a tile is computed from its rows when they have not been read yet
_AT_ONCE = 1


class TileSource:
    """The heads of a recording, and what of them has been asked for."""

    def __init__(self, heads: list[Head]) -> None:
        self.heads = heads
        self._scans: OrderedDict[int, MapPyramid] = OrderedDict()
        self._blocks: OrderedDict[tuple[int, int], Tensor] = OrderedDict()
        self._veils: dict[int, Future[bytes]] = {}
        self._making = threading.Lock()
        self._waiting: set[int] = set()  # threads that wait for a tile
        self._closed = False
        # Two threads compute, one what is waited for, one what is read beside, whoever asks: every thread that computes
        # keeps memory of its own.
        self._first, self._beside = ThreadPoolExecutor(1), ThreadPoolExecutor(1)

    def close(self) -> None:
        """Lets go of what is still being read."""
        self._closed = True
        for pool in (self._first, self._beside):
            pool.shutdown(wait=False, cancel_futures=True)

    def _soon(self, compute: Callable[[], bytes]) -> bytes:
        """What is computed before anything else."""
        self._waiting.add(threading.get_ident())
        try:
            return self._first.submit(compute).result()
        finally:
            self._waiting.discard(threading.get_ident())

    def scan(self, n: int) -> MapPyramid:
        """What is known of a head so far."""
        with self._making:
            if n not in self._scans:
                head = self.heads[n]
                q, k = head.weights.shape
                finest = next(level for level in range(64) if side(q, level) * side(k, level) <= _CELLS)
                finest = min(finest, coarsest(q, k))
                made = self._first.submit(MapPyramid, head.weights, head.kind, signed=head.signed, finest=finest)
                self._scans[n] = made.result()
                while len(self._scans) > 1 and sum(_size(scan) for scan in self._scans.values()) > _PYRAMIDS:
                    self._scans.popitem(last=False)
            self._scans.move_to_end(n)
            return self._scans[n]

    def read(self, n: int) -> MapPyramid:
        """The same once the head has been read whole; tiles that are waited for go first."""
        return self._beside.submit(self._read, self.scan(n)).result()

    def _read(self, scan: MapPyramid) -> MapPyramid:
        if scan.done == scan.q:
            return scan
        for _ in scan.read():
            until = time.monotonic() + 1.0
            while self._waiting and time.monotonic() < until:
                time.sleep(0.001)
            if self._closed:
                raise ConnectionAbortedError("the server stops")
        return scan

    def tile(self, n: int, level: int, y: int, x: int) -> tuple[bytes, bool]:
        """The bytes of a tile, and whether all its rows have been read."""
        scan = self.scan(n)
        last = min(scan.q, (y + 1) * TILE << level)
        if scan.done >= last and level in scan.levels:
            return _cut(scan.levels[level], y, x), True
        if level <= _AT_ONCE or level < scan.finest:
            return self._soon(lambda: self._computed(scan, n, level, y, x)), True
        return _cut(scan.levels[level], y, x), False

    def row(self, n: int, i: int) -> bytes:
        """One row, exact: float32, little-endian."""
        return self._soon(lambda: _finite(self.heads[n].weights.rows(slice(i, i + 1))).numpy().astype("<f4").tobytes())

    def veil(self, n: int) -> bytes:
        """What is masked in a head, as JSON; looked at once; where all pairs are, behind the tiles."""
        if n not in self._veils:
            ruled = self.heads[n].weights.spans() is not None
            self._veils[n] = (self._first if ruled else self._beside).submit(_veiled, self.heads[n])
        return self._veils[n].result()

    def _computed(self, scan: MapPyramid, n: int, level: int, y: int, x: int) -> bytes:
        span = 1 << level
        rows = range(y * span, min((y + 1) * span, side(scan.q, 8)))
        columns = slice(x * TILE * span, (x + 1) * TILE * span)
        cells = np.concatenate([self._cells(scan, n, b, columns) for b in rows])
        for _ in range(level):
            cells = halved(cells, scan.signed)
        return cells.tobytes()

    def _cells(self, scan: MapPyramid, n: int, b: int, columns: slice) -> Bytes:
        """Some columns of the b-th 256 rows as bytes, the sinks taken out."""
        cells = scan.bytes(_finite(self._block(scan, n, b)[:, columns]))
        for sink in scan.sinks:
            if columns.start <= sink < columns.stop:
                cells[:, sink - columns.start] = 0
        return cells

    def _block(self, scan: MapPyramid, n: int, b: int) -> Tensor:
        """256 rows; the weights of a row come all at once, so its other tiles are there when they are asked for."""
        if (n, b) not in self._blocks:
            parts = [w for _, w in blocks(scan.weights, b * TILE, min((b + 1) * TILE, scan.q))]
            self._blocks[n, b] = torch.cat(parts) if len(parts) > 1 else parts[0]
            while len(self._blocks) > 2 and sum(block.nbytes for block in self._blocks.values()) > _BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end((n, b))
        return self._blocks[n, b]


def _finite(w: Tensor) -> Tensor:
    return torch.nan_to_num(w.cpu().float(), posinf=0.0, neginf=0.0)


def _size(scan: MapPyramid) -> int:
    return sum(cells.nbytes for cells in scan.levels.values()) + scan.values.nbytes + scan.columns.nbytes


def _cut(cells: Bytes, y: int, x: int) -> bytes:
    return np.ascontiguousarray(cells[y * TILE : (y + 1) * TILE, x * TILE : (x + 1) * TILE]).tobytes()


class _Asked(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 60
    server: "Server"

    def do_GET(self) -> None:
        """One of: the page; facts/N; thumb/N; mask/N; tile/N/LEVEL/Y/X; row/N/I."""
        if not self.server.knows(self.headers.get("Host", "")):
            said = f"this server is {self.server.address}; the request names another host\n"
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, said.encode(), "text/plain; charset=utf-8")
            return
        try:
            compute = self._asked(self.path.partition("?")[0].strip("/"))
        except LookupError:
            said = f"there is nothing at {self.path!r}; the page is at /\n"
            self._answer(HTTPStatus.NOT_FOUND, said.encode("utf-8", "replace"), "text/plain; charset=utf-8")
            return
        try:
            found = compute()
        except ConnectionError:
            raise
        except Exception as error:  # whatever a map may raise: the reader gets a sentence, and the server goes on
            said = f"{self.path!r} could not be computed: {error!r}; leave that map out, recording['name'] picks some\n"
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, said.encode("utf-8", "replace"), "text/plain; charset=utf-8")
            return
        self._answer(HTTPStatus.OK, *found)

    do_HEAD = do_GET

    def _asked(self, path: str) -> Callable[[], tuple[bytes, str, bool]]:
        """How to compute what stands there; LookupError if nothing does."""
        if not path:
            return lambda: (self.server.page, "text/html; charset=utf-8", True)
        what, *rest = path.split("/")
        if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in rest):
            raise LookupError
        numbers = [int(part) for part in rest]
        tiles = self.server.tiles
        if what not in _ROUTES or len(numbers) != _ROUTES[what] or numbers[0] >= len(tiles.heads):
            raise LookupError
        n = numbers[0]
        q, k = tiles.heads[n].weights.shape
        if what == "tile":
            _, level, y, x = numbers
            if level > coarsest(q, k) or y * TILE >= side(q, level) or x * TILE >= side(k, level):
                raise LookupError
            return lambda: _binary(*tiles.tile(n, level, y, x))
        if what == "row":
            if numbers[1] >= q:
                raise LookupError
            return lambda: _binary(tiles.row(n, numbers[1]), True)
        if what == "mask":
            return lambda: (tiles.veil(n), "application/json", True)
        return lambda: self._told(what, n)

    def _told(self, what: str, n: int) -> tuple[bytes, str, bool]:
        """What is known of a head that was read whole."""
        scan = self.server.tiles.read(n)
        if what == "facts":
            told: dict[str, Any] = {
                "facts": packing.facts(scan, scan.top, []),
                "chunk": packing.known(scan, scan.top),
            }
        else:
            pictures = zip(("thumb", "bare"), scan.thumbs(), strict=True)
            told = {name: packing.chunk(cells.tobytes()) for name, cells in pictures}
        return json.dumps(told).encode(), "application/json", True

    def _answer(self, status: HTTPStatus, body: bytes, kind: str, done: bool = True) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), "X-Done": str(int(done))}
        for name, value in (headers | SECURITY_HEADERS | {"X-Frame-Options": "DENY"}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a map in sight is many requests."""


def _veiled(head: Head) -> bytes:
    found = veil(head.weights)
    return json.dumps(None if found is None else found.told()).encode()


def _binary(data: bytes, done: bool) -> tuple[bytes, str, bool]:
    return data, "application/octet-stream", done


# how many numbers follow each word
_ROUTES = {"facts": 1, "thumb": 1, "mask": 1, "tile": 4, "row": 2}


class Server(http.server.ThreadingHTTPServer):
    """The page and its tiles; `serve_forever()` answers, `address` says where."""

    daemon_threads = True

    def __init__(self, recording: Recording, host: str, port: int, *, sample: int, image: Tensor | None) -> None:
        layers = builder.laid(recording, None, sample)
        heads = [layer.heads(sample) for layer in layers]
        header = builder.described(recording, layers, [len(some) for some in heads], image)
        header["remote"] = True
        self.page = builder.document(header, {}, [], f"<p>{builder.CAUTION}</p>").encode()
        self.tiles = TileSource([head for some in heads for head in some])
        self.named = host.lower()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Asked)
        except OSError as error:
            raise OSError(f"cannot listen on {host} port {port}: {error.strerror}; try port=0, any free one") from error

    @property
    def address(self) -> str:
        host, port = self.server_address[:2]
        host = host.decode() if isinstance(host, bytes) else str(host)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/"

    def knows(self, host: str) -> bool:
        """Whether a request names this machine: by an address, as localhost, or as it was told to serve.

        A page of elsewhere whose name is made to lead here (DNS rebinding) names itself, and is refused.
        """
        name = host_name(host)
        if name in ("localhost", self.named):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def server_close(self) -> None:
        super().server_close()
        self.tiles.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that goes away is nothing to tell; anything else is."""
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
    """Shows the recording at the address it prints, until it is interrupted.

    Only this machine can reach 127.0.0.1; with another host, whoever reaches that one can look.
    """
    if not 0 <= port < 1 << 16:
        raise ValueError(f"port must be between 0 and 65535, got {port}; 0 is any free one")
    with Server(recording, host, port, sample=sample, image=image) as server:
        print(f"{server.address}  (Ctrl+C stops)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped")
