"""Batches against one input at a time: translations of a run, and requests of a served language model.

`python -m benchmarks batches --run RUN` takes a run of translate, `requests` one of language-model or a released
decoder. Outputs must agree: equal translations, or equally probable ones; equal answers in every digit.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import regard
from benchmarks.table import Case, Row, gain
from benchmarks.timing import Effort, compare
from regard.data.embedded.manual import documents
from regard.decoding.margins import NOISE
from regard.decoding.search import Beam
from regard.inference.limits import Limits
from regard.serve.http.body_models import validate
from regard.tasks.registry import read_config
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.task import read

BATCH, SIZE, LINES = 64, 5, 1000
REQUESTS, TOKENS = 8, (40, 100)
TOGETHER, ALONE = "in batches", "one by one"


def translations(run: Path, effort: Effort, lines: int = LINES) -> Iterator[Row]:
    """the test sentences of a run of translate with beam 5, in batches of 64 against one by one"""
    translator, config = regard.load(run, device="cpu"), read_config(run)
    if not isinstance(translator, Translator):
        raise ValueError(f"{run} is a run of {config.name}, which does not translate; name another")
    source = list(read(config).test.source[:lines])  # type: ignore[arg-type]
    ways = {
        name: Translator(
            translator.model,
            translator.vocabularies,
            batch=batch,
            stretch=translator.stretch,
            longest=translator.longest,
        )
        for name, batch in ((TOGETHER, BATCH), (ALONE, 1))
    }
    texts = {name: [best[0] for best in way.translate(source, Beam(SIZE))] for name, way in ways.items()}
    unlike = [(a, b) for a, b in zip(texts[TOGETHER], texts[ALONE], strict=True) if a.text != b.text]
    tied = sum(abs(a.score - b.score) < 1e-5 * max(1.0, abs(a.score)) for a, b in unlike)
    if tied < len(unlike):
        raise ValueError(f"{len(unlike) - tied} of {len(source)} translations depend on their batch")
    calls: dict[str, Callable[[], object]] = {
        name: lambda way=way: way.translate(source, Beam(SIZE))  # type: ignore[misc]
        for name, way in ways.items()
    }
    timed = compare(calls, effort, threads=1)
    note = "the same translations" if not unlike else f"{len(unlike)} differ, with equal scores"
    rates = [f"{len(source) / timed.of(name).median:.1f}" for name in (TOGETHER, ALONE)]
    case = f"{run.name}, {len(source):,} sentences, beam {SIZE}, batches of {BATCH}"
    yield gain(case, timed, TOGETHER, ALONE, 6, f"{' to '.join(rates)} sentences per CPU second; {note}")


def bodies(count: int, tokens: int) -> list[dict[str, Any]]:
    """Requests with prompts of 12 characters and more of the Python manual, and their own seeds."""
    text = "".join(documents())
    return [{"text": text[600 * n : 600 * n + 12 + 9 * n], "tokens": tokens, "seed": n} for n in range(count)]


def requests(run: Path, effort: Effort, lengths: Sequence[int] = TOKENS) -> Iterator[Row]:
    """requests of a served language model, sampled, in one batch against one by one"""
    predictor: Any = regard.load(run, device="cpu")
    endpoint = predictor.endpoint(Limits(), run=run.name, step=0)
    size = sum(parameter.numel() for parameter in predictor.model.parameters())
    for tokens in lengths:
        some = [endpoint.read(validate(endpoint.schema.request, body)) for body in bodies(REQUESTS, tokens)]
        calls: dict[str, Callable[[], list[Any]]] = {
            TOGETHER: lambda some=some: endpoint.answer(some),  # type: ignore[misc]
            ALONE: lambda some=some: [endpoint.answer([request])[0] for request in some],  # type: ignore[misc]
        }
        if json.dumps(calls[TOGETHER]()) != json.dumps(calls[ALONE]()):
            raise ValueError("an answer depends on its batch")
        texts = [row for request in some for row in predictor.rows(*request.texts, 0, request.options)]
        again = sum(each.margin <= NOISE for each in predictor.continuations(texts))
        note = f"{size:,} parameters, context {predictor.longest}; {again} generated again"
        timed = compare(calls, effort, threads=1)
        yield gain(f"{REQUESTS} requests of {tokens} tokens in one batch", timed, TOGETHER, ALONE, 1.0, note)


def cases(run: Path | None) -> dict[str, dict[str, Case]]:
    """The cases of each table; none without a run."""
    if run is None:
        return {"batches": {}, "requests": {}}
    return {"batches": {"beam": _of(translations, run)}, "requests": {"sampled": _of(requests, run)}}


def _of(measure: Callable[[Path, Effort], Iterator[Row]], run: Path) -> Case:
    def case(effort: Effort) -> Iterator[Row]:
        yield from measure(run, effort)

    case.__doc__ = measure.__doc__
    return case
