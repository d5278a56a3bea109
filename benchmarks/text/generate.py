"""Requests of a served language model in one batch: `python -m benchmarks.text.generate RUN [--requests 8]`.

RUN is a run of language-model, or a released decoder. Requests have prompts of different lengths and their own seeds.
Measured is the CPU time of the endpoint on one thread, in this process: all requests in one batch against the same one
by one, in turn. Answers must be equal, in every digit.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.measured import About
from benchmarks.table import Bound
from benchmarks.timing import spread
from benchmarks.vision.result import ROOT, Result, Row
from regard.data.embedded.manual import documents
from regard.decoding.margins import NOISE
from regard.inference.limits import Limits
from regard.serve.http.body_models import validate
from regard.tasks.loading import load_run

RESULTS = ROOT / "benchmarks" / "results" / "text"
SAID = """\
Texts of the Python manual, cut to different lengths, are continued by sampling. One by one and in one batch take turns;
the ratio is that of a round. A text that noise of the batch might change is generated again alone, which is included.
Where a text grows past the context, the state of the whole batch is made anew.
"""


def bodies_of(requests: int, tokens: int) -> list[dict[str, Any]]:
    """Requests with prompts of 12 characters and more."""
    text = "".join(documents())
    return [{"text": text[600 * n : 600 * n + 12 + 9 * n], "tokens": tokens, "seed": n} for n in range(requests)]


def cpu_seconds(endpoint: Any, requests: Sequence[Any], rounds: int) -> list[tuple[float, float]]:
    """Those of the requests one by one, and in one batch, per round; RuntimeError if answers differ."""
    endpoint.answer(requests[:2])
    found = []
    for _ in range(rounds):
        start = time.process_time()
        alone = [endpoint.answer([request])[0] for request in requests]
        between = time.process_time()
        together = endpoint.answer(requests)
        found.append((between - start, time.process_time() - between))
        if json.dumps(alone) != json.dumps(together):
            raise RuntimeError("an answer depends on its batch")
    return found


def main(arguments: Sequence[str] | None = None, results: Path = RESULTS) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.text.generate", description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run of language-model, or a folder with a decoder")
    parser.add_argument("--requests", type=int, default=8, help="requests per batch (%(default)s)")
    parser.add_argument("--tokens", type=int, nargs="+", default=[40, 100], help="tokens per text (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="repetitions (%(default)s)")
    given = parser.parse_args(arguments)
    predictor: Any = load_run(given.run, device="cpu").predictor
    torch.set_num_threads(1)
    endpoint = predictor.endpoint(Limits(), run=given.run.name, step=0)
    size = sum(parameter.numel() for parameter in predictor.model.parameters())
    rows, seconds = [], {}
    for tokens in given.tokens:
        bodies = bodies_of(given.requests, tokens)
        requests = [endpoint.read(validate(endpoint.schema.request, body)) for body in bodies]
        times = seconds[tokens] = cpu_seconds(endpoint, requests, given.rounds)
        texts = [row for request in requests for row in predictor.rows(*request.texts, 0, request.options)]
        again = sum(each.margin <= NOISE for each in predictor.continuations(texts))
        ratio = spread([one / batch for one, batch in times])
        what = f"{given.requests} requests of {tokens} tokens in one batch, speed against one by one"
        model = f"{size:,} parameters, context {predictor.longest}"
        how = f"{model}, 1 thread, {given.rounds} rounds, {again} generated again"
        row = Row(what, ratio.median, "times", Bound("least", 1.0), how, beside=f"{ratio.low:.2f} to {ratio.high:.2f}")
        print(" | ".join(row.cells()))
        rows.append(row)
    words = " ".join(map(str, given.tokens))
    command = f"python -m benchmarks.text.generate RUN --requests {given.requests} --tokens {words}"
    settings = {"seconds": seconds, "parameters": size}
    result = Result("generate", "Generation in batches", SAID, rows, (), (), [command], settings, About.now())
    print("written:", result.write(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
