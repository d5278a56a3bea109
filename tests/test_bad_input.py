"""Every sentence for bad input names the argument, shows its value and says the way out."""

import pathlib
import re
from collections.abc import Callable

import pytest
import torch
from tests.for_each import for_each

import regard
from regard import Attention, KVCache, Learnable, MultiHead, Need
from regard.attn.maps.attention_map import DenseMap, LazyMap
from regard.losses import Baseline, doubly_stochastic, frobenius_penalty, linear_cross_entropy, reinforce
from regard.losses.functional import info_nce
from regard.losses.vocabulary import AdaptiveSoftmax
from regard.training.runtime.distributed import join


def t(*shape: int, **kind: object) -> torch.Tensor:
    return torch.zeros(*shape, **kind)


Q, K, V = t(2, 3, 4), t(2, 5, 4), t(2, 5, 6)
FAR = t(2, 5, 4, device="meta")


def call(*tensors: object, **terms: object) -> Callable[[], object]:
    return lambda: regard.attend(*(tensors or (Q, K, V)), **terms)


def a_map() -> regard.attn.AttentionMap:
    return regard.attend(Q, K, need=Need(map=True)).map


def with_projections(heads: MultiHead, width: int, names: tuple[str, ...] = ("query", "key", "value")) -> MultiHead:
    """The layer with narrower projections, as tensor parallelism leaves a process with some of the heads."""
    for name in names:
        setattr(heads, name, torch.nn.Linear(heads.query.in_features, width))
    return heads


class Elsewhere(regard.Normalizer):
    """What a reader may write."""

    def weights(self, scores: torch.Tensor, allowed: torch.Tensor | None) -> torch.Tensor:
        return scores


def map_of_heads() -> LazyMap:
    made = regard.attend(t(2, 3, 5, 4), t(2, 3, 7, 4), normalize=Elsewhere(), need=Need(map=True)).map
    return made


def twice() -> None:
    total, _ = linear_cross_entropy(t(3, 4).requires_grad_(), t(7, 4), torch.arange(3))
    total.backward(retain_graph=True)
    total.backward()


