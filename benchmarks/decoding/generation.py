"""GPT-2 against transformers' `generate` with the same weights, and a training step against the same model in torch."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.table import Case, Row, absent, gain
from benchmarks.timing import Effort, compare
from regard.decoding.greedy import greedy
from regard.decoding.prompts import prompt_batch
from regard.models.gpt2 import GPT2
from regard.models.pretrained import load_pretrained

PROMPT, EOS = 32, 0
# of the trained model
VOCABULARY, CONTEXT, ROWS = 65, 64, 12


@dataclass(frozen=True)
class Size:
    """A random GPT-2, its batch, its new tokens, and the least speed against transformers."""

    width: int
    layers: int
    heads: int
    vocabulary: int
    batch: int
    new: int
    bound: float


SIZES = {
    "5 M parameters, batch 1": Size(256, 6, 8, 2000, 1, 32, 1.4),
    "124 M parameters, batch 1": Size(768, 12, 12, 50257, 1, 12, 1.0),
    "124 M parameters, batch 8": Size(768, 12, 12, 50257, 8, 8, 1.05),
}


def generators(
    size: Size, prepare: Callable[[nn.Module], object] | None = None
) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    """Greedy continuations of the same random prompts, "b n", by regard and by transformers.

    `prepare` changes the model of regard, such as regard.quantize.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=size.vocabulary,
        n_positions=256,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        bos_token_id=EOS,
        eos_token_id=EOS,
        pad_token_id=EOS,
    )
    theirs = GPT2LMHeadModel(config).eval()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        mine = load_pretrained(folder).model.eval()
    assert isinstance(mine, GPT2)
    if prepare is not None:
        prepare(mine)
    tokens = torch.randint(1, size.vocabulary, (size.batch, PROMPT))
    limits = torch.full((size.batch,), size.new)

    def regard() -> Tensor:
        prompts = prompt_batch(tokens.tolist())
        state = mine.init_state(prompts.tokens, prompts.lengths)
        found = greedy(mine, state, bos=prompts.last, eos=EOS, limits=limits, forbidden=[])
        return torch.tensor([hypothesis.tokens for hypothesis in found])

    def transformers() -> Tensor:
        is_read = torch.ones_like(tokens)
        found = theirs.generate(tokens, attention_mask=is_read, max_new_tokens=size.new, do_sample=False)
        return found[:, PROMPT:]

    return regard, transformers


def generate(effort: Effort) -> Iterator[Row]:
    """greedy generation from a prompt of 32 tokens, against transformers' generate; the tokens must be the same"""
    for name, size in SIZES.items():
        case = f"{size.new} tokens after {PROMPT}, {name}"
        try:
            regard, transformers = generators(size)
        except ImportError as error:
            yield absent(case, "regard : transformers", str(error))
            continue
        calls = {"regard": regard, "transformers": transformers}
        timed = compare(calls, effort, agree=["transformers"], threads=1)
        yield gain(case, timed, "regard", "transformers", size.bound, "the same tokens")


class PlainBlock(nn.Module):
    """x += attention(norm x); x += W₂ gelu(W₁ norm x), with one product for q, k and v."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:  # "b t d" -> "b t d"
        b, t, d = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, d))
        return x + self.outer(F.gelu(self.inner(self.second(x)), approximate="tanh"))


class PlainGPT(nn.Module):
    """GPT-2 in plain torch."""

    def __init__(self, vocabulary: int, context: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(PlainBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def loss(self, tokens: Tensor) -> Tensor:  # "b t+1"
        x = self.tokens(tokens[:, :-1]) + self.places.weight[: tokens.shape[1] - 1]
        for block in self.blocks:
            x = block(x)
        logits = self.norm(x) @ self.tokens.weight.T
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def copy_weights(plain: PlainGPT, model: GPT2) -> None:
    """The weights of regard's model in the plain one."""
    with torch.no_grad():
        plain.tokens.weight.copy_(model.embedding.weight)
        plain.places.weight.copy_(model.place.table.weight)  # type: ignore[union-attr, arg-type]
        plain.norm.load_state_dict(model.stack.norm.state_dict())
        for block, layer in zip(plain.blocks, model.stack.layers, strict=True):
            heads = layer.attention
            for part in ("weight", "bias"):
                joined = [getattr(linear, part) for linear in (heads.query, heads.key, heads.value)]  # type: ignore[union-attr]
                getattr(block.qkv, part).copy_(torch.cat(joined))
            pairs = {
                block.out: heads.out,  # type: ignore[union-attr]
                block.inner: layer.feed.inner,  # type: ignore[union-attr]
                block.outer: layer.feed.outer,  # type: ignore[union-attr]
                block.first: layer.around_attention.norm,  # type: ignore[union-attr]
                block.second: layer.around_feed.norm,  # type: ignore[union-attr]
            }
            for mine, theirs in pairs.items():
                mine.load_state_dict(theirs.state_dict())  # type: ignore[union-attr]


def losses(
    width: int = 128, layers: int = 4, heads: int = 4
) -> tuple[GPT2, PlainGPT, Callable[[], Tensor], Callable[[], Tensor]]:
    """Both models with the same weights, and their losses on the same tokens."""
    torch.manual_seed(0)
    sizes = {"width": width, "layers": layers, "heads": heads}
    model = GPT2(VOCABULARY, longest=CONTEXT, dropout=0.0, **sizes)
    plain = PlainGPT(VOCABULARY, CONTEXT, **sizes)
    copy_weights(plain, model)
    tokens = torch.randint(VOCABULARY, (ROWS, CONTEXT + 1))

    def mine() -> Tensor:
        states = model.hidden_states(tokens[:, :-1]).states.flatten(0, 1)
        total, _ = model.token_loss(states, tokens[:, 1:].flatten())
        return total / tokens[:, 1:].numel()

    return model, plain, mine, lambda: plain.loss(tokens)


def training(effort: Effort) -> Iterator[Row]:
    """a training step of a GPT of 4 layers of width 128, against the same model in plain torch"""
    model, plain, mine, theirs = losses()
    torch.testing.assert_close(mine(), theirs(), rtol=1e-5, atol=1e-5)

    def stepper(module: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
        optimizer = torch.optim.AdamW(module.parameters(), 1e-6, fused=True)

        def step() -> None:
            loss().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    calls = {"regard": stepper(model, mine), "plain torch": stepper(plain, theirs)}
    timed = compare(calls, effort, grad=True, threads=1)
    case = f"training step, 4 × 128, context {CONTEXT}, batch {ROWS}, AdamW"
    yield gain(case, timed, "regard", "plain torch", 1.0)


CASES: dict[str, Case] = {"generate": generate, "training": training}
