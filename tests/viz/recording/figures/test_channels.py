"""Gates of whole channels: a bar each, and no word of heads, queries, keys or entropy."""

from pathlib import Path

import pytest
import torch
from tests.viz.recording.figures.test_figures import legible
from tests.viz.recordings import Caught, said, seen, weighed

import regard
from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording.figures import draw_recording
from regard.viz.recording.page.builder import html
from regard.viz.recording.terminal import text

HEADS = ("head", "quer", "key", "entropy")


def test_a_bar_is_as_high_as_the_weight_of_its_channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    recording = weighed(5, 7)
    draw_recording(recording, tmp_path / "a.png", what="channels")
    for axes, one in zip(caught.last.axes, recording, strict=True):
        values, edges, _ = axes.patches[0].get_data()
        weights = one.weights.dense().flatten()
        assert values[::2].tolist() == pytest.approx(weights.tolist())
        assert edges[::2].round().tolist() == list(range(len(weights)))
        assert axes.get_ylim()[1] >= 1
    legible(caught.last)


def test_numbers_under_all_gates_are_of_one_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    draw_recording(weighed(16, 64, 500), tmp_path / "a.png", what="channels")
    sizes = [{label.get_fontsize() for label in axes.get_xticklabels()} for axes in caught.last.axes]
    assert sizes[0] == sizes[1] == sizes[2]
    assert len(sizes[0]) == 1


def test_it_is_what_gates_of_channels_are_shown_as(tmp_path: Path) -> None:
    model = torch.nn.Sequential(regard.gates.SqueezeExcite(16), regard.gates.ECA(16)).eval()
    with torch.no_grad(), regard.record(model) as tape:
        model(torch.rand(1, 16, 5, 7))
    told = said(regard.show(tape).save(tmp_path / "a.svg"))
    assert "weight of each channel of 2 gates" in told
    assert not [word for word in HEADS if word in told]
    assert "weight of each channel of 1" in said(regard.show(tape, layer=1).save(tmp_path / "a.svg"))


def test_one_that_knows_places_is_no_gate_of_channels(tmp_path: Path) -> None:
    model = regard.gates.SimAM()
    with torch.no_grad(), regard.record(model) as tape:
        model(torch.rand(1, 3, 5, 7))
    told = said(regard.show(tape, what="heads").save(tmp_path / "a.svg"))
    assert "3 × 35 (channels × positions)" in told
    assert "entropy" not in told
    assert f"{float(tape[0].weights.dense().mean()):.2f}" in told.split("\n")
    both = Recording((*tape, *seen()))
    told = said(draw_recording(both, tmp_path / "a.svg", what="heads")).replace("\n", " ")
    assert "its entropy in nats, the mean of its rows; of a gate, that of its weights" in told
    assert "(channels × positions or queries × keys)" in told


def test_many_channels_are_pooled_and_many_gates_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    told = said(draw_recording(weighed(2000, *[3] * 24), tmp_path / "a.svg", what="channels"))
    assert "a bar is the mean of several channels where there are more than 512" in told
    assert "the first 24 of 25; pass layer= for another" in told
    legible(caught.last)


def test_differences_go_both_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caught = Caught(monkeypatch)
    first, second = (
        weighed(5),
        Recording((RecordedMap("blocks.0.gate", "gate", DenseMap(torch.full((1, 1, 5, 1), 0.4))),)),
    )
    told = said(draw_recording(first.difference(second), tmp_path / "a.svg", what="channels"))
    assert "difference of the weight of each channel" in told
    assert "leaves a channel as it is" not in told
    assert caught.last.axes[0].get_ylim()[0] < 0


def test_what_the_model_said_stands_in_the_figure(tmp_path: Path) -> None:
    for recording, what in ((weighed(5), "channels"), (seen(), "overlay"), (seen(), "heads")):
        told = Recording(recording.maps, about={"said": "three 98.1 %"})
        assert "prediction: three 98.1 %" in said(draw_recording(told, tmp_path / "a.svg", what=what))


def test_without_a_script() -> None:
    told = html(weighed(5)).split("<noscript>")[1]
    first = float(weighed(5)[0].weights.dense().flatten()[0])
    assert "The weights of the first channels of blocks.0.gate:" in told
    assert f'<tr><th scope="row">0</th><td>{first:.4f}</td></tr>' in told


def test_in_a_terminal() -> None:
    lines = text(weighed(5, 100), width=70).split("\n")
    assert lines[1].split()[:6] == ["0", "blocks.0.gate", "gate", "1", "5", "channels"]
    assert lines[1].split()[6] == "–"
    weights = weighed(5)[0].weights.dense().flatten().tolist()
    for line, n in zip(lines[6:11], range(5), strict=True):
        assert line.startswith(f"{n}  {weights[n]:.3f} ")
        assert abs(line.count("█") - weights[n] * 61) <= 1
    pooled = text(weighed(5, 100), width=70, layer=1).split("\n")
    assert "the mean of several per line" in pooled[5]
    assert pooled[6].split()[0] == "0–3"
    assert max(map(len, pooled)) <= 70
