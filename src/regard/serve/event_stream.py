"""Answers as they are computed: server-sent events, one JSON object each."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.responses import StreamingResponse

from regard.serve.batcher import Batcher
from regard.serve.errors import RequestError


def event_stream(
    batcher: Batcher,
    request: Any,
    client: str,
    seconds: float,
    headers: Mapping[str, str],
    reject: Callable[[RequestError], object],
) -> StreamingResponse:
    """Each piece of the answer as an event, "data: JSON" and an empty line; RequestError if too many requests wait.

    The status is sent before the first piece, so a later failure is an event {"error": sentence}, which `reject`
    counts. A client that leaves
    ends the computation.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
    job = batcher.submit(request, lambda piece: loop.call_soon_threadsafe(pieces.put_nowait, piece), client)
    answer = asyncio.wrap_future(job.answer)
    answer.add_done_callback(lambda _: pieces.put_nowait(None))
    deadline = time.perf_counter() + seconds

    async def events() -> AsyncIterator[bytes]:
        try:
            while (piece := await asyncio.wait_for(pieces.get(), max(deadline - time.perf_counter(), 0))) is not None:
                yield b"data: " + piece + b"\n\n"
            await answer
        except TimeoutError:
            sentence = f"no end of the answer within {seconds:g} seconds; ask for less, or ask again later"
            reject(late := RequestError(503, sentence))
            yield b"data: " + late.body() + b"\n\n"
        except RequestError as error:
            reject(error)
            yield b"data: " + error.body() + b"\n\n"
        finally:
            batcher.cancel(job)

    return StreamingResponse(events(), media_type="text/event-stream", headers={"cache-control": "no-store", **headers})
