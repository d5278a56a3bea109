"""The recorder sweep: tiny models of transformers' classes, their verdicts, the limits, and the page of the result."""

import signal
from pathlib import Path

import pytest
import torch
from benchmarks.timing import Effort
from benchmarks.zoo import (
    interface_page,
    interface_speed,
    interface_sweep,
    recorder_page,
    recorder_sweep,
    sweep,
    tiny_models,
)
from benchmarks.zoo.interface_page import Interfaced
from benchmarks.zoo.recorder_page import Recorded
from benchmarks.zoo.recorder_sweep import has_rows, matches, try_class
from benchmarks.zoo.sweep import Outcome, Sweep
from tests.for_each import for_each

from regard.interop import transformers_attention

pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")
RESULT = sweep.RESULTS / "recorder.json"


@for_each(
    ("name", "verdict"),
    [
        ("BertModel", "exact"),
        ("LlamaForCausalLM", "exact"),
        ("T5Model", "exact"),
        ("GPTNeoModel", "exact"),
        ("ViTModel", "exact"),
        ("LongformerModel", "assembled"),
        ("LEDModel", "assembled"),
        ("PegasusXModel", "assembled"),
        ("MiniMaxModel", "warned"),
        ("CpmAntModel", "exact"),
        ("ResNetModel", "no attention"),
    ],
)
def test_a_few_classes(name: str, verdict: str) -> None:
    outcome = try_class(name, tiny_models.class_names()[name])
    assert outcome.verdict == verdict, outcome.reason
    assert verdict == "no attention" or outcome.maps


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("BertModel", "equal"), ("Gemma2ForCausalLM", "equal"), ("AXK2Model", "equal"), ("ResNetModel", "not used")],
)
def test_a_few_classes_on_regard(name: str, verdict: str) -> None:
    outcome = interface_sweep.try_class(name, tiny_models.class_names()[name])
    assert outcome.verdict == verdict, outcome.reason


def test_a_part_without_a_term_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise NotImplementedError("BertSelfAttention attends by a paged cache")

    monkeypatch.setattr(transformers_attention, "_refuse_unsupported", refuse)
    outcome = interface_sweep.try_class("BertModel", "bert")
    assert (outcome.verdict, outcome.reason) == ("refused", "BertSelfAttention attends by a paged cache")


def test_outputs_on_regard_that_differ_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(ours: object) -> object:
        def attention(*args: object, **kwargs: object) -> tuple[torch.Tensor, None]:
            out, _ = ours(*args, **kwargs)  # type: ignore[operator]
            return out + 0.01, None

        return attention

    attention = interface_sweep.transformers_attention.attention_of_transformers
    monkeypatch.setattr(interface_sweep.transformers_attention, "attention_of_transformers", shifted(attention))
    assert interface_sweep.try_class("BertModel", "bert").verdict == "WRONG"


