"""METHODS: attribution methods by name, with their usual choices."""

from regard.attribution.attention import AttentionRelevance, AttentionRollout, MaximumFlow, RawAttention
from regard.attribution.base import AttributionMethod
from regard.attribution.erasure import LeaveOneOut
from regard.attribution.gradients import GradientInput, IntegratedGradients

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
