"""The public names of this package and where each is defined."""

from .analysis.diversity import HeadDiversity as HeadDiversity
from .analysis.words import Words as Words
from .recorded_map import RecordedMap as RecordedMap
from .recording import Recording as Recording
