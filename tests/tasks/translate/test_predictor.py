"""Text in, text out: order kept, batches that change nothing, alignments that are those of what was said."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.data.text.batching import source_batch
from regard.data.text.corpus import LENGTH_OFFSET
from regard.data.text.pairs import Pairs
from regard.data.text.special_tokens import BOS, EOS, PAD, UNK
from regard.decoding.search import Beam, Greedy, Sampling, Search
from regard.tasks.translate.options import Translate
from regard.tasks.translate.predictor import EXTRA_TOKENS, Translator
from regard.tasks.translate.vocabularies import Vocabularies

LINES = ["bad", "a", "", "cabbage", "fed", "deaf cab", " \t", "gag", "abcdefg abcdefg", "bed"]
BLANK = {2, 6}
TASKS: dict[str, dict[str, Any]] = {
    "bahdanau": {"hidden": 10},
    "luong": {"hidden": 10, "decoder": "luong", "cell": "lstm"},
    "transformer": {"model": "transformer", "heads": 2, "layers": 2, "feed": 10},
}
every = pytest.mark.parametrize("name", TASKS)


def interpreter(name: str, batch: int = 64, max_length: int = 9, **options: Any) -> Translator:
    task = Translate.of(data="reverse", width=8, max_length=max_length, **{**TASKS.get(name, {}), **options})
    vocabularies = Vocabularies.train(task, Pairs(["abcdefg ", "\t"], ["tuvwxyz", "z"]))
    made = Translator.of(task, vocabularies)
    # in float64 no batch rounds one way and another the other; wild weights say this and that
    made.model.double()
    torch.manual_seed(2)
    for key, p in made.model.named_parameters():
        if "norm" not in key:
            nn.init.normal_(p, std=1.5)
    return Translator(made.model, vocabularies, batch=batch, stretch=0.4, longest=made.longest)


def test_of_a_task() -> None:
    task = Translate.of(data="reverse", max_length=9)
    vocabularies = Vocabularies.train(task, Pairs(["abc"], ["xy"]))
    made = Translator.of(task, vocabularies)
    assert made.longest is None
    assert made.model.source.num_embeddings == len(vocabularies.source) == 7
    assert made.model.target.num_embeddings == len(vocabularies.target) == 6
    with pytest.raises(ValueError, match="stretch=None needs a largest number of tokens; give most=, such as most=200"):
        Translator(made.model, vocabularies, stretch=None)


@every
@pytest.mark.parametrize(
    "search", [Greedy(), Beam(size=3, nbest=2), Beam(size=4, coverage=0.2), Sampling(count=3, seed=5)], ids=repr
)
def test_order_is_kept_and_batches_change_nothing(name: str, search: Search) -> None:
    whole = interpreter(name).translate(LINES, search)
    assert len(whole) == len(LINES)
    for batch in (1, 3):
        for one, other in zip(interpreter(name, batch).translate(LINES, search), whole, strict=True):
            assert [said.tokens for said in one] == [said.tokens for said in other]
            assert [said.text for said in one] == [said.text for said in other]
            torch.testing.assert_close([said.score for said in one], [said.score for said in other])
    assert len({said[0].text for n, said in enumerate(whole) if n not in BLANK}) > 1


@every
@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0])
def test_the_greedy_score_is_that_of_a_beam_of_one(name: str, penalty: float) -> None:
    greedy, beam = (interpreter(name).translate(LINES, by) for by in (Greedy(penalty), Beam(1, length_penalty=penalty)))
    for (one,), (other,) in zip(greedy, beam, strict=True):
        assert (one.tokens, one.finished) == (other.tokens, other.finished)
        assert one.score == pytest.approx(other.score, rel=1e-5)


@every
def test_lines_that_are_done_are_counted(name: str) -> None:
    told: list[int] = []
    interpreter(name, batch=3).translate(LINES, done=told.append)
    # two are blank and done from the first
    assert told == [5, 8, 10]


@every
def test_blank_lines_stay_blank(name: str) -> None:
    said = interpreter(name).translate(LINES, Beam(size=3, nbest=2))
    for n, found in enumerate(said):
        if n in BLANK:
            (nothing,) = found
            assert (nothing.text, nothing.tokens, nothing.log_prob, nothing.finished) == ("", (), 0.0, True)
        else:
            assert len(found) == 2
    assert interpreter(name).translate([]) == []
    assert [one[0].text for one in interpreter(name).translate(["", "  "])] == ["", ""]


@every
def test_what_is_said_is_text_within_the_limit(name: str) -> None:
    made = interpreter(name)
    for line, found in zip(LINES, made.translate(LINES, Sampling(count=4, temperature=2.0)), strict=True):
        for said in found:
            assert not {PAD, BOS, EOS, UNK}.intersection(said.tokens)
            assert said.text == made.vocabularies.target.decode(said.tokens)
            # the end of the sentence is counted
            assert len(said.tokens) + said.finished <= math.ceil(0.4 * (len(line) + 1 + LENGTH_OFFSET)) + EXTRA_TOKENS


@every
def test_log_prob_is_the_model_s_own(name: str) -> None:
    made = interpreter(name)
    for search in (Greedy(), Beam(size=3, length_penalty=0.6), Sampling(temperature=0.7, top_k=3)):
        for line, (said, *_) in zip(LINES, made.translate(LINES, search), strict=True):
            if not line.strip():
                continue
            source, lengths = source_batch(made.vocabularies.source.encode([line]))
            target = torch.tensor([[BOS, *said.tokens, *([EOS] if said.finished else [])]])
            with torch.no_grad():
                log_p = made.model.eval()(source, lengths, target[:, :-1]).log_softmax(-1)
            want = log_p.gather(-1, target[:, 1:].unsqueeze(-1)).sum()
            assert said.log_prob == pytest.approx(float(want), abs=1e-5)


@every
def test_a_beam_is_no_worse_than_greedy(name: str) -> None:
    made = interpreter(name)
    greedy = made.translate(LINES)
    for size in (1, 2, 5):
        for n, (found, (one,)) in enumerate(
            zip(made.translate(LINES, Beam(size, length_penalty=0.0)), greedy, strict=True)
        ):
            assert found[0].score >= one.log_prob - 1e-6
            if size == 1:
                assert found[0].tokens == one.tokens, n
    ranked = made.translate(LINES, Beam(size=5, nbest=3))
    for found in ranked:
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)


@every
def test_the_alignment_is_that_of_what_was_said(name: str) -> None:
    """Of greedy search: the weights of the very steps. Of a beam's: those of the steps along its hypothesis."""
    made = interpreter(name)
    lines = [line for line in LINES if line.strip()]
    for search in (Greedy(), Beam(size=4)):
        said = [found[0] for found in made.translate(lines, search)]
        for line, one, aligned in zip(lines, said, made.align(lines, said), strict=True):
            ids = made.vocabularies.source.encode([line])
            source, lengths = source_batch(ids)
            rows: list[Tensor] = []
            with torch.no_grad():
                state = made.model.init_state(source, lengths)
                # what came to no end has no row for one
                for token in (BOS, *(one.tokens if one.finished else one.tokens[:-1])):
                    got = made.model.step(torch.tensor([[token]]), state, weights=True)
                    state = got.state
                    rows.append(got.weights[0, 0])
                    if isinstance(search, Greedy) and len(rows) <= len(one.tokens):
                        allowed = got.logits[0, 0].index_fill(0, torch.tensor([PAD, BOS, UNK]), -math.inf)
                        assert int(allowed.argmax()) == one.tokens[len(rows) - 1]
            assert aligned.weights.shape == (len(one.tokens) + one.finished, len(ids[0]) + 1)
            torch.testing.assert_close(aligned.weights, torch.stack(rows))
            torch.testing.assert_close(aligned.weights.sum(-1), torch.ones(len(rows)).double())
            assert aligned.source == [*line, "<eos>"] or " " in line
            assert len(aligned.source) == len(ids[0]) + 1
            assert aligned.target == [*one.text, *["<eos>"] * one.finished]


