"""Helpers for mechanisms that compute their own weights: checked calls, score matrices, reading by weights."""

from torch import Tensor, nn

from regard.attn import observer
from regard.attn.call import Attended, AttentionCall, AttentionInputs, Need, Terms
from regard.attn.call_builder import build_call
from regard.attn.functional import set_rows_nan
from regard.attn.kv_cache import KVCache
from regard.attn.terms.mask import Mask
from regard.attn.terms.position import Positions
from regard.attn.terms.read import entropy, weighted_sum
from regard.attn.terms.score import Score, TanhScore, compare
from regard.common import checks
from regard.kernels import additive
from regard.kernels.dispatch import in_functorch_transform
from regard.kernels.precision import widen


class _Bare(Score):
    """The score of a call whose q and k are compared by the mechanism itself."""

    def compare(self, queries: Tensor, keys: Tensor) -> Tensor:
        raise AssertionError("a bare call is compared by its mechanism")


_BARE = Terms(_Bare())


def build_bare_call(
    q: Tensor, k: Tensor | KVCache, v: Tensor | None, mask: Mask | Tensor | None, positions: Positions | None = None
) -> tuple[AttentionCall, Tensor | None]:
    """The call without projections, and the rows that see a NaN or inf (None: no row)."""
    return build_call(AttentionInputs(q, k, v, mask, positions), _BARE)


def score_pairs(score: Score, queries: Tensor, keys: Tensor) -> Tensor:  # "*b q c", "*b k c" -> "*b q k"
    """The scores of projected queries and keys; tanh scores are computed by the additive kernel."""
    if isinstance(score, TanhScore) and not in_functorch_transform():
        queries = widen(queries)
        return additive.scores(queries, keys, score.energy.to(queries.dtype))
    return compare(score, *score.operands(queries, keys))


def score_matrix(score: Score, call: AttentionCall, cached: bool) -> Tensor:  # -> "*b q k"
    """score(q, k) of a bare call; with `cached`, its keys are already projected."""
    score.check(call.q, None if cached else call.keys)
    keys = call.keys if cached else score.keys(call.keys)
    return score_pairs(score, score.queries(call.q), call.expand_kv_heads(keys))


def whole_mask(call: AttentionCall) -> Tensor | None:  # -> bool "*b q k"
    """The mask expanded to all axes of the scores."""
    allowed = call.allowed()
    return None if allowed is None else allowed.expand(*call.batch, call.q.shape[-2], call.keys.shape[-2])


def read_by_weights(
    call: AttentionCall, weights: Tensor, nonfinite_rows: Tensor | None, need: Need, owner: nn.Module
) -> Attended:
    """Mixes the values by these weights and returns the requested results."""
    for name in ("log_prob", "lse", "map", "key_index", "scores"):
        if getattr(need, name):
            raise ValueError(
                f"{name} is not available from {type(owner).__name__}, which computes its own weights; ask for weights"
            )
    result = Attended(
        mix(weights, call.expand_kv_heads(call.v), owner),
        weights=weights.to(call.v.dtype) if need.weights else None,
        entropy=entropy(weights) if need.entropy else None,
    )
    return result if nonfinite_rows is None else set_rows_nan(result, nonfinite_rows)


def mix(weights: Tensor, v: Tensor, owner: nn.Module) -> Tensor:  # "*b q k", "*b k v" -> "*b q v"
    """weights · v, of half types in float32; reported to the current observer."""
    attention_observer = observer.current_observer()
    if attention_observer is None:
        return weighted_sum(weights, v)
    wide = widen(v)
    return attention_observer.mix(owner, weights.to(wide.dtype), wide).to(v.dtype)


def no_values(v: Tensor | None, owner: str) -> None:
    """Raises if values are passed to a mechanism that reads the keys themselves."""
    if v is not None:
        raise ValueError(f"v must be None for {owner}, which reads k itself, got v {checks.shape(v)}; leave v out")


def check_one_step(q: Tensor) -> None:
    """Raises unless q is a single query."""
    checks.floating("q", q)
    if q.shape[-2] != 1:
        raise ValueError(
            f"q must be one step, (*b, 1, d), got {checks.shape(q)}; pass q[..., :1, :] or call the layer for all steps"
        )
