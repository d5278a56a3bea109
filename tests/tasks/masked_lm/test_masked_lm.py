"""The rows of a run, its masks, its candidates, and its errors."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from jsonschema_rs import validator_for
from tests.serve.conftest import post
from tests.tasks.running_text import TEXT, train_on_text

import regard
from regard.cli.main import main
from regard.data.text.special_tokens import BOS, EOS, SPECIAL
from regard.data.text.tokenizer import Tokenizer
from regard.inference.limits import Limits
from regard.inference.predictor import labelled_recording
from regard.tasks.masked_lm.data import Masking, evaluation_batches, plan_rows
from regard.tasks.masked_lm.options import MaskedLM, PredictMasked
from regard.tasks.masked_lm.predictor import MaskedLMPredictor
from regard.tasks.masked_lm.scoring import score_masked
from regard.tasks.masked_lm.task import MaskedLMProblem


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_on_text("masked-lm", tmp_path_factory.mktemp("masked"), "--vocabulary", "290")


@pytest.fixture(scope="module")
def predictor(run: Path) -> MaskedLMPredictor:
    predictor = regard.load(run, device="cpu")
    return predictor


@pytest.fixture(scope="module")
def problem(run: Path, tmp_path_factory: pytest.TempPathFactory) -> MaskedLMProblem:
    sizes = {"segment": 16, "batch": 5, "width": 8, "heads": 2, "layers": 1, "valid_tokens": 60}
    task = MaskedLM.of(train=run.with_name("text.txt"), tokens="characters", **sizes)
    return task.prepare(tmp_path_factory.mktemp("problem"))


@pytest.mark.parametrize(("length", "rows", "segment"), [(100, 3, 9), (103, 5, 22), (14, 4, 16), (20, 3, 16)])
def test_an_epoch_reads_every_whole_row_once(length: int, rows: int, segment: int) -> None:
    for epoch in range(3):
        planned = plan_rows(length, rows, segment, 0, epoch)
        starts = np.concatenate([each.starts for each in planned])
        assert len(set(starts.tolist())) == len(starts)
        assert starts.min() >= 0
        assert starts.max() + segment - 2 <= length
        assert len(set((starts % (segment - 2)).tolist())) == 1
        assert [each.seed for each in planned] == [(0, epoch, n) for n in range(len(planned))]


def test_masks_are_new_in_every_epoch_and_the_same_for_any_number_of_processes(problem: MaskedLMProblem) -> None:
    masks = []
    for epoch in (0, 1, 0):
        batch = problem.load_batch(problem.plan_epoch(epoch)[0], 0, 1)
        assert batch.tokens[:, 0].eq(BOS).all()
        assert batch.tokens[:, -1].eq(EOS).all()
        assert len(batch.targets) == batch.is_chosen.sum() == problem.num_terms(batch)
        masks.append(batch.is_chosen)
    assert torch.equal(masks[0], masks[2])
    assert not torch.equal(masks[0], masks[1])
    planned = problem.plan_epoch(0)[0]
    parts = [problem.load_batch(planned, rank, 2) for rank in range(2)]
    assert all(part is not None and torch.equal(part.is_chosen, masks[0][n::2]) for n, part in enumerate(parts))
    assert problem.load_batch(planned, 5, 6) is None


def test_the_loss_is_that_of_the_chosen_tokens_alone(problem: MaskedLMProblem) -> None:
    model = problem.build_model().eval()
    batch = problem.load_batch(problem.plan_epoch(0)[0], 0, 1)
    loss = problem.loss(model, batch)
    log_p = model(batch.tokens).log_softmax(-1)[batch.is_chosen]
    torch.testing.assert_close(loss.total, -log_p.gather(-1, batch.targets[:, None]).sum())
    loss.total.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_an_evaluation_reads_every_token_once_and_guesses_text_alone(problem: MaskedLMProblem) -> None:
    stream = problem.valid_stream
    rows = evaluation_batches(stream, 16, 3)
    assert np.concatenate([each[:, 1:-1].ravel() for each in rows]).tolist() == stream.tolist()
    model = problem.build_model()
    scores = score_masked(model, stream, problem.masking, 16, problem.counts)
    again = score_masked(model, stream, problem.masking, 16, problem.counts)
    assert (scores.targets == again.targets).all()
    assert scores.guesses.min() >= SPECIAL
    assert scores.guesses.max() < len(problem.tokenizer)
    summary = scores.summary()
    assert list(summary) == list(MaskedLM.metrics)
    # single tokens, whose neighbours are known
    single = Masking(problem.tokenizer, 0.15, False)
    summary = score_masked(model, problem.stream, single, 16, problem.counts).summary()
    assert summary["two-sided bigram"] > summary["bigram"] > summary["unigram"] > 0
    with pytest.raises(ValueError, match="no token that the vocabulary knows"):
        score_masked(model, np.full(20, 3, np.int32), problem.masking, 16, problem.counts)


def test_a_space_before_a_mask_belongs_to_the_masked_token(predictor: MaskedLMPredictor) -> None:
    tokenizer, mask = predictor.texts.tokenizer, len(predictor.texts.tokenizer)
    (whole,) = [tokenizer.encode_text("the cat")]
    assert predictor.encode("the [MASK]").tokens == (BOS, *tokenizer.encode_text("the"), mask, EOS)
    assert tokenizer.token_text(whole[-1]) == " cat"
    output = predictor.predict(["the [MASK] sat"], PredictMasked(top=273))[0]
    shown = {each.text for each in output.candidates[0]}
    assert {"cat", "dog", "sat"} <= shown
    assert "##the" in shown
    output = predictor.predict(["un[MASK]able"], PredictMasked(top=273))[0]
    assert {"▁cat", "the"} <= {each.text for each in output.candidates[0]}
    assert sum(each.probability for each in output.candidates[0]) == pytest.approx(1, abs=0.05)


def test_the_filled_text_has_the_likeliest_token_of_each_mask(predictor: MaskedLMPredictor) -> None:
    (output,) = predictor.predict(["the [MASK] sat [MASK]the"])
    first, second = (predictor.texts.tokenizer.token_text(each[0].token) for each in output.candidates)
    assert output.filled == f"the{first} sat{second}the"
    assert predictor.text(output).count(" | ") == 1
    assert [len(each) for each in predictor.json(output)["masks"]] == [5, 5]


def test_the_command_prints_candidates_and_draws_heads(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    picture = tmp_path / "heads.png"
    assert main(["predict", str(run), "the [MASK] sat", "--top", "2", "--json", "--picture", str(picture)]) == 0
    printed = capsys.readouterr()
    (candidates,) = json.loads(printed.out)["masks"]
    assert candidates[0]["probability"] >= candidates[1]["probability"]
    assert "the attention is drawn in" in printed.err
    assert picture.read_bytes().startswith(b"\x89PNG")
    recording = labelled_recording(regard.load(run, device="cpu"), "the [MASK] sat")[1]
    assert recording.keys[:3] == ("<bos>", "the", "[MASK]")


def test_errors_are_sentences(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = "the cat sat " * 8 + "[MASK]"
    text, out = run.with_name("text.txt"), run.with_name("none")
    train = ["train", "masked-lm", "--train", str(text), "--width", "8", "--vocabulary", "290", "--out", str(out)]
    for args, message in (
        (["predict", str(run), "the cat sat"], "the text 'the cat sat' has no [MASK]; mark the token to guess"),
        (["predict", str(run), long], "tokens, begin and end included, and this model reads 16; shorten it"),
        (["predict", str(run), "a [MASK]", "--top", "999"], "--top 999 exceeds the 273 tokens of this run"),
        ([*train, "--segment", "2000"], "2000 tokens are more than the"),
    ):
        capsys.readouterr()
        assert main(args) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert message in printed.err


def test_targets_are_one_token_per_mask(predictor: MaskedLMPredictor) -> None:
    loss = predictor.loss(["the [MASK] sat [MASK] the"], ["cat on"])
    (output,) = predictor.predict(["the [MASK] sat [MASK] the"], PredictMasked(top=273))
    shown = [{each.text: each.probability for each in candidates} for candidates in output.candidates]
    assert loss[0].item() == pytest.approx(-np.log(shown[0]["cat"]) - np.log(shown[1]["on"]), rel=1e-4)
    with pytest.raises(
        ValueError, match=r"target 'zebra' must have one token of the vocabulary per \[MASK\], 1 in all"
    ):
        predictor.loss(["the [MASK]"], ["zebra"])


def test_single_tokens_and_whole_words_are_chosen() -> None:
    tokenizer = Tokenizer.train("characters", [TEXT], 100)
    rows = np.array([tokenizer.encode_text(TEXT[:40])])
    rng = np.random.default_rng(0)
    words, tokens = (Masking(tokenizer, 0.3, whole).choose(rows, rng)[0] for whole in (True, False))
    assert tokens.sum() == 12
    letters = np.array([character.isalpha() for character in TEXT[:40]])
    edges = np.flatnonzero(letters[1:] & letters[:-1])
    assert (words[edges] == words[edges + 1]).all()
    assert not (tokens[edges] == tokens[edges + 1]).all()


def test_it_is_served(predictor: MaskedLMPredictor) -> None:
    endpoint = predictor.endpoint(Limits(), run="run", step=2)
    text = "the [MASK] sat on [MASK]"
    answer = post(endpoint, {"text": text, "top": 3, "attention": True}).json()["answers"][0]
    output = predictor.predict([text], PredictMasked(top=3))[0]
    assert answer["filled"] == output.filled
    shown = [[each["token"] for each in candidates] for candidates in answer["masks"]]
    assert shown == [[each.text for each in candidates] for candidates in output.candidates]
    assert [attended["keys"].count("[MASK]") for attended in answer["attention"]] == [2]
    refused = post(endpoint, {"texts": [text, "the cat"]})
    assert refused.status_code == 422
    assert "has no [MASK]; mark the token to guess" in refused.json()["error"]
    long = post(endpoint, {"text": "the cat sat " * 9 + "[MASK]"})
    assert (long.status_code, "this model reads 16; shorten it" in long.json()["error"]) == (422, True)
    schema = validator_for(endpoint.schema.request.model_json_schema())
    assert [schema.is_valid(body) for body in ({"text": text}, {"text": "the cat"}, {"texts": ["a", text]})] == [
        True,
        False,
        False,
    ]


def test_the_margin_is_that_of_the_closest_candidates(predictor: MaskedLMPredictor) -> None:
    text = "the [MASK] sat [MASK]"
    (output,) = predictor.predict([text], PredictMasked(top=2))
    (longer,) = predictor.predict([text], PredictMasked(top=3))
    gaps = [
        (first.probability - second.probability) / first.probability
        for candidates in longer.candidates
        for first, second in itertools.pairwise(candidates)
    ]
    assert predictor.margin(output) == pytest.approx(min(gaps))
