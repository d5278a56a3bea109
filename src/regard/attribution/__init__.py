"""Attribution of the outputs of classifiers to tokens: frozen values that `regard.attribute` runs.

result = regard.attribute(predictor, "a good film", "good", "integrated-gradients")
"""

from regard.attribution.adversarial_map import AdversarialMap
from regard.attribution.attention import AttentionRelevance, AttentionRollout, MaximumFlow, RawAttention
from regard.attribution.attribute import Attribution
from regard.attribution.base import AttributionMethod, Completeness
from regard.attribution.catalogue import METHODS
from regard.attribution.faithfulness import Faithfulness, FaithfulnessReport
from regard.attribution.gradients import GradientInput, IntegratedGradients
from regard.attribution.removal import REMOVALS, LeaveOneOut
from regard.attribution.transformers_classifier import TransformersClassifier

__all__ = [
    "AdversarialMap",
    "AttentionRelevance",
    "AttentionRollout",
    "Attribution",
    "AttributionMethod",
    "Completeness",
    "Faithfulness",
    "FaithfulnessReport",
    "GradientInput",
    "IntegratedGradients",
    "LeaveOneOut",
    "METHODS",
    "MaximumFlow",
    "REMOVALS",
    "RawAttention",
    "TransformersClassifier",
]
