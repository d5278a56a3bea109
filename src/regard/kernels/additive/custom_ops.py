"""The additive kernels as custom operators, for torch.compile, torch.export and dispatch modes."""

from torch import Tensor

from regard.kernels.additive import compute
from regard.kernels.operators import like_inputs, operator, register_gradient

_SUMMANDS = "Tensor a, Tensor b, Tensor w"


def _pairs(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(a.shape[0], a.shape[1], b.shape[1])


def _rows(a: Tensor, *width: int) -> Tensor:
    return a.new_empty(a.shape[0], a.shape[1], *width)


scores = operator(
    "additive_scores",
    f"({_SUMMANDS}, bool? native) -> Tensor",
    compute.scores_forward,
    lambda a, b, *_: _pairs(a, b),
)
scores_backward = operator(
    "additive_scores_backward",
    f"({_SUMMANDS}, Tensor grad, bool? native) -> (Tensor, Tensor, Tensor)",
    compute.scores_backward,
    like_inputs(0, 1, 2),
)
weights = operator(
    "additive_weights",
    f"({_SUMMANDS}, Tensor? allowed, bool? native) -> (Tensor, Tensor)",
    compute.weights_forward,
    lambda a, b, *_: (_pairs(a, b), _rows(a)),
)
weights_backward = operator(
    "additive_weights_backward",
    f"({_SUMMANDS}, Tensor out, Tensor grad, Tensor grad_lse, bool? native) -> (Tensor, Tensor, Tensor)",
    compute.weights_backward,
    like_inputs(0, 1, 2),
)
attend = operator(
    "additive_attend",
    f"({_SUMMANDS}, Tensor v, Tensor? allowed, bool? native) -> (Tensor, Tensor)",
    compute.attend_forward,
    lambda a, b, w, v, *_: (_rows(a, v.shape[2]), _rows(a)),
)
attend_backward = operator(
    "additive_attend_backward",
    f"({_SUMMANDS}, Tensor v, Tensor? allowed, Tensor grad, Tensor grad_lse, bool? native) -> "
    "(Tensor, Tensor, Tensor, Tensor)",
    compute.attend_backward,
    like_inputs(0, 1, 2, 3),
)

register_gradient(scores, scores_backward, 3, slice(0), (0, 1, 2))
register_gradient(weights, weights_backward, 3, slice(1), (0, 1, 2))
register_gradient(attend, attend_backward, 5, slice(0), (0, 1, 2, 3))