BAD: dict[str, tuple[type[Exception], Callable[[], object], list[str]]] = {
    # tensors
    "q is no tensor": (TypeError, call([1.0], K), ["q must be a tensor", "list", "torch.as_tensor"]),
    "k is no tensor": (TypeError, call(Q, 3), ["k must be a tensor", "int"]),
    "v is no tensor": (TypeError, call(Q, K, "v"), ["v must be a tensor", "str"]),
    "q of integers": (TypeError, call(Q.long(), K), ["q must be a floating tensor", "torch.int64", "q.float()"]),
    "k of integers": (TypeError, call(Q, K.int()), ["k must be a floating tensor", "torch.int32", "k.float()"]),
    "v of booleans": (TypeError, call(Q, K, V.bool()), ["v must be a floating tensor", "torch.bool"]),
    "q of one axis": (ValueError, call(t(4), K), ["q must have at least two axes", "(4)", "q.unsqueeze(0)"]),
    "two devices": (ValueError, call(Q, FAR), ["one device", "cpu", "meta", ".to('cpu')"]),
    "two types": (TypeError, call(Q, K.double()), ["one dtype", "float32", "float64", ".to(torch.float32)"]),
    "values of another type": (TypeError, call(Q, K, V.half()), ["one dtype", "float16"]),
    "keys and values not as many": (ValueError, call(Q, K, t(2, 4, 6)), ["(2, 5, 4)", "(2, 4, 6)", "axis -2"]),
    "batches that differ": (ValueError, call(Q, t(3, 5, 4)), ["(2, 3, 4)", "(3, 5, 4)", "multiple of the heads"]),
    "heads that do not divide": (ValueError, call(t(2, 7, 3, 4), t(2, 3, 5, 4)), ["(2, 7, 3, 4)", "multiple"]),
    "dropout above one": (ValueError, call(dropout=1.5), ["dropout must be between 0 and 1", "1.5", "dropout=0.1"]),
    "dropout below nought": (ValueError, call(dropout=-0.1), ["dropout", "-0.1"]),
    "dropout of a layer": (ValueError, lambda: Attention(dropout=2.0), ["between 0 and 1 for Attention, got 2.0"]),
    "dropout of heads": (ValueError, lambda: MultiHead(8, 4, dropout=-1.0), ["between 0 and 1", "got -1.0"]),
    "nested queries": (
        TypeError,
        lambda: regard.attention(torch.nested.nested_tensor([t(3, 4), t(2, 4)], layout=torch.jagged), K),
        ["q must be a padded tensor, got a nested one; pad it with torch.nested.to_padded_tensor(q, 0.0)", "Lengths"],
    ),
    "nested queries of heads": (
        TypeError,
        lambda: MultiHead(8, 4)(torch.nested.nested_tensor([t(3, 8), t(2, 8)], layout=torch.jagged)),
        ["q must be a padded tensor, got a nested one"],
    ),
    "a list of queries of heads": (TypeError, lambda: MultiHead(8, 4)([[1.0]]), ["q must be a tensor, got list"]),
    "values in the place of a past": (
        TypeError,
        lambda: MultiHead(8, 4).project_kv(t(2, 3, 8), t(2, 3, 8)),
        ["past must be a KVCache, got Tensor; pass values by name, project_kv(k, v=v)"],
    ),
    "a cache of another type": (
        TypeError,
        lambda: regard.attention(Q, regard.KVCache(K.bfloat16(), V.bfloat16())),
        ["the cache holds values of torch.bfloat16, but q is torch.float32", "under autocast"],
    ),
    "dots in the index of a map": (
        TypeError,
        lambda: regard.attend(Q, K, need=regard.Need(map=True)).map[...],
        ["a map is indexed by integers, slices and lists, one per axis, got ...; write : for a whole axis"],
    ),
    "a part of a head": (
        ValueError,
        lambda: with_projections(MultiHead(8, 2), 6).project_kv(t(2, 3, 8)),
        ["width 6 is no multiple of the head width 4", "use as many processes as divide kv_heads=2"],
    ),
    "query heads without their key heads": (
        ValueError,
        lambda: with_projections(MultiHead(8, 2, attention=Attention(backend="eager")), 4, ("query",))(t(2, 3, 8)),
        ["this process has 1 of 2 query heads, but 2 of 2 key heads; split query, key and value alike"],
    ),
    "layers per head of fewer heads": (
        ValueError,
        lambda: with_projections(MultiHead(8, 2, attention=[Attention(), Attention()]), 4)(t(2, 3, 8)),
        ["a list of 2 layers, one per head, but there are 1 heads", "takes one attention for all heads"],
    ),
    "positions of too few": (
        ValueError,
        call(positions=(torch.arange(3), torch.arange(4))),
        ["positions", "3 queries and 5 keys", "(3) and (4)", "pass (i, j)"],
    ),
    # biases
    "bias of booleans": (TypeError, call(bias=t(3, 5).bool()), ["bias must be a floating", "torch.bool", "mask="]),
    "bias that does not fit": (ValueError, call(bias=t(3, 4)), ["bias of shape (3, 4)", "(2, 3, 5)"]),
    "bias of too many axes": (ValueError, call(bias=t(1, 1, 3, 5)), ["bias of shape (1, 1, 3, 5)"]),
    "buckets that are odd": (ValueError, lambda: regard.T5Buckets(2, buckets=7), ["buckets", "7", "try 32"]),
    "distance below buckets": (
        ValueError,
        lambda: regard.T5Buckets(2, buckets=8, max_distance=8),
        ["max_distance", "buckets (8)", "got 8", "try 32"],
    ),
    "odd width of xl": (ValueError, lambda: regard.RelativeXL(5, 2, 4), ["dim must be even", "5", "try 6"]),
    "no heads of alibi": (ValueError, lambda: regard.ALiBi(0), ["heads must be positive", "ALiBi", "0"]),
    "no clip": (ValueError, lambda: regard.Shaw(4, 0), ["clip must be positive", "Shaw", "0"]),
    "no window": (ValueError, lambda: regard.biases.LocalGaussian(4, 4, -1.0), ["window must be positive", "-1.0"]),
    "shaw of another width": (ValueError, call(bias=regard.Shaw(7)), ["q must be 7 wide", "(2, 3, 4)", "build Shaw"]),
    "no distance of xl": (ValueError, lambda: regard.RelativeXL(6, 2, 4, clamp=0), ["clamp must be", "got 0"]),
    "xl of another width": (ValueError, call(bias=regard.RelativeXL(6, 1, 7)), ["q must be 7 wide", "RelativeXL"]),
    "gaussian of another width": (ValueError, call(bias=regard.biases.LocalGaussian(7, 3)), ["q must be 7 wide"]),
    # masks
    "mask that is a word": (TypeError, call(mask="causal"), ["mask must be a Mask", "str", "Causal()"]),
    "mask of integers": (TypeError, call(mask=t(3, 5).long()), ["mask must be boolean", "int64", "bias=", "mask > 0"]),
    "mask of floats and a bias": (
        ValueError,
        call(mask=t(3, 5), bias=t(3, 5)),
        ["mask holds torch.float32", "where a bias of shape (3, 5) already adds its own", "leave the bias out"],
    ),
    "mask of floats beside a bias": (
        ValueError,
        lambda: regard.MultiHead(4, 2, attention=regard.Attention(bias=regard.ALiBi(2)))(t(2, 3, 4), mask=t(3, 3)),
        [
            "mask holds torch.float32, numbers to be added to the scores, where ALiBi(heads=2) already adds its own; "
            "pass booleans, True = may attend, or leave the bias out"
        ],
    ),
    "mask of one axis": (ValueError, call(mask=t(5).bool()), ["mask must end", "(5)", "unsqueeze(-2)"]),
    "mask that does not fit": (
        ValueError,
        call(mask=t(3, 4).bool()),
        ["mask of shape (3, 4)", "(2, 3, 5)", "1 fits all"],
    ),
    "mask of too many axes": (ValueError, call(mask=t(2, 1, 3, 5).bool()), ["mask of shape (2, 1, 3, 5)"]),
    "mask far away": (ValueError, call(mask=t(3, 5, device="meta").bool()), ["mask is on meta", ".to('cpu')"]),
    "window below nought": (ValueError, lambda: regard.Window(-2), ["left", "-2", "left=2"]),
    "window below nought, ahead": (ValueError, lambda: regard.Window(2, -3), ["right", "-3", "right=3"]),
    "lengths of floats": (
        TypeError,
        lambda: regard.Lengths(t(2)),
        ["lengths must be integers", "float32", "BooleanMask"],
    ),
    "lengths of booleans": (
        TypeError,
        lambda: regard.Lengths(t(2, 5).bool()),
        ["lengths", "torch.bool", "BooleanMask(mask)"],
    ),
    "lengths as a list of numbers": (
        TypeError,
        lambda: regard.Lengths([3.0, 4.0]),  # type: ignore[list-item]
        ["lengths must be integers, one per sample, got list; write Lengths([5, 3])"],
    ),
    "is_causal": (
        TypeError,
        lambda: regard.attention(Q, K, is_causal=True),
        ["attention has no argument is_causal; pass mask=regard.Causal()"],
    ),
    "key_padding_mask of a layer": (
        TypeError,
        lambda: regard.MultiHead(8, 2)(t(2, 5, 8), key_padding_mask=t(2, 5) > 0),
        [
            "MultiHead has no argument key_padding_mask; ",
            "pass mask=regard.Lengths(lengths), or mask=~key_padding_mask[:, None]: True may attend",
        ],
    ),
    "attn_mask of attend": (
        TypeError,
        lambda: regard.attend(t(5, 8), t(5, 8), attn_mask=t(5, 5)),
        ["attend has no argument attn_mask; pass booleans as mask=, where True may attend, and numbers to be added"],
    ),
    "an argument that nothing has": (
        TypeError,
        lambda: regard.explain(t(5, 8), t(5, 8), beam=3),
        ["explain has no argument beam; help(explain) lists those it has"],
    ),
    "a term of the equation": (
        TypeError,
        lambda: MultiHead(8, 2, normalize=regard.Sparsemax()),
        ["MultiHead has no argument normalize; pass attention=regard.Attention(normalize=...), the equation of all"],
    ),
    "names of torch": (TypeError, lambda: MultiHead(embed_dim=8, num_heads=2), ["no argument embed_dim; it is called"]),
    "causal heads": (
        TypeError,
        lambda: MultiHead(8, 2, causal=True),
        ["MultiHead has no argument causal; pass attention=regard.Attention(mask=regard.Causal()), or mask="],
    ),
    "a causal layer": (TypeError, lambda: Attention(causal=True), ["Attention has no argument causal; pass mask="]),
    "a causal call": (TypeError, call(causal=True), ["attend has no argument causal; pass mask=regard.Causal()"]),
    "a causal window": (
        TypeError,
        lambda: regard.Window(64, causal=True),
        ["Window has no argument causal; leave it out: Window(left) is causal"],
    ),
    "a number as text": (TypeError, lambda: regard.Entmax("1.5"), ["got '1.5'; try alpha=1.5"]),
    "alpha by name": (TypeError, lambda: regard.Entmax("sparse"), ["got 'sparse'; try alpha=1.5"]),
    "another score by its name": (TypeError, call(score="additive"), ["got 'additive'; write score=Additive(...)"]),
    "explain of a model": (
        TypeError,
        lambda: regard.explain(MultiHead(8, 2), Q),
        ["explain is for tensors, got a MultiHead; call layer.explain(...)"],
    ),
    "a name of torch": (AttributeError, lambda: regard.MultiHeadAttention, ["did you mean regard.MultiHead?"]),
    "a name of a paper": (AttributeError, lambda: regard.SENet, ["did you mean regard.gates.SqueezeExcite?"]),
    "a misspelled name": (
        AttributeError,
        lambda: regard.MultiHed,
        ["regard has no MultiHed; did you mean regard.MultiHead?"],
    ),
    "a name of a namespace": (
        AttributeError,
        lambda: regard.SimAM,
        ["regard has no SimAM; did you mean regard.gates.SimAM?"],
    ),
    "a name that is like none": (AttributeError, lambda: regard.xyzzy, ["regard has no xyzzy; dir(regard) lists all"]),
    "lengths beyond the keys": (
        ValueError,
        call(mask=regard.Lengths([9, 4]) & regard.Causal()),
        ["lengths has 9, and there are 5 keys", "positions="],
    ),
    "lengths of another batch": (
        ValueError,
        call(mask=regard.Lengths(torch.tensor([3, 4, 5]))),
        ["lengths, of shape (3)", "here (2)", "reshape it"],
    ),
    "lengths far away": (ValueError, call(mask=regard.Lengths(t(2, device="meta").long())), ["lengths is on meta"]),
    "prefix of another batch": (
        ValueError,
        call(mask=regard.Prefix(torch.tensor([3, 4, 5]))),
        ["length of Prefix, of shape (3)", "here (2)"],
    ),
    "documents of floats": (TypeError, lambda: regard.Documents(t(2, 5)), ["ids must be an integer", "ids.long()"]),
    "documents of a list": (TypeError, lambda: regard.Documents([0, 1]), ["ids must be an integer tensor", "list"]),
    "documents of the queries of floats": (
        TypeError,
        lambda: regard.Documents(t(2, 5).long(), t(2, 3)),
        ["queries must be an integer", "queries.long()"],
    ),
    "more queries than documents": (
        ValueError,
        call(t(2, 7, 4), K, V, mask=regard.Documents(t(2, 5).long())),
        ["ids", "7 queries attend to 5 keys", "Documents(ids, queries="],
    ),
    "documents of another length": (
        ValueError,
        call(mask=regard.Documents(t(2, 4).long())),
        ["ids of Documents, of shape (2, 4)", "here (2, 5)"],
    ),
    # scores
    "dot of two widths": (ValueError, call(Q, t(2, 5, 7)), ["Dot", "(2, 3, 4)", "(2, 5, 7)", "Bilinear(4, 7)"]),
    "cosine of two widths": (ValueError, call(Q, t(2, 5, 7), score=regard.Cosine()), ["Cosine", "Bilinear(4, 7)"]),
    "distance of two widths": (ValueError, call(Q, t(2, 5, 7), score=regard.Distance()), ["Distance", "(2, 5, 7)"]),
    "kernel of two widths": (ValueError, call(Q, t(2, 5, 7), score=regard.scores.Kernel()), ["Kernel", "(2, 5, 7)"]),
    "bilinear, q": (ValueError, call(score=regard.Bilinear(7, 4)), ["q must be 7 wide", "Bilinear(7, 4)", "(2, 3, 4)"]),
    "bilinear, k": (ValueError, call(score=regard.Bilinear(4, 7)), ["k must be 7 wide", "(2, 5, 4)", "width 4"]),
    "additive, q": (ValueError, call(score=regard.Additive(7, 4, 3)), ["q must be 7 wide", "Additive(7, 4, 3)"]),
    "additive, k": (ValueError, call(score=regard.Additive(4, 7, 3)), ["k must be 7 wide", "Additive(4, 7, 3)"]),
    "concat, q": (ValueError, call(score=regard.scores.Concat(7, 4, 3)), ["q must be 7 wide", "Concat(7, 4, 3)"]),
    "concat, k": (ValueError, call(score=regard.scores.Concat(4, 7, 3)), ["k must be 7 wide", "Concat(4, 7, 3)"]),
    "trilinear": (ValueError, call(score=regard.scores.Trilinear(7)), ["q must be 7 wide", "Trilinear"]),
    "location sensitive": (ValueError, call(score=regard.scores.LocationSensitive(4, 7, 3)), ["k must be 7 wide"]),
    "location, q": (ValueError, call(score=regard.scores.Location(7, 9)), ["q must be 7 wide", "Location(7, 9)"]),
    "location, k": (
        ValueError,
        call(score=regard.scores.Location(4, 3)),
        ["at most 3 positions", "(2, 5, 4)", "Location(4, 5)"],
    ),
    "even filters": (
        ValueError,
        lambda: regard.scores.LocationSensitive(4, 4, 3, width=4),
        ["width must be odd", "got 4", "try 5"],
    ),
    "power of three": (ValueError, lambda: regard.Distance(power=3), ["power must be 1", "got 3", "power=2"]),
    "scale of nought": (ValueError, lambda: regard.Distance(scale=0.0), ["scale must be positive", "Distance", "0.0"]),
    "cap of nought": (ValueError, lambda: regard.scores.SoftCap(0.0), ["cap must be positive", "SoftCap", "0.0"]),
    "cosine below nought": (ValueError, lambda: regard.Cosine(-1.0), ["scale must be positive", "Cosine", "-1.0"]),
    "cosine trained from nought": (ValueError, lambda: regard.Cosine(Learnable(0.0)), ["scale must be positive"]),
    "mistyped feature": (ValueError, lambda: regard.scores.Kernel("elo"), ["'elo'", "did you mean 'elu'?", "taylor"]),
    # normalizers and reads
    "temperature of nought": (ValueError, lambda: regard.Softmax(0.0), ["temperature must be positive", "0.0"]),
    "temperature trained from nought": (ValueError, lambda: regard.Softmax(Learnable(-1.0)), ["temperature", "-1.0"]),
    "alpha of one": (ValueError, lambda: regard.Entmax(1.0), ["alpha must be above 1", "1.0", "Softmax()"]),
    "alpha without end": (ValueError, lambda: regard.Entmax(float("inf")), ["alpha", "inf"]),
    "alpha not a number": (ValueError, lambda: regard.Entmax(float("nan")), ["alpha", "nan"]),
    "alpha trained from two": (ValueError, lambda: regard.Entmax(Learnable(2.0)), ["alpha", "2.0", "Learnable(1.5)"]),
    "none of the best": (ValueError, lambda: regard.TopK(0), ["k must be a whole number, 1 or more", "0", "TopK"]),
    "cold gumbel": (ValueError, lambda: regard.Gumbel(0.0), ["temperature must be positive", "Gumbel", "0.0"]),
    # positions
    "odd sinusoids": (ValueError, lambda: regard.Sinusoidal(5), ["dim must be even", "5", "try 6"]),
    "odd rotary": (ValueError, lambda: regard.Rotary(5), ["dim must be even", "5", "try 6"]),
    "mistyped pairs": (ValueError, lambda: regard.Rotary(4, pairs="half"), ["'half'", "did you mean 'halves'?"]),
    "rotary scaling of no range": (
        ValueError,
        lambda: regard.Rotary(4, scaling=regard.positions.RotaryScaling(8.0, 4.0, 4.0, 64)),
        ["scaling must have 0 < low < high", "low=4.0", "try RotaryScaling(8.0, 1.0, 4.0, 8192)"],
    ),
    "rotary scaling by nought": (
        ValueError,
        lambda: regard.Rotary(4, scaling=regard.positions.RotaryScaling(0.0, 1.0, 4.0, 64)),
        ["scaling.factor must be positive", "Rotary"],
    ),
    "base of nought": (ValueError, lambda: regard.Rotary(4, base=0.0), ["base must be positive", "Rotary"]),
    "sinusoids of another width": (ValueError, lambda: regard.Sinusoidal(6)(Q), ["x must be 6 wide", "(2, 3, 4)"]),
    "half waves of another width": (
        ValueError,
        lambda: regard.positions.HalfWave(6)(Q),
        ["x must be 6 wide", "HalfWave(6)"],
    ),
    "rotary of another width": (ValueError, lambda: regard.Rotary(6)(Q), ["x must be 6 wide", "Rotary(6"]),
    "learned of another width": (
        ValueError,
        lambda: regard.positions.LearnedPositions(9, 6)(Q),
        ["x must be 6 wide", "LearnedPositions(9, 6)"],
    ),
    "too long for learned": (
        ValueError,
        lambda: regard.positions.LearnedPositions(5, 4)(Q, start=4),
        ["x ends at position 7", "5 positions", "LearnedPositions(7, 4)"],
    ),
    # memory
    "memory of too few values": (
        ValueError,
        lambda: KVCache(K, t(2, 4, 6)),
        ["(2, 5, 4)", "(2, 4, 6)", "axis -2 counts the positions"],
    ),
    "memory and values": (ValueError, call(Q, KVCache(K, V), V), ["v must be None", "(2, 5, 6)", "leave v out"]),
    "memory shorter than the queries": (
        ValueError,
        call(t(2, 7, 4), KVCache(K, V, torch.arange(5))),
        ["positions must be given", "7 queries", "5 cached"],
    ),
    "memory extended by another width": (
        ValueError,
        lambda: KVCache(K, V).extend(t(2, 1, 3), t(2, 1, 6)),
        ["keys (2, 1, 3)", "(2, 5, 4)", "must agree"],
    ),
    "memory extended by another batch": (
        ValueError,
        lambda: KVCache(K, V).extend(t(2, 1, 4), t(1, 1, 6)),
        ["values (1, 1, 6)", "(2, 5, 6)"],
    ),
    "memory extended without positions": (
        ValueError,
        lambda: KVCache(K, V, torch.arange(5)).extend(t(2, 1, 4), t(2, 1, 6)),
        ["positions must be given to every extend", "pass the positions of the new keys"],
    ),
    "segment below nought": (ValueError, lambda: regard.attn.Segment(-3), ["keep", "-3", "try 3"]),
    # what is asked for
    "log_prob of a soft read": (ValueError, call(need=Need(log_prob=True)), ["log_prob", "WeightedSum()", "Sample()"]),
    "key index of a soft read": (
        ValueError,
        call(need=Need(key_index=True)),
        ["key_index", "WeightedSum()", "Argmax()"],
    ),
    "lse of another": (
        ValueError,
        call(normalize=regard.Sparsemax(), need=Need(lse=True)),
        ["lse", "Sparsemax()", "Softmax()"],
    ),
    "topk of a map": (ValueError, lambda: a_map().topk(6), ["n must be between 1", "5", "got 6"]),
    "topk of none": (ValueError, lambda: a_map().topk(0), ["n must be between 1", "got 0", "try 5"]),
    "pooled to nought": (
        ValueError,
        lambda: a_map().pooled(0, 4),
        ["height must be 1 or more", "0", "pooled(256, 256)"],
    ),
    "pooled to nought, wide": (ValueError, lambda: a_map().pooled(4, 0), ["width must be 1 or more", "0"]),
    "a row that is not there": (IndexError, lambda: a_map()[3], ["row 3", "3 rows", "0 to 2"]),
    # backends
    "mistyped backend": (ValueError, call(backend="fuse"), ["'fuse'", "did you mean 'fused'?", "eager"]),
    "backend that cannot": (
        ValueError,
        call(backend="additive"),
        ["'additive' cannot run this", "Dot", "leave backend out"],
    ),
    # layers
    "heads that do not divide dim": (ValueError, lambda: MultiHead(10, 3), ["dim", "10 over 3 leaves 1", "dim=9"]),
    "heads and kv_heads": (
        ValueError,
        lambda: MultiHead(12, 6, kv_heads=4),
        ["multiple of kv_heads", "6 over 4 leaves 2", "kv_heads=3"],
    ),
    "no dim": (ValueError, lambda: MultiHead(0, 1), ["dim must be a whole number", "MultiHead", "0"]),
    "no heads": (ValueError, lambda: MultiHead(8, 0), ["heads must be a whole number", "0"]),
    "no kv_heads": (ValueError, lambda: MultiHead(8, 2, kv_heads=0), ["kv_heads must be a whole number", "0"]),
    "attentions not as many as heads": (
        ValueError,
        lambda: MultiHead(8, 4, attention=[Attention()] * 3),
        ["attention", "4 heads", "got 3"],
    ),
    "dropout in two places": (
        ValueError,
        lambda: MultiHead(8, 4, attention=Attention(), dropout=0.1),
        ["dropout=0.1", "Attention(..., dropout=0.1)"],
    ),
    "rotary of another head": (
        ValueError,
        lambda: MultiHead(8, 4, rotate=regard.Rotary(4)),
        ["rotate", "width 2", "Rotary(4", "try Rotary(2)"],
    ),
    "heads of a memory and values": (
        ValueError,
        lambda: (m := MultiHead(4, 2))(Q, m.project_kv(K), V),
        ["v must be None", "(2, 5, 6)", "leave v out"],
    ),
    "q of another width": (
        ValueError,
        lambda: MultiHead(8, 2)(Q),
        ["q must be 8 wide", "(2, 3, 4)", "build MultiHead"],
    ),
    "k of another width": (ValueError, lambda: MultiHead(4, 2, key_dim=7)(Q, K), ["k must be 7 wide", "(2, 5, 4)"]),
    "v of another width": (ValueError, lambda: MultiHead(4, 2)(Q, K, V), ["v must be 4 wide", "(2, 5, 6)"]),
    "heads of integers": (TypeError, lambda: MultiHead(4, 2)(Q.long()), ["q must be a floating tensor", "int64"]),
    "keys of integers": (TypeError, lambda: MultiHead(4, 2)(Q, K.long()), ["k must be a floating tensor"]),
    # losses
    "rate of nought": (ValueError, lambda: Baseline(rate=0.0), ["rate", "0.0", "try 0.1"]),
    "weights without steps": (ValueError, lambda: doubly_stochastic(t(3)), ["weights", "(…, steps, keys)", "(3)"]),
    "pairs of vectors of other numbers": (
        ValueError,
        lambda: info_nce(t(3, 2), t(4, 2)),
        ["a (3, 2) and b (4, 2) must be the vectors of as many texts", "give one of each per pair"],
    ),
    "a temperature of no pairs": (
        ValueError,
        lambda: info_nce(t(3, 2), t(3, 2), 0.0),
        ["temperature must be positive and finite, got 0.0; try temperature=0.05"],
    ),
    "pairs that are the same, of other numbers": (
        ValueError,
        lambda: info_nce(t(3, 2), t(3, 2), same=t(3, 2) > 0),
        ["same must be a boolean tensor of shape (3, 3)", "compare every pair with every pair"],
    ),
    "weights without hops": (ValueError, lambda: frobenius_penalty(t(3)), ["weights", "(…, hops, tokens)", "(3)"]),
    "steps that are not those": (
        ValueError,
        lambda: doubly_stochastic(t(2, 3, 5), t(2, 5).bool()),
        ["keep must be one per step", "(2, 3, 5)", "(2, 5)", "targets != PAD"],
    ),
    "reward of another shape": (
        ValueError,
        lambda: reinforce(t(2, 3), t(3)),
        ["reward (3)", "log_prob (2, 3)", "give a reward to each"],
    ),
    "entropy that is missing": (
        ValueError,
        lambda: reinforce(t(2), t(2), entropy_weight=0.5),
        ["entropy must be given", "entropy_weight=0.5", "Need(entropy=True)"],
    ),
    "states as wide as no vocabulary": (
        ValueError,
        lambda: linear_cross_entropy(t(3, 4), t(7, 5), torch.arange(3)),
        ["states must be as wide as weight", "(3, 4)", "(7, 5)", "nn.Linear(4, 7)"],
    ),
    "a bias of another vocabulary": (
        ValueError,
        lambda: linear_cross_entropy(t(3, 4), t(7, 4), torch.arange(3), bias=t(5)),
        ["bias must be one number per word", "(5)", "(7, 4)", "nn.Linear(4, 7)"],
    ),
    "targets of another shape": (
        ValueError,
        lambda: linear_cross_entropy(t(3, 4), t(7, 4), torch.arange(2)),
        ["targets must be one per row", "(2)", "(3, 4)", "states[keep]"],
    ),
    "targets of half the bits": (
        TypeError,
        lambda: linear_cross_entropy(t(3, 4), t(7, 4), torch.arange(3).int()),
        ["targets must be int64", "torch.int32", "targets.long()"],
    ),
    "a target that is no word": (
        ValueError,
        lambda: linear_cross_entropy(t(3, 4), t(7, 4), torch.tensor([1, -100, 2])),
        ["targets must be words 0 to 6", "-100", "targets[keep]"],
    ),
    "smoothing all": (
        ValueError,
        lambda: linear_cross_entropy(t(3, 4), t(7, 4), torch.arange(3), smoothing=1.0),
        ["smoothing", "1.0", "try 0.1"],
    ),
    "a second backward of the likelihood": (
        RuntimeError,
        twice,
        ["one backward pass", "call linear_cross_entropy again"],
    ),
    # what would otherwise be torch's own error, or no error at all
    "alibi of other heads": (ValueError, call(t(2, 3, 3, 4), t(2, 3, 5, 4), bias=regard.ALiBi(4)), ["ALiBi", "4", "3"]),
    "alibi without heads": (ValueError, call(t(3, 4), t(5, 4), bias=regard.ALiBi(4)), ["ALiBi", "4"]),
    "trained for other heads": (
        ValueError,
        call(t(2, 3, 3, 4), t(2, 3, 5, 4), normalize=regard.Softmax(Learnable(1.0, heads=4))),
        ["heads", "4", "3"],
    ),
    "memory of another width": (ValueError, call(Q, KVCache(t(2, 5, 7), V)), ["(2, 3, 4)", "(2, 5, 7)"]),
    "bias far away": (ValueError, call(bias=t(3, 5, device="meta")), ["bias is on meta", ".to('cpu')"]),
    "documents far away": (ValueError, call(mask=regard.Documents(t(2, 5, device="meta").long())), ["on meta"]),
    "a score by its name": (TypeError, call(score="dot"), ["score must be a Score", "'dot'", "score=Dot()"]),
    "the class of a normalizer": (
        TypeError,
        call(normalize=regard.Softmax),
        ["normalize must be a Normalizer", "the class Softmax", "normalize=Softmax("],
    ),
    "a read by its name": (TypeError, call(read="mix"), ["read must be a Read", "'mix'", "read=WeightedSum()"]),
    "a bias that is a number": (TypeError, call(bias=1.0), ["bias must be a Bias", "1.0", "or a tensor"]),
    "positions of too few for heads": (
        ValueError,
        lambda: MultiHead(4, 2)(Q, positions=(torch.arange(2), torch.arange(3))),
        ["positions", "3 queries and 3 keys", "(2) and (3)"],
    ),
    "baseline of another shape": (
        ValueError,
        lambda: reinforce(t(3), t(3), t(3, 1)),
        ["baseline (3, 1)", "reward (3)", "squeeze it"],
    ),
    "prefix of floats": (TypeError, lambda: regard.Prefix(2.5), ["length must be an integer", "float", "Prefix(8)"]),
    "width as a word": (TypeError, lambda: regard.Additive(8, 8, "8"), ["hidden must be a whole number", "'8'"]),
    "width of nought": (ValueError, lambda: regard.Bilinear(0, 8), ["query_dim must be a whole number", "got 0"]),
    "scale as a word": (TypeError, lambda: regard.Dot("x"), ["scale must be a number for Dot", "'x'"]),
    "alpha as a word": (TypeError, lambda: regard.Entmax("1.5"), ["alpha must be a number for Entmax", "'1.5'"]),
    "window of a fraction": (TypeError, lambda: regard.Window(1.5), ["left must be a whole number", "1.5"]),
    "a backend by number": (TypeError, call(backend=3), ["backend must be a name", "3", "eager"]),
    "the class of a mask": (TypeError, call(mask=regard.Causal), ["mask must be a Mask", "the class Causal"]),
    "a layer of another type": (
        TypeError,
        lambda: MultiHead(4, 2)(Q.double()),
        ["MultiHead has parameters of torch.float32", "torch.float64", "layer.to(torch.float64)"],
    ),
    "a score of another type": (
        TypeError,
        call(Q.double(), K.double(), V.double(), score=regard.Additive(4, 4, 3)),
        ["Additive(4, 4, 3) has parameters of torch.float32", "torch.float64"],
    ),
    "a layer far away": (
        ValueError,
        lambda: MultiHead(4, 2).to("meta")(Q),
        ["MultiHead is on meta", "layer.to('cpu')"],
    ),
    "a score of the whole width in heads": (
        ValueError,
        lambda: MultiHead(4, 2, attention=Attention(regard.Additive(4, 4, 3)))(Q),
        ["k must be 4 wide for Additive(4, 4, 3)", "(2, 2, 3, 2)"],
    ),
    "a layer given a name": (TypeError, lambda: Attention("additive"), ["score must be a Score", "'additive'"]),
    "rows beyond a map": (IndexError, lambda: a_map().topk(1, rows=[99]), ["rows [99]", "3 rows", "0 to 2"]),
    "a bias for the projections": (
        TypeError,
        lambda: MultiHead(4, 2, bias=regard.ALiBi(2)),
        ["bias says whether", "ALiBi(", "attention=Attention(bias=...)"],
    ),
    "a normalizer for attention": (
        TypeError,
        lambda: MultiHead(4, 2, attention=regard.Sparsemax()),
        ["attention must be an Attention", "Sparsemax()", "attention=Attention(...)"],
    ),
    "rotate as a flag": (TypeError, lambda: MultiHead(4, 2, rotate=True), ["rotate must be a Rotary", "True"]),
    "need as a dict": (TypeError, call(need={"weights": True}), ["need must be a Need", "Need(weights=True)"]),
    "keys to remember of another width": (
        ValueError,
        lambda: Attention(regard.Bilinear(4, 7)).project_kv(K),
        ["k must be 7 wide", "(2, 5, 4)"],
    ),
    "heads remember another width": (
        ValueError,
        lambda: MultiHead(4, 2).project_kv(V),
        ["k must be 4 wide", "(2, 5, 6)"],
    ),
    "memory extended by another type": (
        TypeError,
        lambda: KVCache(K, V).extend(K.double(), V.double()),
        ["keys of torch.float64", "torch.float32", ".to(cache.keys)"],
    ),
    "three indices of a map": (IndexError, lambda: a_map()[0, 0, 0], ["[rows, columns]", "3 indices", "pick(sample"]),
    "a sample that is not there": (IndexError, lambda: a_map().pick(2), ["2 is not on axis 0", "has 2", "use 0 to 1"]),
    "heads of a term that may know them": (
        ValueError,
        lambda: map_of_heads().select_heads([1]),
        ["heads=[1] cannot be taken", "Elsewhere()", "leave heads out"],
    ),
    "weights of one axis": (
        TypeError,
        lambda: DenseMap(t(3)),
        ["weights must be floating", "(3)", "weights.unsqueeze(-2)"],
    ),
    "too much picked": (IndexError, lambda: a_map().pick(0, 0), ["at most the 1 leading", "got 2"]),
    "remembered places beyond the last": (
        ValueError,
        lambda: MultiHead(4, 2, attention=Attention(regard.scores.Location(2, 4)))(Q, K),
        ["at most 4 positions", "Location(2, 5)"],
    ),
    "more real scores than fake": (
        ValueError,
        lambda: regard.losses.hinge(t(3), t(2)),
        ["real (3) and fake (2)", "as many images", "generate one per real"],
    ),
    "hops of one axis": (
        ValueError,
        lambda: regard.losses.frobenius_penalty(t(3)),
        ["weights must be (…, hops, tokens)", "got (3)", "Need(weights=True)"],
    ),
    "cutoffs that do not increase": (
        ValueError,
        lambda: AdaptiveSoftmax(8, 20, [5, 5]),
        ["cutoffs must increase", "20 words", "got [5, 5]", "try cutoffs=[2]"],
    ),
    "smoothing of an adaptive softmax": (
        ValueError,
        lambda: AdaptiveSoftmax(8, 20, [5]).token_loss(t(3, 8), torch.arange(3), smoothing=0.1),
        ["smoothing must be 0", "got 0.1", "build it without cutoffs"],
    ),
    "positions of floats": (TypeError, call(positions=(t(3), t(5))), ["positions", "float32"]),
}