def test_the_alignment_of_a_blank_line() -> None:
    made = interpreter("bahdanau")
    (said,) = made.translate([""])
    (aligned,) = made.align([""], said)
    assert aligned.source == aligned.target == ["<eos>"]
    assert aligned.weights.tolist() == [[1.0]]


def test_a_decoder_that_does_not_attend_has_no_alignment() -> None:
    made = interpreter("", decoder="fixed", hidden=10)
    said = made.translate(["bad"])[0]
    with pytest.raises(
        ValueError, match="a decoder without attention has no weights; build it with decoder='bahdanau'"
    ):
        made.align(["bad"], said)
    with pytest.raises(ValueError, match="a decoder without attention has no weights"):
        made.translate(["bad"], Beam(coverage=0.1))


@every
def test_draws_are_decided_by_their_seed(name: str) -> None:
    made = interpreter(name, batch=4)

    def drawn(seed: int, **options: Any) -> list[list[str]]:
        return [
            [said.text for said in found] for found in made.translate(LINES, Sampling(count=3, seed=seed, **options))
        ]

    once = drawn(5)
    assert drawn(5) == once
    torch.rand(3)  # another stream
    assert drawn(5) == once
    assert drawn(6) != once
    # a line is drawn by its number, whatever comes with it
    later = made.translate(LINES[3:], Sampling(count=3, seed=5), first=3)
    assert [[said.text for said in found] for found in later] == once[3:]
    same = [said[0].text for said in made.translate(["fed"] * 9, Sampling(seed=5))]
    assert len(set(same)) > 1
    assert any(len(set(found)) > 1 for found in once)
    assert drawn(5, top_k=1) == [
        [said[0].text] * (1 if n in BLANK else 3) for n, said in enumerate(made.translate(LINES))
    ]


@every
def test_the_model_is_left_as_it_was(name: str) -> None:
    made = interpreter(name, dropout=0.5)
    for training in (True, False):
        made.model.train(training)
        said = [found[0] for found in made.translate(LINES)]
        assert said == [found[0] for found in made.translate(LINES)]  # nothing is dropped
        made.align(LINES, said)
        assert made.model.training == training
    made.model.train()
    with pytest.raises(ValueError, match="nbest must be at most size"):
        made.translate(LINES, Beam(size=1, nbest=2))
    assert made.model.training
    assert all(p.grad is None and p.requires_grad for p in made.model.parameters())


def test_no_translation_has_more_tokens_than_the_most() -> None:
    made = interpreter("luong")
    made.most = 3
    assert max(len(said.tokens) + said.finished for said, *_ in made.translate(LINES)) == 3


def test_a_line_beyond_learned_places_is_told() -> None:
    made = interpreter("transformer", positions="learned", max_length=2)
    told = (
        "line 2 has 7 tokens, but this model knows 5 positions; shorten it, or train with max_length=4 or "
        "positions='sinusoidal'"
    )
    with pytest.raises(ValueError, match=told):
        made.translate(["ab", "abcabca"])
    assert len(made.translate(["abcab"])[0][0].tokens) <= 6
