"""A Transformer against CTranslate2 with the same weights, in float32 on one thread.

The weights are random: the time of a step does not depend on their values. The end of the sentence has probability 0,
so both translate up to the same length. The vocabulary layer is not tied and wide, so that the best tokens stand apart
and rounding decides nothing.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.table import Case, Row, gain
from benchmarks.timing import Effort, compare
from regard.decoding.beam import beam
from regard.decoding.greedy import greedy
from regard.export.ctranslate2_model import write_translator
from regard.models.transformer import Transformer

WORDS, WIDTH, LAYERS, HEADS = 6000, 256, 3, 4
BOS, EOS, UNK = 1, 2, 3
BATCH, SIZE, LENGTH = 64, 5, 20
PEER = "CTranslate2 float32"

Translation = tuple[list[int], float]  # tokens and log p


def random_model(seed: int = 0) -> Transformer:
    torch.manual_seed(seed)
    sizes = {"width": WIDTH, "layers": LAYERS, "heads": HEADS, "feed": 4 * WIDTH}
    model = Transformer(WORDS, WORDS, tied="none", dropout=0.0, **sizes).eval()
    with torch.no_grad():
        model.output.weight.normal_(std=3 * WIDTH**-0.5)
        model.output.bias[EOS] = -1e4
    return model.requires_grad_(False)


def random_sources(count: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(8, 25, (count,), generator=generator).tolist()
    return [torch.randint(4, WORDS, (n,), generator=generator).tolist() for n in lengths]


def translator(model: Transformer, folder: Path) -> Any:
    import ctranslate2  # type: ignore[import-not-found]

    tokens = [f"w{n}" for n in range(WORDS)]
    names = {"bos": tokens[BOS], "eos": tokens[EOS], "unk": tokens[UNK]}
    write_translator(model, folder, tokens, tokens, **names)
    return ctranslate2.Translator(str(folder), compute_type="float32", inter_threads=1, intra_threads=1)


def ours(
    model: Transformer, sources: Sequence[Sequence[int]], batch: int, size: int
) -> Callable[[], list[Translation]]:
    batches = [_batch(sources[at : at + batch]) for at in range(0, len(sources), batch)]

    def run() -> list[Translation]:
        found = []
        for source, lengths in batches:
            limits = torch.full_like(lengths, LENGTH)
            with torch.no_grad():
                state = model.init_state(source, lengths, size)
                if size == 1:
                    best = greedy(model, state, bos=BOS, eos=EOS, limits=limits)
                else:
                    best = [some[0] for some in beam(model, state, bos=BOS, eos=EOS, limits=limits, size=size)]
            found += [(list(hypothesis.tokens), hypothesis.log_prob) for hypothesis in best]
        return found

    return run


def theirs(peer: Any, sources: Sequence[Sequence[int]], batch: int, size: int) -> Callable[[], list[Translation]]:
    texts = [[f"w{n}" for n in source] for source in sources]

    def run() -> list[Translation]:
        found = []
        for at in range(0, len(texts), batch):
            results = peer.translate_batch(
                texts[at : at + batch],
                beam_size=size,
                length_penalty=0,  # all lengths are equal; so the score is log p
                max_decoding_length=LENGTH,
                min_decoding_length=LENGTH,
                return_scores=True,
            )
            found += [([int(token[1:]) for token in result.hypotheses[0]], result.scores[0]) for result in results]
        return found

    return run


def _batch(sources: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    rows = [torch.tensor(source) for source in sources]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([len(source) for source in sources])


def agreement(mine: Sequence[Translation], other: Sequence[Translation]) -> str:
    """How many translations are the same; a beam of regard also follows the greedy path, so some are not."""
    unlike = [(a, b) for a, b in zip(mine, other, strict=True) if a[0] != b[0]]
    better = sum(a[1] > b[1] for a, b in unlike)
    same = f"{len(mine) - len(unlike)} of {len(mine)} translations are the same tokens"
    return same + (f", {better} of the others more probable with regard" if unlike else "")


def _case(name: str, doc: str, count: int, batch: int, size: int, bound: float | None) -> Case:
    def case(effort: Effort) -> Iterator[Row]:
        model, sources = random_model(), random_sources(count)
        with tempfile.TemporaryDirectory() as folder:
            peer = translator(model, Path(folder))
            calls = {"regard": ours(model, sources, batch, size), PEER: theirs(peer, sources, batch, size)}
            mine, other = (call() for call in calls.values())
            timed = compare(calls, effort, threads=1)
        yield gain(name, timed, "regard", PEER, bound, note=agreement(mine, other))

    case.__doc__ = doc
    return case


MODEL = f"Transformer {LAYERS}+{LAYERS}, width {WIDTH}, {WORDS:,} words, {LENGTH} tokens"
CASES: dict[str, Case] = {
    "beam": _case(f"{MODEL}: beam {SIZE}, batch {BATCH}", "beam search in batches", BATCH, BATCH, SIZE, 1.0),
    "greedy": _case(f"{MODEL}: greedy, batch {BATCH}", "greedy search in batches", BATCH, BATCH, 1, 0.9),
    "sentence": _case(f"{MODEL}: beam {SIZE}, one sentence at a time", "one sentence at a time", 8, 1, SIZE, 0.9),
    "greedy-sentence": _case(f"{MODEL}: greedy, one sentence at a time", "one path of one sentence", 8, 1, 1, None),
}
