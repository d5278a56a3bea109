"""8-bit weights against CTranslate2's int8 and transformers' float32, on one thread.

The random models are those of the tables in float32. `trained` takes a run of translate, `--run FOLDER`, and also
measures the BLEU that 8 bits cost; `encode` takes an encoder, `--encoder FOLDER`, and sentences, `--texts FILE`.
"""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import regard
from benchmarks import encode
from benchmarks.decoding import generation, translation
from benchmarks.table import Bound, Case, Row, absent, gain
from benchmarks.timing import Effort, Spread, compare
from regard.data.text.pairs import read_lines

PEER = "CTranslate2 int8"
# the least speed against transformers in float32
GENERATION = {"5 M parameters, batch 1": 4.0, "124 M parameters, batch 1": 1.7}
SENTENCES = 256


@dataclass(frozen=True)
class Inputs:
    """Folders and files that a command line names."""

    run: Path | None = None
    encoder: Path | None = None
    texts: Path | None = None


def _translation(name: str, doc: str, count: int, batch: int, size: int, bound: float | None) -> Case:
    def case(effort: Effort) -> Iterator[Row]:
        import ctranslate2  # type: ignore[import-not-found]

        model, sources = translation.random_model(), translation.random_sources(count)
        with tempfile.TemporaryDirectory() as folder:
            translation.translator(model, Path(folder))
            peer = ctranslate2.Translator(folder, compute_type="int8", inter_threads=1, intra_threads=1)
            exact = translation.ours(model, sources, batch, size)()
            report = regard.quantize(model)
            calls = {
                "regard int8": translation.ours(model, sources, batch, size),
                PEER: translation.theirs(peer, sources, batch, size),
            }
            mine = calls["regard int8"]()
            timed = compare(calls, effort, threads=1)
        same = sum(a[0] == b[0] for a, b in zip(mine, exact, strict=True))
        note = f"{same} of {len(mine)} translations are those of float32; weights {report.ratio:.3f} of float32"
        yield gain(name, timed, "regard int8", PEER, bound, note=note)

    case.__doc__ = doc
    return case


def generate(effort: Effort) -> Iterator[Row]:
    """greedy generation with 8-bit weights, against transformers' generate in float32"""
    for name, bound in GENERATION.items():
        size = generation.SIZES[name]
        case = f"{size.new} tokens after {generation.PROMPT}, {name}"
        try:
            exact, transformers = generation.generators(size)
            mine, _ = generation.generators(size, regard.quantize)
        except ImportError as error:
            yield absent(case, "regard int8 : transformers float32", str(error))
            continue
        same = float((exact() == mine()).float().mean())
        timed = compare({"regard int8": mine, "transformers float32": transformers}, effort, threads=1)
        yield gain(case, timed, "regard int8", "transformers float32", bound, f"{same:.0%} of the tokens of float32")


_MODEL = translation.MODEL
_BATCH, _SIZE = translation.BATCH, translation.SIZE
CASES: dict[str, Case] = {
    "beam": _translation(
        f"{_MODEL}: beam {_SIZE}, batch {_BATCH}", "beam search in batches", _BATCH, _BATCH, _SIZE, 0.8
    ),
    "greedy": _translation(f"{_MODEL}: greedy, batch {_BATCH}", "greedy search in batches", _BATCH, _BATCH, 1, None),
    "sentence": _translation(
        f"{_MODEL}: beam {_SIZE}, one sentence at a time", "one sentence at a time", 8, 1, _SIZE, 0.6
    ),
    "generate": generate,
}


def trained(run: Path, effort: Effort) -> Iterator[Row]:
    """A trained translator against CTranslate2 int8 with its weights, and the BLEU of 8 bits on its validation data."""
    import sacrebleu

    predictor: Any = regard.load(run, device="cpu")
    lines = {side: list(read_lines(path)) for side, path in zip(("source", "target"), _validation(run), strict=True)}
    scores = {}
    for name in ("float32", "int8"):
        if name == "int8":
            regard.quantize(predictor.model)
        outputs = [predictor.text(output) for output in predictor.predict(lines["source"])]
        scores[name] = sacrebleu.corpus_bleu(outputs, [lines["target"]]).score
    loss = scores["float32"] - scores["int8"]
    bleu = f"BLEU {scores['float32']:.2f} in float32, {scores['int8']:.2f} with 8-bit weights"
    note = f"{bleu}; {len(lines['source'])} lines"
    yield Row(
        "a trained translator, beam search",
        "BLEU that 8 bits cost",
        None,
        Spread(loss, loss, loss),
        Bound("most", 0.3),
        "",
        note,
    )


def _validation(run: Path) -> Sequence[Path]:
    from regard.tasks.registry import read_config

    paths: Sequence[Path] = read_config(run).valid  # type: ignore[attr-defined]
    if len(paths) != 2:
        raise SystemExit(f"{run} was validated on {len(paths)} files; train it with --valid SOURCE TARGET")
    return paths


def encoding(encoder: Path, texts: Path, effort: Effort) -> Iterator[Row]:
    """Vectors of ragged sentences against sentence-transformers in float32, and their cosine to those of float32."""
    lines = [line for line in read_lines(texts) if line.strip()][:SENTENCES]
    exact: Any = regard.load(encoder, device="cpu")
    ours: Any = regard.load(encoder, device="cpu", quantization="int8")
    theirs = encode.peer(encoder)
    calls = {
        "regard int8": lambda: ours.vectors(lines),
        "sentence-transformers": lambda: theirs.encode(lines, batch_size=encode.BATCH, show_progress_bar=False),
    }
    with torch.inference_mode():
        cosine = torch.nn.functional.cosine_similarity(exact.vectors(lines), ours.vectors(lines))
        timed = compare(calls, effort, threads=1)
    low, mean = float(cosine.min()), float(cosine.mean())
    case = f"vectors of {len(lines)} ragged sentences by a trained MiniLM"
    yield gain(case, timed, "regard int8", "sentence-transformers", 2.0)
    for name, value, least in (("minimum", low, 0.98), ("mean", mean, 0.995)):
        spread = Spread(value, value, value)
        yield Row(case, f"{name} cosine to float32", None, spread, Bound("least", least), "", f"{value:.4f}")


def cases(inputs: Inputs) -> dict[str, Case]:
    """The cases whose folders and files were named, behind those that need none."""
    further: dict[str, Case] = {}
    run, encoder, texts = inputs.run, inputs.encoder, inputs.texts
    if run is not None:
        further["trained"] = lambda effort: trained(run, effort)
        further["trained"].__doc__ = trained.__doc__
    if encoder is not None and texts is not None:
        further["encode"] = lambda effort: encoding(encoder, texts, effort)
        further["encode"].__doc__ = encoding.__doc__
    return {**CASES, **further}
