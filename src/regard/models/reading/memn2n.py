"""MemN2N: end-to-end memory networks, several of them side by side."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.attn.call import Need
from regard.attn.catalogue import MECHANISMS
from regard.attn.layer import Attention
from regard.attn.mechanisms.memory_hop import MemoryHop
from regard.attn.terms.normalizer import Identity
from regard.attn.terms.read import Argmax, Sample
from regard.common import checks

Tying = Literal["adjacent", "layer-wise"]
Position = Literal["paper", "code", "none"]

# words whose vector is zero: the padding, and words that the training has not seen
NIL, UNKNOWN = 0, 1
RESERVED = 2


class StoryInputs(NamedTuple):
    """Questions about stories. `sentences` are the distinct ones of the batch, which `slots` counts."""

    sentences: Tensor  # "n j", words with NIL behind them
    slots: Tensor  # "b m", rows of `sentences`, the newest sentence first; −1: an empty slot
    questions: Tensor  # "b j", words with NIL behind them

    def to(self, device: torch.device) -> "StoryInputs":
        return StoryInputs(*(t.to(device) for t in self))


class StoryOutput(NamedTuple):
    """The scores of the answers, and the weights of every hop over the slots, if they were asked for."""

    logits: Tensor  # "r b a"
    weights: Tensor | None  # "r b h m"


class MemN2N(nn.Module):
    """u¹ = Σ_j l_j B q_j;  p = softmax(uᵏ · m);  uᵏ⁺¹ = uᵏ + Σ_i p_i c_i;  a = softmax(W u)  (Sukhbaatar et al. 2015).

    m_i = Σ_j l_j A x_ij + T_A(i) and c_i = Σ_j l_j C x_ij + T_C(i), i counts from the newest sentence. Tying:

    adjacent     Aᵏ⁺¹ = Cᵏ, T_Aᵏ⁺¹ = T_Cᵏ, B = A¹, W = the rows of Cᴷ that are answers
    layer-wise   A, C, T_A and T_C are the same in every hop, uᵏ⁺¹ = H uᵏ + o

    `position` is the code l: that of the paper, l_kj = (1 − j/J) − (k/d)(1 − 2j/J); that of the authors' code,
    1 + 4 (k − (d+1)/2)(j − (J+1)/2) / (d J), about twice as large; or none, a bag of words. `answers` are the words
    that are answers, `memory` is the number of slots, `attention` a name of MECHANISMS that reads values by scores.
    `nonlinear` puts a relu behind every hop. NIL and UNKNOWN have the vector zero, which gets no gradient.

    `restarts` networks with other initial weights are trained at once, as one product of matrices: every parameter has
    a leading axis for them.
    """

    no_weight_decay = ("words", "times", "output")

    def __init__(
        self,
        vocabulary: int,
        answers: Sequence[int],
        *,
        width: int = 32,
        hops: int = 3,
        memory: int = 50,
        tying: Tying = "adjacent",
        position: Position = "code",
        attention: str = "dot",
        nonlinear: bool = True,
        restarts: int = 1,
    ) -> None:
        super().__init__()
        sizes = {"vocabulary": vocabulary, "width": width, "hops": hops, "memory": memory, "restarts": restarts}
        checks.positive_ints("MemN2N", **sizes)
        checks.known("tying", tying, ("adjacent", "layer-wise"))
        checks.known("position", position, ("paper", "code", "none"))
        if not answers or not all(RESERVED <= answer < vocabulary for answer in answers):
            raise ValueError(
                f"answers must be words from {RESERVED} to {vocabulary - 1}, one or more, got {list(answers)[:10]}; "
                "0 and 1 are reserved"
            )
        self.width, self.num_hops, self.memory, self.restarts = width, hops, memory, restarts
        self.tying, self.position, self.nonlinear = tying, position, nonlinear
        adjacent = tying == "adjacent"
        self.words = nn.Parameter(torch.randn(hops + 1 if adjacent else 3, restarts, vocabulary, width) * 0.1)
        self.times = nn.Parameter(torch.randn(hops + 1 if adjacent else 2, restarts, memory, width) * 0.1)
        with torch.no_grad():
            self.words[:, :, :RESERVED] = 0.0
        self.output = None if adjacent else nn.Parameter(torch.randn(restarts, len(answers), width) * 0.1)
        # one list per restart; layer-wise hops are one module
        self.hops = nn.ModuleList(
            nn.ModuleList(self._hop(attention) for _ in range(hops if adjacent else 1)) for _ in range(restarts)
        )
        self.answers: Tensor
        self.register_buffer("answers", torch.tensor(answers), persistent=False)
        self.code: Tensor
        self.register_buffer("code", _code(position, width), persistent=False)
        # one error per restart, from the last validation
        self.validation_errors: Tensor
        self.register_buffer("validation_errors", torch.zeros(restarts))
        # softmax(q · k) alone needs no vector per slot
        self.is_dot = attention in ("dot", "memory-hop")

    def _hop(self, attention: str) -> MemoryHop:
        carry = None if self.tying == "adjacent" else nn.Linear(self.width, self.width, bias=False)
        return MemoryHop(memory_attention(attention, self.width), carry=carry)

    @property
    def best_restart(self) -> int:
        """The restart with the fewest errors in the last validation."""
        return int(self.validation_errors.argmin())

    def forward(
        self, inputs: StoryInputs, *, restart: int | None = None, linear: bool = False, need_weights: bool = False
    ) -> StoryOutput:
        """The answers of all restarts, or of one; `linear` leaves the softmax out, as a training starts.

        The scores of the dot product are those of the distinct sentences, u Eᵀ, read at the slots: no vector is copied
        per slot. Other attentions, and those whose weights are asked for, attend to the slots themselves.
        """
        chosen = slice(None) if restart is None else slice(restart, restart + 1)
        words = self.words[:, chosen]
        vectors = self._encode(inputs.sentences, words[: len(self.times)])  # "t r n d"
        u = self._encode(inputs.questions, words[0 if self.tying == "adjacent" else 2])  # "r b d"
        if self.is_dot and not need_weights:
            u, weights = self._over_distinct(u, vectors, inputs.slots, chosen, linear), None
        else:
            numbers = range(self.restarts)[chosen]
            pairs = [self._over_slots(u[n], vectors[:, n], inputs.slots, k, linear) for n, k in enumerate(numbers)]
            u, weights = (torch.stack(each) for each in zip(*pairs, strict=True))
        w = words[-1].index_select(1, self.answers) if self.output is None else self.output[chosen]  # "r a d"
        return StoryOutput(u @ w.mT, weights)

    def _encode(self, tokens: Tensor, words: Tensor) -> Tensor:  # "n j", "*t v d" -> "*t n d"
        """Σ_j l_j x_j of every row. l_kj = a_j + b_j g_k, so two products with counts of words do for all places."""
        distinct, places = tokens.unique(return_inverse=True)
        counts = torch.zeros(2, tokens.shape[0], len(distinct), dtype=words.dtype, device=words.device)
        a, b = _coefficients(self.position, tokens)
        counts[0].scatter_add_(1, places, a.to(words.dtype))
        counts[1].scatter_add_(1, places, b.to(words.dtype))
        sums = counts.flatten(0, 1) @ words.index_select(-2, distinct)  # "*t 2n d"
        n = tokens.shape[0]
        return sums[..., :n, :] + sums[..., n:, :] * self.code.to(words.dtype)

    def _tables(self, hop: int) -> tuple[int, int]:
        """The numbers of the tables of m and of c."""
        return (hop, hop + 1) if self.tying == "adjacent" else (0, 1)

    def _over_distinct(
        self, u: Tensor, vectors: Tensor, slots: Tensor, chosen: slice, linear: bool
    ) -> Tensor:  # "r b d", "t r n d", "b m" -> "r b d"
        # unbound once: the gradient of a table is then no sum over all of them
        tables, times = vectors.unbind(), self.times[:, chosen, : slots.shape[1]].unbind()  # "r n d", "r m d" each
        empty = slots < 0
        # a story without sentences has no weights: zeros, not NaN
        is_masked = linear or bool(empty.all(1).any())
        index = slots.clamp_min(0).expand(len(u), *slots.shape)
        carry = None
        if self.tying == "layer-wise":
            carry = torch.stack([hops[0].carry.weight for hops in self.hops[chosen]])  # type: ignore[index]
        for hop in range(self.num_hops):
            m, c = self._tables(hop)
            scores = (u @ tables[m].mT).gather(-1, index) + u @ times[m].mT  # "r b m"
            p = scores if linear else scores.masked_fill(empty, torch.finfo(scores.dtype).min).softmax(-1)
            p = p.masked_fill(empty, 0.0) if is_masked else p
            read = u.new_zeros(*u.shape[:2], vectors.shape[2]).scatter_add(-1, index, p)  # "r b n"
            u = (u if carry is None else u @ carry.mT) + read @ tables[c] + p @ times[c]
            u = u.relu() if self.nonlinear else u
        return u

    def _over_slots(
        self, u: Tensor, vectors: Tensor, slots: Tensor, restart: int, linear: bool
    ) -> tuple[Tensor, Tensor]:  # "b d", "t n d", "b m" -> "b d", "b h m"
        """One restart, hop by hop, by the modules that attend."""
        memory = vectors[:, slots.clamp_min(0)] + self.times[:, restart, : slots.shape[1]].unsqueeze(1)  # "t b m d"
        filled = (slots >= 0).unsqueeze(1)  # "b 1 m"
        hops, all_weights = self.hops[restart], []
        for hop in range(self.num_hops):
            m, c = self._tables(hop)
            module = hops[hop % len(hops)]  # type: ignore[arg-type, index]
            module = _without_softmax(module) if linear else module
            attended = module.attend(u.unsqueeze(1), memory[m], memory[c], mask=filled, need=Need(weights=True))
            u = attended.out.squeeze(1)
            u = u.relu() if self.nonlinear else u
            assert attended.weights is not None
            all_weights.append(attended.weights.squeeze(1))
        return u, torch.stack(all_weights, 1)


def memory_attention(name: str, width: int) -> Attention:
    """The mechanism of this name as a reader of a memory."""
    checks.known("attention", name, MECHANISMS)
    attention = MECHANISMS[name](width, width)
    if name == "memory-hop":
        return memory_attention("dot", width)
    if not isinstance(attention, Attention) or isinstance(attention.read, Argmax | Sample):
        usable = "'dot', 'additive', 'sparsemax' or 'entmax'"
        raise ValueError(
            f"attention={name!r} does not read the vectors of a memory by weights that learn; try attention={usable}"
        )
    return attention


def _without_softmax(hop: MemoryHop) -> MemoryHop:
    attention = hop.attention
    linear = Attention(attention.score, bias=attention.bias, mask=attention.mask, normalize=Identity())
    return MemoryHop(linear, carry=hop.carry).train(hop.training)


def _code(position: Position, width: int) -> Tensor:  # -> "d"
    """g_k of l_kj = a_j + b_j g_k."""
    k = torch.arange(1, width + 1)
    return k / width if position == "paper" else (k - (width + 1) / 2) / width


def _coefficients(position: Position, tokens: Tensor) -> tuple[Tensor, Tensor]:  # "n j" -> "n j", "n j"
    """a_j and b_j of l_kj = a_j + b_j g_k; zero for words without a vector."""
    length = (tokens != NIL).sum(-1, keepdim=True).clamp_min(1)
    inside = tokens >= RESERVED
    j = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    if position == "paper":
        a, b = 1 - j / length, 2 * j / length - 1
    elif position == "code":
        a, b = torch.ones_like(j / length), 4 * (j - (length + 1) / 2) / length
    else:
        a, b = torch.ones_like(j / length), torch.zeros_like(j / length)
    return a * inside, b * inside
