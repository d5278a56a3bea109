"""The cost of record, in time and in memory. python -m benchmarks recording."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from benchmarks import memory
from benchmarks.table import Case, Row, amount, cost
from benchmarks.timing import Effort, compare

TOKENS = 16_384
MODELS = ("nn.TransformerEncoder", "transformers BERT", "transformers GPT-2", "regard Transformer")
WIDTH, LAYERS, HEADS, LENGTH = 512, 6, 8, 256


def forward(name: str) -> tuple[nn.Module, Callable[[], object]]:
    """A model of 6 layers, 512 wide, with 8 heads, and a call of it on 256 tokens."""
    if name == "nn.TransformerEncoder":
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, batch_first=True)
        model: nn.Module = nn.TransformerEncoder(layer, LAYERS).eval()
        x = torch.randn(1, LENGTH, WIDTH)
        return model, lambda: model(x)
    if name == "regard Transformer":
        from regard.models.transformer import Transformer

        ours = Transformer(1000, 1000, width=WIDTH, layers=LAYERS // 2, heads=HEADS, feed=4 * WIDTH).eval()
        ids = torch.randint(3, 1000, (1, LENGTH))
        lengths = torch.tensor([LENGTH])
        return ours, lambda: ours(ids, lengths, ids)
    import transformers

    if name == "transformers BERT":
        config = transformers.BertConfig(
            hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=4 * WIDTH
        )
        model = transformers.BertModel(config).eval()
    else:
        config = transformers.GPT2Config(n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS)
        model = transformers.GPT2Model(config).eval()
    words = torch.randint(0, 1000, (1, LENGTH))
    return model, lambda: model(input_ids=words)


def time(effort: Effort) -> Iterator[Row]:
    """the time of a recorded forward pass, relative to a plain one"""
    for name in MODELS:
        effort.say(name)
        model, call = forward(name)

        def recorded(model: nn.Module = model, call: Callable[[], object] = call) -> object:
            with regard.record(model) as tape:
                call()
            assert all(one.verified for one in tape)
            assert len(tape) >= LAYERS
            return tape

        timed = compare({"recorded": recorded, "plain": call}, effort, threads=1)
        case = f"{name}, {LAYERS} layers, {WIDTH} wide, {LENGTH} tokens"
        yield cost(case, timed, "recorded", "plain", 1.25)


class Long(nn.Module):
    """One layer of causal attention over a long text."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def long_job(tokens: int, heads: int, record: bool) -> Callable[[], object]:
    """A call on this many tokens, recorded or not."""
    model = Long()
    q, k, v = (torch.randn(1, heads, tokens, 64) for _ in range(3))

    def call() -> object:
        with torch.no_grad():
            if not record:
                return model(q, k, v)
            with regard.record(model) as tape:
                out = model(q, k, v)
            assert tape[0].verified
            return out, tape, tape[0].weights.pick(0, 3)[100:110]

    return call


def space(effort: Effort) -> Iterator[Row]:
    """the memory of a recorded layer beyond that of a plain one"""
    for tokens in (TOKENS // 4, TOKENS):
        effort.say(f"{tokens:,} tokens")
        given = {"tokens": tokens, "heads": HEADS}
        taken = {
            record: memory.extra(long_job, {**given, "record": record}, {"tokens": 256}, threads=1)
            for record in (False, True)
        }
        seconds = f"{taken[True].seconds:.1f} s to {taken[False].seconds:.1f} s"
        dense = tokens**2 * HEADS * 4 / 1e9
        yield amount(
            f"scaled_dot_product_attention, {tokens:,} tokens, {HEADS} heads",
            "peak memory of recording and reading ten rows, beyond the plain call",
            "MB",
            taken[True].megabytes - taken[False].megabytes,
            1000,
            note=f"{seconds}; the weights are {dense:.1f} GB, by computation",
        )


def rollout(effort: Effort) -> Iterator[Row]:
    """the time of a recording of 30 tokens, with certificates, and of its rollout, relative to a plain pass"""
    import transformers

    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    model = transformers.BertModel(transformers.BertConfig(vocab_size=1000, **sizes)).eval()
    ids = torch.randint(0, 1000, (1, 30))

    def record() -> regard.recording.Recording:
        with regard.record(model) as recording:
            model(input_ids=ids)
        return recording

    with torch.no_grad():
        recording = record()
        calls: dict[str, Callable[[], object]] = {
            "plain": lambda: model(input_ids=ids),
            "rollout": lambda: recording.rollout()[0].weights.dense(),
            "record": record,
            "record with certificates": lambda: record()[0].certificate,
        }
        timed = compare(calls, effort, threads=1)
    for name, most in (("rollout", 0.2), ("record", 1.3), ("record with certificates", None)):
        yield cost("BERT of the size of MiniLM, 30 tokens", timed, name, "plain", most)


CASES: dict[str, Case] = {"time": time, "space": space, "rollout": rollout}
