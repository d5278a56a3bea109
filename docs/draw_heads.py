"""Pictures of what decoders of today add to heads: norms, gates, mixtures, differences and latents; and of graphs."""

import torch
from draw_letters import LETTERS, Neighbours
from draw_words import DIM, KEYS, QUERIES, weights, words
from torch import Tensor

import regard
from regard.layers import Differential, GraphAttention, Latent, OutputGate, RMSQKNorm
from regard.viz import Panel


@torch.no_grad()
def qk_norm() -> list[Panel]:
    """The same words, one key of which is three times as long."""
    q, k, norm = words(*QUERIES), words(*KEYS), RMSQKNorm(DIM)
    long = k.clone()
    long[KEYS.index("def")] *= 3
    panels = []
    for title, keys in (("q·k / √d", k), ("`def` 3 times as long", long)):
        panels.append(Panel(weights(q, keys), title.replace("`", ""), QUERIES, KEYS))
    normed = weights(norm.queries(q), norm.keys(long))
    return [*panels, Panel(normed, "the same, normed", QUERIES, KEYS)]


def _both_neighbours(attention: torch.nn.Module, kind: type[Neighbours] = Neighbours) -> Neighbours:
    torch.manual_seed(0)
    model = kind(attention, both=True)
    model.fit(1000)
    return model


@torch.no_grad()
def _letters(model: Neighbours) -> Tensor:
    return model.letter(torch.arange(len(LETTERS)))


def output_gate() -> list[Panel]:
    torch.manual_seed(0)
    gate = OutputGate(DIM, 4)
    model = _both_neighbours(regard.MultiHead(DIM, 4, gate=gate))
    opening = torch.sigmoid(gate.map(_letters(model))).detach()
    heads = [f"head {n}" for n in range(4)]
    maps = [Panel(model.weights()[n], f"weights of head {n}", list(LETTERS), list(LETTERS)) for n in (0, 1)]
    return [Panel(opening, "σ(W x)", list(LETTERS), heads), *maps]


def talking_heads() -> list[Panel]:
    torch.manual_seed(0)
    terms = regard.scores.TalkingScores(4), regard.normalizers.TalkingWeights(4)
    attention = regard.Attention(terms[0], normalize=terms[1])
    model = _both_neighbours(regard.MultiHead(DIM, 4, attention=attention))
    names = [f"head {n}" for n in range(4)]
    mixtures = [
        Panel(term.mixture.detach(), title, names, names, stretch=True)
        for term, title in zip(terms, ("P of the scores", "P of the weights"), strict=True)
    ]
    return [*mixtures, Panel(model.weights()[0], "mixed weights of head 0", list(LETTERS), list(LETTERS), stretch=True)]


def differential() -> list[Panel]:
    torch.manual_seed(0)
    difference = Differential(DIM // 4, layer=4)
    model = _both_neighbours(regard.MultiHead(DIM, 4, difference=difference))
    maps, letters = model.weights(), list(LETTERS)
    subtracted = difference.subtract(maps).detach()[0]
    return [
        Panel(maps[0], "map 0", letters, letters),
        Panel(maps[2], "map 2", letters, letters),
        Panel(subtracted, f"map 0 − {difference.factor().item():.2f} · map 2", letters, letters, stretch=True),
    ]


def gat() -> list[Panel]:
    panels = []
    for score in (regard.scores.GAT, regard.scores.GATv2):
        torch.manual_seed(0)
        layer = GraphAttention(DIM, 1, attention=regard.Attention(score(DIM)))
        model = Neighbours(layer)
        right = model.fit()
        panels.append(Panel(model.weights()[0], f"{score.__name__}: {right:.0%} right", list(LETTERS), list(LETTERS)))
    return panels


class _Joined(Neighbours):
    """A token is the sum of its letter and its digit: keys and values come from one vector."""

    def attend(self, letters: Tensor, digits: Tensor) -> regard.Attended:
        return self.attention.attend(self.letter(letters) + self.digit(digits), need=regard.Need(weights=True))


def latent() -> list[Panel]:
    torch.manual_seed(0)
    model = _both_neighbours(Latent(DIM, 4, latent_dim=16, head_dim=8, rotated_dim=2, bias=True), _Joined)
    return [Panel(w, f"head {n}", list(LETTERS), list(LETTERS)) for n, w in enumerate(model.weights())]
