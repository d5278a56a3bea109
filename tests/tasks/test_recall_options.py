"""The options of the data set recall, in both tasks that have it."""

from pathlib import Path

import numpy as np
import pytest

from regard.tasks.classify_text.data import read
from regard.tasks.classify_text.options import ClassifyText
from regard.tasks.language_model import options
from regard.tasks.language_model.options import EvaluateLanguageModel, LanguageModelConfig
from regard.tasks.language_model.scoring import TokenScores, answer_nll
from regard.training.config import TrainingConfig
from regard.training.fit import fit


@pytest.mark.parametrize("task", [ClassifyText, LanguageModelConfig])
def test_the_sizes_belong_to_recall(task: type[ClassifyText] | type[LanguageModelConfig]) -> None:
    config = task.of(data="recall", keys=3)
    assert config.recall_sizes == {"distance": 16, "nearest": None, "keys": 3, "distractors": 0}
    assert task.from_json(config.to_json()) == config
    assert task.of().recall_sizes == {}
    with pytest.raises(ValueError, match="^keys=3 belongs to data='recall', not to "):
        task.of(keys=3)
    with pytest.raises(ValueError, match="^distance=5 belongs to data='recall', not to "):
        task.of(train=Path("own.txt"), distance=5)
    with pytest.raises(ValueError, match="^nearest must be 3 or more, got 1; try nearest=3$"):
        task.of(data="recall", nearest=1)
    with pytest.raises(ValueError, match="^distance must be at most 10000, got 10001; try distance=16$"):
        task.of(data="recall", distance=10_001)
    with pytest.raises(
        ValueError,
        match="^tokens='bpe' would join an answer with its neighbours, and data='recall' asks for single characters; "
        "try tokens='characters'$",
    ):
        task.of(data="recall", tokens="bpe")


def test_classified_strings_have_the_sizes() -> None:
    splits = read(ClassifyText.of(data="recall", distance=5, keys=2, distractors=1, seed=3))
    assert splits.train.classes == tuple("0123456789")
    assert {len(text) for text in splits.train.texts} == {4 + 2 + 1 + 1 + 5}


def test_modelled_strings_are_held_out_by_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_STRINGS", 1000)
    splits = LanguageModelConfig.of(data="recall", valid_share=0.01, distance=4).embedded_splits()
    train, valid = (set(text.splitlines()) for (text,) in splits)
    assert len(valid) == 10
    assert len(train) == 990
    assert train.isdisjoint(valid)


def test_answers_are_scored_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_STRINGS", 1000)
    # the end of a line is token 1, and stands behind answers 7 and 8
    stream = np.array([0, 5, 7, 1, 6, 8, 1], np.int32)
    scores = TokenScores(np.array([1.0, 2.0, 3.0, 4.0, 6.0, 5.0]), np.arange(6))
    assert answer_nll(scores, stream, 1) == 4.0
    config = LanguageModelConfig.of(data="recall", distance=4, width=8, heads=1, layers=1, valid_share=0.01)
    list(fit(config, tmp_path / "run", TrainingConfig(steps=1, validate_every=1, save_every=1, threads=1)))
    task = config.load()
    predictor = task.predictor(tmp_path / "run")
    evaluation = task.evaluate(predictor, tmp_path / "run", EvaluateLanguageModel(), lambda *_: None)
    assert 0 < evaluation.facts["answer_nll"] < 10
    assert evaluation.notes[-1].endswith("nats each, 2.303 by chance")
