"""Steps of a universal Transformer by the length of its input."""

from typing import Any

import torch

from benchmarks.experiments.runner import TrainedRun
from regard.common.eval_mode import eval_mode
from regard.data.embedded import EMBEDDED
from regard.data.text.batching import source_batch
from regard.tasks.shared.text_generation import shift_right

_COUNT = 200


def by_length(run: TrainedRun) -> dict[str, Any]:
    """The mean steps of a token of the source and of the target, for sequences of 2, 5 and 8 symbols."""
    of_length = EMBEDDED[run.config.data].of_length
    assert of_length is not None
    translator, values = run.predictor, dict[str, Any]()
    for length in (2, 5, 8):
        pairs = of_length(run.seed + 1000, _COUNT, length, set())
        source, lengths = source_batch(translator.vocabularies.source.encode(pairs.source))
        answers = translator.vocabularies.target.encode(pairs.target)
        targets = [[*answer, translator.vocabularies.target.special.eos] for answer in answers]
        with eval_mode(translator.model):
            steps = translator.model.steps(source, lengths, shift_right(targets))
        means = (float(each[each > 0].to(torch.float64).mean()) for each in steps)
        values[f"steps {length}"] = dict(zip(("source", "target"), means, strict=True))
    return values
