"""The cost of transformers' models on regard: `python -m benchmarks models padding window memory`.

Compares attn_implementation="regard" with "sdpa", on one thread: whole models, the attention of a padded batch, a
sliding window, and the memory of recording.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import regard
from benchmarks import memory
from benchmarks.table import Case, Row, amount, cost, gain
from benchmarks.timing import Effort, Timed, backward, compare
from regard.interop.transformers_attention import attention_of_transformers
from regard.interop.transformers_masks import dense_mask_with_rules

OURS, PEER, AGAIN = "regard", "sdpa", "sdpa again"
# words and the two special tokens of 32 lines of SST-2's training set, 216 lines apart
LENGTHS = (
    19, 33, 6, 12, 21, 32, 8, 28, 19, 28, 21, 14, 22, 8, 23, 20, 10, 22,
    17, 9, 13, 24, 35, 23, 33, 9, 8, 28, 38, 6, 38, 27,
)  # fmt: skip

BERT_LAYERS, BERT_HEADS, HEAD_WIDTH = 12, 12, 64
WINDOW = {
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "intermediate_size": 1024,
    "sliding_window": 256,
}
LLAMA = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "intermediate_size": 2048,
}
# kind, sizes, and the shape of a batch
MODELS: dict[str, tuple[str, dict[str, Any], tuple[int, int]]] = {
    "MiniLM (6 layers, 384 wide, 12 heads)": (
        "Bert",
        {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
        (16, 128),
    ),
    "GPT-2 (6 layers, 768 wide, 12 heads)": ("GPT2", {"n_embd": 768, "n_layer": 6, "n_head": 12}, (1, 256)),
}


def build(kind: str, **sizes: Any) -> Any:
    """A model of transformers with random weights and a small vocabulary."""
    import transformers

    transformers.logging.set_verbosity_error()
    regard.register_with_transformers()
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(vocab_size=1000, **sizes)
    return getattr(transformers, f"{kind}Model")(config).eval()


def on(model: Any, implementation: str) -> Any:
    """A copy of the model that attends by this implementation."""
    same = copy.deepcopy(model)
    same.set_attn_implementation(implementation.split()[0])
    return same


def output(model: Any, ids: Tensor) -> Tensor:
    hidden: Tensor = model(input_ids=ids).last_hidden_state
    return hidden


def step(model: Any, ids: Tensor) -> Callable[[], object]:
    """Forward and backward of a model, to all parameters that reach the output."""
    used = [parameter for name, parameter in model.named_parameters() if not name.startswith("pooler")]
    model.config.use_cache = False
    return backward(partial(output, model, ids), used)


def models(effort: Effort) -> Iterator[Row]:
    """whole models: inference, training, and training with the dropout of their configuration"""
    for name, (kind, sizes, shape) in MODELS.items():
        model, ids = build(kind, **sizes), torch.randint(3, 1000, shape)
        copies = {implementation: on(model, implementation) for implementation in (OURS, PEER, AGAIN)}
        case = f"{name}, {shape[0]} × {shape[1]} tokens"
        calls: dict[str, Callable[[], object]] = {key: partial(output, same, ids) for key, same in copies.items()}
        yield _beside_itself(f"{case}, inference", compare(calls, effort, agree=[PEER], threads=1))
        steps = {key: step(same, ids) for key, same in copies.items()}
        yield _beside_itself(f"{case}, training", compare(steps, effort, grad=True, agree=[PEER], threads=1))
        for same in copies.values():
            same.train()
        yield _beside_itself(f"{case}, training, dropout 0.1", compare(steps, effort, grad=True, threads=1))


def _beside_itself(case: str, timed: Timed) -> Row:
    """Our time by that of sdpa: at most 1.03, or what a second copy with sdpa takes in one of four repetitions."""
    noise = timed.ratio(AGAIN, PEER)
    note = f"{AGAIN} : {PEER} {noise.median:.2f} [{noise.low:.2f}, {noise.high:.2f}]"
    return cost(case, timed, OURS, PEER, round(max(1.03, noise.high), 2), note)


def padding(effort: Effort, lengths: Sequence[int] = LENGTHS) -> Iterator[Row]:
    """the attention of BERT's twelve layers over a batch with the lengths of SST-2, and their mask"""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import bidirectional_mask_function, sdpa_mask

    batch, longest = len(lengths), max(lengths)
    is_token = torch.arange(longest) < torch.tensor(lengths).unsqueeze(-1)
    layer = nn.Identity()
    layer.is_causal = False  # type: ignore[assignment]
    leaves = [
        torch.randn(batch, longest, BERT_HEADS, HEAD_WIDTH, requires_grad=True) for _ in range(2 * BERT_LAYERS + 1)
    ]

    def attend(attention: Callable[..., Any], make_mask: Callable[..., Any]) -> Tensor:
        mask = make_mask(batch, longest, longest, mask_function=bidirectional_mask_function, attention_mask=is_token)
        out, *rest = leaves
        for k, v in zip(rest[::2], rest[1::2], strict=True):
            heads = (t.transpose(1, 2) for t in (out, k, v))
            out = attention(layer, *heads, mask, scaling=HEAD_WIDTH**-0.5)[0]
        return out

    computations = {
        OURS: partial(attend, attention_of_transformers, dense_mask_with_rules),
        PEER: partial(attend, sdpa_attention_forward, sdpa_mask),
    }
    mean = sum(lengths) / batch
    case = f"BERT's attention, {batch} texts of {min(lengths)} to {longest} tokens, {mean:.0f} on average"
    yield gain(f"{case}, forward", compare(computations, effort, agree=[PEER], threads=1), OURS, PEER)
    steps = {name: backward(compute, leaves) for name, compute in computations.items()}
    timed = compare(steps, effort, grad=True, agree=[PEER], threads=1)
    yield gain(f"{case}, forward and backward", timed, OURS, PEER, 1.2)


