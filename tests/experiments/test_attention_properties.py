"""The measures of `regard compare --properties`: of heads, of known features, and none where nothing attends."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cli.conftest import train

from regard.attn.maps.attention_map import DenseMap
from regard.common import json_files
from regard.data.embedded import recall
from regard.data.text.tokenizer import Tokenizer
from regard.experiments.attention_properties import _share, attention_properties, measured_properties
from regard.experiments.comparison import write_results
from regard.inference.predictor import predict_recorded
from regard.models.self_attentive import SelfAttentive
from regard.recording.recorded_map import HARD, RecordedMap
from regard.tasks.classify_text.options import ClassifyText
from regard.tasks.classify_text.predictor import ClassifyTextPredictor
from regard.tasks.loading import load_run
from regard.training.config import TrainingConfig


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compared")
    for gate in ("se", "simam"):
        sizes = f"--gate {gate} --width 2 --depths 1 --batch 400 --threads 1 --steps 1"
        train(folder / gate, "classify-image", sizes)
    return folder


def test_selectivity_is_the_share_on_the_answer(tmp_path: Path) -> None:
    task = ClassifyText.of(data="recall").load()
    torch.manual_seed(0)
    letters = "".join(map(chr, range(48, 123)))
    tokenizer = Tokenizer.train("characters", [letters], 100)
    model = SelfAttentive(len(tokenizer), 10, width=5, hidden=6, hops=3, feed=7).eval()
    predictor = ClassifyTextPredictor(model, tokenizer, recall.CLASSES)
    known, shares = task.known_features(predictor, 32), []
    assert len(known) == 32
    for text, truth in known:
        assert np.flatnonzero(truth).tolist() == [recall.answer_place(text)]
        _, recording = predict_recorded(predictor, [text])
        shares.append(recording[0].weights.dense()[..., recall.answer_place(text)].double().mean())
    found = measured_properties(task, predictor, tmp_path)
    assert found["selectivity, %"] == pytest.approx(100 * float(torch.stack(shares).mean()), rel=1e-5)
    assert found["true features, %"] == pytest.approx(100 / len(known[0][0]))


def test_maps_of_tokens_and_of_positions() -> None:
    weights = torch.tensor([[[0.2, 0.5, 0.3], [0.4, 0.35, 0.25]]])
    soft = RecordedMap("a", "cross", DenseMap(weights))
    answer = torch.tensor([False, True, False])
    assert _share(soft, answer) == pytest.approx(42.5)
    assert _share(replace(soft, captured_from=HARD), answer) == 50.0
    assert _share(soft, torch.tensor([True, False])) is None
    ink = torch.tensor([[True], [False], [True]])
    assert _share(soft, ink) is None
    assert _share(replace(soft, kind="gate", grid=(3, 1)), ink) == pytest.approx(57.5)
    # a gate of channels cannot tell positions apart
    assert _share(RecordedMap("a", "gate", DenseMap(torch.rand(1, 1, 4, 1))), ink) == pytest.approx(200 / 3)


def test_gates_on_the_ink_of_digits(gates: Path) -> None:
    se, simam = attention_properties(gates / "se"), attention_properties(gates / "simam")
    assert se["selectivity, %"] == pytest.approx(se["true features, %"])
    assert 30 < simam["true features, %"] < 70
    assert simam["selectivity, %"] != pytest.approx(simam["true features, %"], abs=1e-3)


def test_heads_of_a_translator_and_no_attention(trained: Path, unattended: Path, pairs: Path, tmp_path: Path) -> None:
    assert attention_properties(unattended) == {}
    assert attention_properties(trained) == {}  # one head
    sizes = "--model transformer --tokens words --width 8 --heads 2 --layers 1 --feed 8 --batch 96 --steps 1"
    found = attention_properties(train(tmp_path / "run", "translate", f"{sizes} --threads 1", "--train", pairs))
    assert list(found) == ["heads disagree", "effective heads"]
    assert 0 < found["heads disagree"] < 1
    assert 1 <= found["effective heads"] <= 2


def test_columns_of_the_table(gates: Path) -> None:
    results = {gate: {"done": True, "diverged": False, "peak_bytes": 0} for gate in ("se", "simam")}
    (gates / "results.json").write_text(json.dumps(results), encoding="utf-8")
    base = load_run(gates / "se", "best", "cpu").config
    table = write_results(base, gates, TrainingConfig(steps=1), properties=True).table()
    assert "| selectivity, % | true features, % |" in table
    assert json_files.parse((gates / "results.json").read_bytes())["se"]["scores"]["selectivity, %"] > 0
    assert "selectivity" not in write_results(base, gates, TrainingConfig(steps=1)).table()
