"""METHODS: attribution methods by name, with their usual choices."""

from regard.attribution.attention import AttentionRelevance, AttentionRollout, MaximumFlow, RawAttention
from regard.attribution.base import AttributionMethod
from regard.attribution.gradients import GradientInput, IntegratedGradients
from regard.attribution.removal import LeaveOneOut

METHODS: dict[str, AttributionMethod] = {
    "attention": RawAttention(),
    "rollout": AttentionRollout(),
    "flow": MaximumFlow(),
    "relevance": AttentionRelevance(),
    "gradient": GradientInput(),
    "integrated-gradients": IntegratedGradients(),
    "leave-one-out": LeaveOneOut(),
    "masked-keys": LeaveOneOut("mask-keys"),
}