def window(effort: Effort, tokens: int = 8192) -> Iterator[Row]:
    """a training step of a Mistral of 4 layers with a window of 256"""
    model, ids = build("Mistral", max_position_embeddings=tokens, **WINDOW), torch.randint(3, 1000, (1, tokens))
    steps = {implementation: step(on(model, implementation), ids) for implementation in (OURS, PEER)}
    few = Effort(repeat=5, least=3, budget=effort.budget, block=effort.block, say=effort.say)
    timed = compare(steps, few, grad=True, agree=[PEER], threads=1)
    yield gain(f"Mistral (4 layers, 512 wide), window 256, {tokens:,} tokens, training", timed, OURS, PEER, 3)


def memory_job(tokens: int, implementation: str, layers: int) -> Callable[[], object]:
    """Inference of a Llama; "recorded" keeps every map."""
    sizes = LLAMA | {"num_hidden_layers": layers}
    model = build("Llama", max_position_embeddings=4096, **sizes)
    model.set_attn_implementation(PEER if implementation == PEER else OURS)
    ids = torch.randint(3, 1000, (1, tokens))

    def call() -> object:
        with torch.no_grad():
            if implementation != "recorded":
                return output(model, ids)
            with regard.record(model) as recording:
                out = output(model, ids)
            assert len(recording) == layers
            return out, recording

    return call


def recorded_memory(effort: Effort, tokens: int = 4096) -> Iterator[Row]:
    """the peak memory of a process that runs a Llama of 12 layers, with all maps recorded, against sdpa without"""
    given: dict[str, object] = {"tokens": tokens, "layers": LLAMA["num_hidden_layers"]}
    warm: dict[str, object] = {"tokens": 16, "layers": 1}
    case = f"Llama (12 layers, 768 wide), {tokens:,} tokens, inference"
    peaks = {
        name: memory.extra(memory_job, {**given, "implementation": name}, warm, threads=1).process_megabytes
        for name in (PEER, OURS, "recorded")
    }
    for name, most in ((OURS, None), ("recorded", 1.2)):
        note = f"{peaks[name]:,.0f} MB to {peaks[PEER]:,.0f} MB, the peak of the whole process"
        label = "regard, all maps recorded" if name == "recorded" else OURS
        yield amount(case, f"{label} : {PEER}", "× the memory", peaks[name] / peaks[PEER], most, note=note)


CASES: dict[str, Case] = {"models": models, "padding": padding, "window": window, "memory": recorded_memory}