def test_a_silent_fault_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that the model reports and no map has."""
    collect = recorder_sweep.eager_weights.collect

    def with_another(*args: object) -> recorder_sweep.eager_weights.EagerWeights:
        weights = collect(*args)  # type: ignore[arg-type]
        weights.reported.append(torch.rand(2, 4, 11, 11).softmax(-1))
        return weights

    monkeypatch.setattr(recorder_sweep.eager_weights, "collect", with_another)
    outcome = try_class("BertModel", "bert")
    assert (outcome.verdict, outcome.missing) == ("WRONG", 1)
    assert outcome.reason == "eager weights (2, 4, 11, 11) are in no map"


def test_limits_and_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    assert try_class("NoModel", "none").reason.startswith("configuration: AttributeError")
    # as if the time were over
    monkeypatch.setattr(sweep, "build", lambda name: signal.raise_signal(signal.SIGPROF))
    assert try_class("BertModel", "bert").reason == "time: more than 30 s"


def test_a_stopped_sweep_continues(tmp_path: Path) -> None:
    tried = []

    def outcome(name: str, model_type: str) -> Outcome:
        tried.append(name)
        if name == "B" and len(tried) == 2:
            raise KeyboardInterrupt
        return Outcome(name, model_type, "exact")

    known = {"A": "a", "B": "b"}
    with pytest.raises(KeyboardInterrupt):
        sweep.sweep(known, tmp_path / "lines", outcome, Outcome)
    assert [o.name for o in sweep.sweep(known, tmp_path / "lines", outcome, Outcome)] == ["A", "B"]
    assert tried == ["A", "B", "B"]


def test_the_command_writes_a_result_and_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sweep, "prepare", lambda: None)  # its limits are those of a process
    monkeypatch.setattr(sweep, "class_names", lambda: {"A": "a", "B": "b"})
    verdicts = {"A": "equal", "B": "WRONG"}

    def attempt(name: str, model_type: str) -> Interfaced:
        return Interfaced(name, model_type, verdicts[name], "why")

    command = sweep.SweepCommand("interface", "", attempt, Interfaced, interface_page.page)
    page = tmp_path / "page.md"
    assert command.run(["A"], tmp_path, page) == 0
    assert capsys.readouterr().out == "A: equal why\n1 equal\n"
    assert not list(tmp_path.iterdir())
    assert command.run([], tmp_path, page) == 1
    assert capsys.readouterr().out.endswith("1 equal, 1 WRONG\n")
    assert [path.name for path in tmp_path.iterdir()] == ["interface.json"]
    assert command.run(["--docs"], tmp_path, page) == 0
    assert page.read_text(encoding="utf-8").startswith("# transformers' models on regard\n")


def test_weights_match() -> None:
    weights = torch.rand(2, 3, 5, 7).softmax(-1)
    assert matches(weights, weights.flatten(0, 1), "sdpa")
    assert not matches(weights, weights.flip(-1), "sdpa")
    assert not matches(weights, weights.mT, "sdpa")
    # a map in another layout, with zeros between its weights
    wide = torch.zeros(2, 3, 5, 11)
    wide[..., ::2] = torch.nn.functional.pad(weights, (0, -1))
    assert has_rows(wide, torch.nn.functional.pad(weights, (0, -1)).transpose(0, 1))
    assert not has_rows(wide, weights)


def test_the_result_of_the_interface_and_its_page() -> None:
    result = Sweep.read(sweep.RESULTS / "interface.json", Interfaced)
    verdicts = [outcome.verdict for outcome in result.outcomes if outcome.verdict not in ("not built", "not used")]
    assert len(verdicts) >= 700
    assert set(verdicts) <= interface_page.VERDICTS.keys() - {"WRONG"}
    assert interface_sweep.PAGE.read_text(encoding="utf-8") == interface_page.page(result)


def test_the_result_and_its_page() -> None:
    result = Sweep.read(RESULT, Recorded)
    built = [outcome for outcome in result.outcomes if outcome.verdict != "not built"]
    assert len(built) >= 400
    assert {outcome.verdict for outcome in built} <= recorder_page.VERDICTS.keys() - {"WRONG"}
    assert recorder_sweep.PAGE.read_text(encoding="utf-8") == recorder_page.page(result)


@pytest.mark.whole
def test_speed_beside_sdpa(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows on tiny models; the memory of processes is not measured here."""
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    monkeypatch.setattr(interface_speed, "MODELS", {"tiny": ("Bert", small, (2, 5))})
    monkeypatch.setattr(interface_speed, "WINDOW", small | {"num_key_value_heads": 2, "sliding_window": 4})
    effort = Effort(repeat=1, least=1, budget=0.0, block=1e-6)
    rows = [*interface_speed.models(effort), *interface_speed.padding(effort), *interface_speed.window(effort, 16)]
    assert [row.compared for row in rows] == ["regard : sdpa"] * 6
    assert all(row.measured is not None for row in rows)
