"""Which map is looked at: by layer, sample and head; its rows and columns in words; how spread its heads are."""

from dataclasses import replace

import pytest
import torch
from tests.viz.recordings import TEXT, attended, weights

from regard.attn.maps.attention_map import DenseMap
from regard.recording.recorded_map import RecordedMap
from regard.recording.recording import Recording
from regard.viz.recording import selection


def one(kind: str, q: int, k: int, **known: object) -> RecordedMap:
    return RecordedMap("layers.0", kind, DenseMap(weights(1, 2, q, k)), **known)  # type: ignore[arg-type]


def test_words_of_the_queries_and_of_the_keys() -> None:
    tape = Recording((one("cross", 2, 3),)).with_labels(["er", "bellt"], ["he", "barks", " "])
    assert selection.row_and_column_labels(tape, tape[0], 0) == (["er", "bellt"], ["he", "barks", "␣"])
    assert selection.row_and_column_labels(tape, tape[0], 1) == (
        ["0", "1"],
        ["0", "1", "2"],
    )  # the words are those of sample 0


def test_a_step_of_a_generation_begins_where_it_stands() -> None:
    tape = Recording((one("self", 1, 4, step=3),))
    assert selection.row_and_column_labels(tape, tape[0], 0) == (["3"], ["0", "1", "2", "3"])
    assert selection.select_map(tape.with_labels(TEXT[:5]), 0, 0, None).query_label(0) == "query 3 'the'"
    assert selection.select_map(tape, 0, 0, None).query_label(0) == "query 3"


def test_rows_that_were_chosen_keep_their_places() -> None:
    tape = Recording((one("self", 2, 5, rows=(1, 4)),)).with_labels(TEXT[:5])
    assert selection.query_positions(tape[0]) == [1, 4]
    assert selection.row_and_column_labels(tape, tape[0], 0)[0] == ["cat", "dog"]
    assert selection.row_and_column_labels(replace(tape, queries=None, keys=None), tape[0], 0)[0] == ["1", "4"]


def test_a_layer_is_a_number_or_a_name() -> None:
    tape = attended(3)
    assert selection.layer_numbers(tape, None) == [0, 1, 2]
    assert selection.layer_numbers(tape, -1) == [2]
    assert selection.layer_numbers(tape, "layers.1") == [1]
    assert selection.select_layer(tape, "layers.1", 0, None).title == "layers.1 · mean of 3 heads"


def test_one_head_is_itself_and_many_are_their_mean() -> None:
    tape = attended(1, 3, 5)
    whole = tape[0].weights.dense()
    torch.testing.assert_close(selection.select_map(tape, 0, 1, 2).map.dense(), whole[1, 2])
    mean = selection.select_map(tape, 0, 1, None).map
    assert mean.shape == (5, 5)
    torch.testing.assert_close(mean.dense(), whole[1].mean(0))
    torch.testing.assert_close(mean.pooled(2, 3), DenseMap(whole[1].mean(0)).pooled(2, 3))
    flat = Recording((RecordedMap("a", "alignment", DenseMap(whole[0, 0])),))
    torch.testing.assert_close(selection.select_map(flat, 0, 0, 0).map.dense(), whole[0, 0])


@pytest.mark.parametrize("shape", [(5, 7), (3, 5, 7), (2, 3, 5, 7)])
def test_entropies_are_the_means_of_rows(shape: tuple[int, ...]) -> None:
    cells = weights(*shape)
    found, rows = selection.head_entropies(DenseMap(cells))
    assert rows == 5
    torch.testing.assert_close(found, DenseMap(cells).entropy().reshape(-1, 5).mean(-1))


def test_many_rows_are_told_by_some_of_them() -> None:
    uniform = torch.full((2, 500, 8), 1 / 8)
    found, rows = selection.head_entropies(DenseMap(uniform))
    assert rows == 64
    torch.testing.assert_close(found, torch.log(torch.tensor([8.0, 8.0])))
    none, rows = selection.head_entropies(DenseMap(torch.zeros(2, 0, 3)))
    assert (none.tolist(), rows) == ([0.0, 0.0], 0)
    differences, _ = selection.head_entropies(DenseMap(torch.eye(3).unsqueeze(0) - 0.5))
    assert differences.isnan().all()


def test_trust_is_told_in_words() -> None:
    assert selection.verification_label(one("self", 1, 1, certificate=2e-7)) == "certificate 2e-07"
    assert selection.verification_label(one("self", 1, 1, certificate=0.07)) == "unverified: |P·V − out| up to 0.07"
    assert selection.verification_label(one("self", 1, 1)) == "unverified: nothing could be checked"
    maps = [one("self", 1, 1, certificate=c) for c in (1e-7, None, 0.5)]
    assert max(maps, key=selection.uncertainty) is maps[1]
    assert [selection.unverified_suffix(m) for m in maps] == ["", " (unverified)", " (unverified)"]
