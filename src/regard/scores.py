"""Scores: how well a query matches a key."""

from regard.attn.terms.distance import *
from regard.attn.terms.score import *
from regard.attn.terms.scores.general import *
from regard.attn.terms.scores.graph_score import *
from regard.attn.terms.scores.random_features import *
from regard.attn.terms.soft_cap import *
from regard.attn.terms.talking_heads import TalkingScores as TalkingScores
from regard.attn.terms.uniform import *
