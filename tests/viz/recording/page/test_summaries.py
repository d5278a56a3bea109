"""Summaries of a page: the mean over heads by layer, and the rollout, of every stack."""

import json
import re
from dataclasses import replace

import torch
from tests.viz.recordings import attended, of, weights

from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording.page.builder import html, page_title
from regard.viz.recording.page.summaries import is_summary, merged_words, with_summaries


def test_a_stack_has_both() -> None:
    recording = attended(layers=3)
    *layers, mean, rollout = with_summaries(recording)
    assert [item.name for item in layers] == list(recording.names)
    assert (mean.name, rollout.name) == ("mean over heads", "rollout")
    assert not any(map(is_summary, layers))
    assert is_summary(mean)
    assert is_summary(rollout)
    for n, item in enumerate(layers):
        torch.testing.assert_close(mean.weights.dense()[:, n], item.weights.dense().mean(1))
    torch.testing.assert_close(rollout.weights.dense(), recording.rollout()[0].weights.dense())
    assert recording.labels(mean) == recording.labels(layers[0])


def test_encoder_and_decoder_are_two_stacks() -> None:
    maps = [
        RecordedMap(f"{part}.{n}", kind, DenseMap(weights(1, 2, 5, 5, seed=n)), certificate=0.0)  # type: ignore[arg-type]
        for part, kind in (("encoder", "self"), ("decoder", "self"), ("decoder.cross", "cross"))
        for n in (0, 1)
    ]
    assert [item.name for item in with_summaries(Recording(tuple(maps)))][6:] == [
        "mean over heads of the encoder",
        "rollout of the encoder",
        "mean over heads of the decoder",
        "rollout of the decoder",
        "mean over heads of the decoder, to the source",
    ]


def test_what_is_no_stack_has_none() -> None:
    single = of(weights(3, 5))
    assert len(with_summaries(single)) == 1
    one_head = attended(layers=1, heads=1)
    assert len(with_summaries(one_head)) == 1
    steps = Recording(tuple(replace(item, step=2) for item in attended()))
    assert len(with_summaries(steps)) == 2
    # one module twice is a stack that shares its weights; two modules twice are two passes
    twice = [replace(item, call=call) for call in (0, 1) for item in attended()]
    assert [item.name for item in with_summaries(Recording(tuple(twice)))][4:] == ["mean over heads"]


def test_sub_words_are_merged_where_they_are_marked() -> None:
    assert merged_words(attended()) is None
    recording = attended(n=5).with_labels(["[CLS]", "play", "##ing", "cards", "[SEP]"])
    words = merged_words(recording)
    assert words.queries == ("[CLS]", "playing", "cards", "[SEP]")
    header = json.loads(re.search(r'id="data">(.*?)</script>', html(recording, words=words))[1])  # type: ignore[index]
    assert [(layer["unit"], layer["k"]) for layer in header["layers"]] == [("tokens", 5)] * 2 + [("words", 4)] * 2
    assert len(header["maps"]) == 12
    mixed = Recording((*recording.maps, RecordedMap("gate", "gate", DenseMap(weights(1, 3, 1)), certificate=0.0)))
    assert merged_words(mixed.with_labels(["[CLS]", "play", "##ing", "cards", "[SEP]"])) is None


def test_the_title_names_the_model_and_its_input() -> None:
    assert page_title({}) == "Attention, layer by layer"
    assert page_title({"model": "Bert"}) == "Attention of Bert"
    assert page_title({"model": "Bert", "folder": "tiny", "text": "the cat"}) == "Attention of tiny: the cat"
    assert page_title({"run": "digits", "picture": "three.png"}) == "Attention of digits: three.png"
    assert len(page_title({"run": "a", "text": "word " * 100})) < 110