@for_each("name", BAD)
def test_the_sentence_says_what_where_and_the_way_out(name: str) -> None:
    kind, act, words = BAD[name]
    with pytest.raises(kind) as caught:
        act()
    said = str(caught.value)
    for word in words:
        assert word in said, said


# files and folders of the package
SOURCES = (
    "attn/backends",
    "attn/call.py",
    "attn/call_slicing.py",
    "common/checks.py",
    "attn/functional.py",
    "attn/kv_cache.py",
    "attn/layer.py",
    "attn/maps",
    "attn/multihead.py",
    "attn/nonfinite.py",
    "attn/call_builder.py",
    "attn/terms",
    "common/suggestions.py",
    "losses",
)


def test_every_sentence_is_read_here() -> None:
    """Each `raise` in these sources says something that one of the cases above has read."""
    said = []
    for _, act, _ in BAD.values():
        try:
            act()
        except (ValueError, TypeError, IndexError, RuntimeError, AttributeError) as error:
            said.append(str(error))
    root = pathlib.Path(regard.__file__).parent
    files = [f for name in SOURCES for f in ((root / name).rglob("*.py") if (root / name).is_dir() else [root / name])]
    for file in files:
        source = file.read_text()
        for start in re.finditer(r"\n\s+raise (\w+)\(", source):
            if start[1] == "AssertionError":
                continue
            sentence = re.search(r"f?\"((?:[^\"\\]|\\.)*)\"", source[start.end() :])
            fixed = max(re.split(r"\{[^{}]*\}", sentence[1]), key=len)
            assert any(fixed in text for text in said), f"{file.name}: nobody reads {sentence[1]!r}"


def test_models_folders_and_devices_are_checked() -> None:
    with pytest.raises(TypeError, match="model must be a Module, got .*; write model=your model"):
        regard.insert(3, "se", after="0")
    with pytest.raises(TypeError, match="model must be a Module, got .*; write model=your model"):
        regard.remove(5)
    with pytest.raises(TypeError, match=r"folder must be the path of a run, got 3; try regard.load\('runs/en-de'\)"):
        regard.load(3)
    with pytest.raises(ValueError, match="unknown device 'gpu'; known are: auto, cuda, mps, cpu"):
        join("gpu")
