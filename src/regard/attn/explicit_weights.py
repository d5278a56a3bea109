"""For uses that make the weights themselves: the call checked, its scores in one matrix, and the weights read."""

from torch import Tensor, nn

from regard.attn import checks, observer
from regard.attn.call import Attended, AttentionCall, AttentionInputs, Need, Terms
from regard.attn.functional import poisoned
from regard.attn.kv_cache import KVCache
from regard.attn.resolve import resolve
from regard.attn.terms.mask import Mask
from regard.attn.terms.position import Positions
from regard.attn.terms.read import entropy
from regard.attn.terms.score import Score, TanhScore
from regard.kernels import additive
from regard.kernels.dispatch import in_functorch_transform


class _Bare(Score):
    """q and k as they came: the score of a call that is compared elsewhere."""

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        raise AssertionError("a bare call is compared by its use")


_BARE = Terms(_Bare())


def looked(
    q: Tensor, k: Tensor | KVCache, v: Tensor | None, mask: Mask | Tensor | None, positions: Positions | None = None
) -> tuple[AttentionCall, Tensor | None]:
    """The call with nothing projected, and which rows look at something that is not a number (None: none)."""
    return resolve(AttentionInputs(q, k, v, mask, positions), _BARE)


def compared(score: Score, queries: Tensor, keys: Tensor) -> Tensor:  # "*b q c", "*b k c" -> "*b q k"
    """The scores of projected queries and keys; those that are a tanh by their kernel."""
    if isinstance(score, TanhScore) and not in_functorch_transform():
        return additive.scores(queries, keys, score.energy.to(queries.dtype))
    return score.compare(queries, keys)


def matrix(score: Score, call: AttentionCall, kept: bool) -> Tensor:  # -> "*b q k"
    """score(q, k) of a bare call, whose keys were projected before if they were `kept`."""
    score.check(call.q, None if kept else call.keys)
    keys = call.keys if kept else score.keys(call.keys)
    return compared(score, score.queries(call.q), call.spread(keys))


def whole_mask(call: AttentionCall) -> Tensor | None:  # -> bool "*b q k"
    """The mask with all its axes."""
    allowed = call.allowed()
    return None if allowed is None else allowed.expand(*call.batch, call.q.shape[-2], call.keys.shape[-2])


def attended(call: AttentionCall, weights: Tensor, felt: Tensor | None, need: Need, owner: nn.Module) -> Attended:
    """The values mixed by these weights, and what else was asked for."""
    for name in ("log_prob", "lse", "map", "place"):
        if getattr(need, name):
            raise ValueError(
                f"{name} is not known to {type(owner).__name__}, which mixes by weights of its own; ask for weights"
            )
    kept = weights.to(call.v.dtype)
    got = Attended(
        mixed(kept, call.spread(call.v), owner),
        weights=kept if need.weights else None,
        entropy=entropy(weights) if need.entropy else None,
    )
    return got if felt is None else poisoned(got, felt)


def mixed(weights: Tensor, v: Tensor, owner: nn.Module) -> Tensor:  # "*b q k", "*b k v" -> "*b q v"
    """weights · v, heard where somebody listens."""
    ear = observer.listener()
    return weights @ v if ear is None else ear.mixed(owner, weights, v)


def no_values(v: Tensor | None, owner: str) -> None:
    """`owner` reads the keys themselves."""
    if v is not None:
        raise ValueError(f"v must be None for {owner}, which reads k itself, got v {checks.shape(v)}; leave v out")


def one_step(q: Tensor) -> None:
    """q is one query."""
    checks.floating("q", q)
    if q.shape[-2] != 1:
        raise ValueError(
            f"q must be one step, (*b, 1, d), got {checks.shape(q)}; pass q[..., :1, :] or call the layer for all steps"
        )
