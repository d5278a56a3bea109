"""The training problem of classify-text: batches, losses, the baseline, the attention to evidence, and learning."""

import dataclasses
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.tasks.classify_text.texts import SMALL, config, prepared
from torch import nn

from regard.attn.call import NOTHING, Need
from regard.data import embedded
from regard.data.text.batching import plan_batches
from regard.data.text.special_tokens import PAD, UNK
from regard.data.text.tokenizer import Tokenizer
from regard.losses import frobenius_penalty
from regard.models.bag_of_words import BagOfWords
from regard.models.text_classifier import TextClassifier, TextClassifierOutput
from regard.tasks.classify_text.baseline import fit_baseline
from regard.tasks.classify_text.data import drop_words, encode, pad, plan_document_batches
from regard.tasks.classify_text.options import ClassifyText
from regard.tasks.classify_text.predictor import ClassifyTextPredictor
from regard.tasks.classify_text.task import ClassifyTextProblem, evidence_attention
from regard.tasks.shared import classification
from regard.tasks.shared.row_batches import SeededRows
from regard.tasks.shared.text_options import EvaluateLabelledTexts

every_model = pytest.mark.parametrize("model", SMALL)
TEXTS = [[[4, 5, 6], [7, 8]], [[9]], [[4, 5], [6], [7, 8, 9, 10]]]


def model_of(problem: ClassifyTextProblem) -> TextClassifier:
    torch.manual_seed(3)
    model = problem.build_model().double()
    for p in model.parameters():  # those of a bag of words begin at zero
        nn.init.normal_(p, std=0.3)
    return model


def test_sentences_are_encoded_cut_off_and_never_empty() -> None:
    tokenizer = Tokenizer.train("words", ["a b. C d!"], 20)
    encoded = encode(tokenizer, ["a b. C d!", " ", "a b. C d! a b."], 4)
    whole, empty, cut = (text.tokens for text in encoded)
    assert [tokenizer.decode(sentence) for sentence in whole] == ["a b.", "C d!"]
    assert empty == [[UNK]]
    assert cut == whole
    assert [text.num_cut for text in encoded] == [0, 0, 2]
    (one,) = encode(tokenizer, ["a b. C d!"], 3)
    assert ([len(sentence) for sentence in one.tokens], one.num_cut) == ([2, 1], 1)
    assert encode(tokenizer, ["a b. C d!"], 2)[0].tokens == whole[:1]


class _LetterTokenizer(Tokenizer):
    """One token per letter from a to z; other characters are none."""

    def __init__(self) -> None:
        pass

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        return [[ord(letter) for letter in line if "a" <= letter <= "z"] for line in lines]


def test_a_sentence_without_tokens_keeps_its_number() -> None:
    encoded = encode(_LetterTokenizer(), ["abc\n7\nde\nf\n8", "7\n8", "7\nabc\nde"], 8)
    text, none, last = (each.tokens for each in encoded)
    assert ["".join(map(chr, sentence)) for sentence in text] == ["abc", "", "de", "f"]
    assert none == [[UNK]]
    assert list(map(len, last)) == [0, 3, 2]
    assert [each[1:] for each in encoded] == [(0, 0, False), (0, 0, True), (0, 0, False)]
    for most, sizes in ((1, [1]), (3, [3]), (4, [3, 0, 1]), (5, [3, 0, 2])):
        (cut,) = encode(_LetterTokenizer(), ["abc\n7\nde\nf"], most)
        assert (list(map(len, cut.tokens)), cut.num_cut) == (sizes, 6 - most)


def test_padding_stands_behind_the_tokens() -> None:
    tokens, lengths = pad(TEXTS, by_sentence=False)
    assert lengths.tolist() == [5, 1, 7]
    assert tokens.tolist() == [[4, 5, 6, 7, 8, PAD, PAD], [9, *[PAD] * 6], [4, 5, 6, 7, 8, 9, 10]]
    tokens, lengths = pad(TEXTS, by_sentence=True)
    assert tokens.shape == (3, 3, 4)
    assert lengths.tolist() == [[3, 2, 0], [1, 0, 0], [2, 1, 4]]
    assert tokens[2].tolist() == [[4, 5, PAD, PAD], [6, PAD, PAD, PAD], [7, 8, 9, 10]]


def test_dropped_words_are_unknown() -> None:
    texts = [[[4] * 1000, [5] * 500]]
    (text,) = drop_words(texts, 0.3, np.random.default_rng(1))
    assert [len(sentence) for sentence in text] == [1000, 500]
    assert 0.25 < sum(sentence.count(UNK) for sentence in text) / 1500 < 0.35
    assert drop_words(texts, 0.0, np.random.default_rng(1)) == texts
    assert texts == [[[4] * 1000, [5] * 500]]


def test_batches_of_documents_are_bounded_with_their_padding(tmp_path: Path) -> None:
    """Texts × most sentences × longest sentence; a larger text is alone."""
    rng = np.random.default_rng(2)
    texts = [[[5] * rng.integers(1, 30) for _ in range(rng.integers(1, 12))] for _ in range(200)]
    texts.append([[5] * 40] * 20)
    problem = dataclasses.replace(prepared(tmp_path, "hierarchical", batch=500), texts=texts)
    problem = dataclasses.replace(problem, labels=np.zeros(len(texts), np.int64))
    planned = problem.plan_epoch(0)
    assert sorted(n for each in planned for n in each.rows) == list(range(len(texts)))
    cells = {len(each.rows): [] for each in planned}
    for each in planned:
        batch = problem.load_batch(each, 0, 1)
        cells[len(each.rows)].append(batch.tokens.numel())
    assert max(cells.pop(1)) == 800
    assert max(size for sizes in cells.values() for size in sizes) <= 500
    # texts of similar shape are together: little of the batches is padding
    padded = sum(len(text) * max(map(len, text)) for text in texts)
    assert len(planned) < 1.5 * padded / 500 + 1
    assert plan_document_batches([], 500, 0, 0) == []


def test_batches_of_whole_texts_are_those_of_lines(tmp_path: Path) -> None:
    for model in ("self-attentive", "bag-of-words"):
        problem = prepared(tmp_path / model, model)
        lengths = np.array([sum(map(len, text)) for text in problem.texts])
        expected = plan_batches((lengths, lengths), 30, 0, 1)
        assert [each.rows.tolist() for each in problem.plan_epoch(1)] == [rows.tolist() for rows in expected]


@pytest.mark.parametrize("attention", ["paper", "hard", "gumbel", "multi-head"])
@every_model
def test_a_model_knows_what_it_reads_and_whether_it_samples(model: str, attention: str) -> None:
    options = {} if model == "bag-of-words" else {"attention": attention, "hidden": 8}
    task = ClassifyText.of(model=model, **{**SMALL[model], **options})
    made = task.model.build(11, 3)
    assert made.reads_sentences == task.model.reads_sentences
    assert made.attends == (model != "bag-of-words")
    assert made.samples_keys == (made.attends and attention == "hard")


@every_model
def test_shards_add_up_to_the_whole(model: str, tmp_path: Path) -> None:
    problem = prepared(tmp_path, model, word_dropout=0.3, batch=90)
    made, planned = model_of(problem), problem.plan_epoch(0)[0]
    whole = problem.load_batch(planned, 0, 1)
    assert whole is not None
    shards = [problem.load_batch(planned, rank, 3) for rank in range(3)]
    losses = [problem.loss(made, shard) for shard in shards if shard is not None]
    expected = problem.loss(made, whole)
    assert sum(loss.count for loss in losses) == expected.count
    torch.testing.assert_close(sum(loss.total for loss in losses), expected.total, atol=1e-5, rtol=1e-5)
    assert problem.load_batch(planned, len(planned.rows), len(planned.rows) + 1) is None


@every_model
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_cross_entropy(model: str, smoothing: float, tmp_path: Path) -> None:
    options = {"penalty": 0.0} if model == "self-attentive" else {}
    problem = prepared(tmp_path, model, smoothing=smoothing, **options)
    made, batch = model_of(problem), problem.load_batch(problem.plan_epoch(0)[0], 0, 1)
    loss = problem.loss(made, batch)
    logits = made(batch.tokens, batch.lengths)
    expected = F.cross_entropy(logits.float(), batch.labels, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss.total, expected)
    right = (logits.argmax(-1) == batch.labels).sum()
    assert (loss.count, float(loss.sums["accuracy"])) == (len(batch.labels), 100.0 * float(right))


def test_the_penalty_is_added(tmp_path: Path) -> None:
    plain, penalised = prepared(tmp_path / "a", penalty=0.0), prepared(tmp_path / "b", penalty=0.7)
    made = model_of(plain)
    batch = plain.load_batch(plain.plan_epoch(0)[0], 0, 1)
    weights = made.classify(batch.tokens, batch.lengths, Need(weights=True)).weights
    expected = plain.loss(made, batch).total + 0.7 * frobenius_penalty(weights.float()).sum()
    torch.testing.assert_close(penalised.loss(made, batch).total, expected)


@pytest.mark.parametrize("model", ["self-attentive", "hierarchical"])
def test_hard_attention_learns_by_its_rewards(model: str, tmp_path: Path) -> None:
    options = {"penalty": 0.0} if model == "self-attentive" else {}
    problem = prepared(tmp_path, model, attention="hard", batch=90, **options)
    made = model_of(problem)
    # a batch of texts of one sentence cannot teach which sentence to attend to
    planned = SeededRows((0, 0, 0), np.concatenate([each.rows for each in problem.plan_epoch(0)]))
    batch = problem.load_batch(planned, 0, 1)
    assert batch is not None
    queries = [p for name, p in made.named_parameters() if name.endswith("query")]
    problem.loss(made.train(), batch).total.backward()
    assert queries
    assert all(p.grad is not None and p.grad.any() for p in queries)
    # the cross-entropy alone gives them no gradient: they only choose a token
    made.zero_grad()
    problem.loss(made.eval(), batch).total.backward()
    assert all(p.grad is None or not p.grad.any() for p in queries)


def trained(problem: ClassifyTextProblem, steps: int, lr: float = 0.02) -> TextClassifier:
    torch.manual_seed(1)
    model = problem.build_model().train()
    optimizer = torch.optim.Adam(model.parameters(), lr)
    plan = [planned for epoch in range(steps) for planned in problem.plan_epoch(epoch)][:steps]
    for planned in plan:
        batch = problem.load_batch(planned, 0, 1)
        assert batch is not None
        loss = problem.loss(model, batch)
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        optimizer.step()
    return model.eval()


@every_model
def test_it_learns(model: str, tmp_path: Path) -> None:
    problem = prepared(tmp_path, model, batch=90)
    result = problem.validate(trained(problem, 60))
    assert (result.main, result.higher_is_better) == ("accuracy", True)
    assert result.value > 95
    assert result.values["nll"] < 0.5
    assert "→" in result.sample


def test_the_baseline_is_a_logistic_regression(tmp_path: Path) -> None:
    """Its gradient vanishes: Σ (p − y) x + W = 0; and it is saved with the run."""
    problem = prepared(tmp_path, tokens="folded-words")
    vocabulary, classes = len(problem.tokenizer), len(problem.classes)
    model = fit_baseline(problem.texts, problem.labels, vocabulary, classes)
    saved = classification.load_baseline(BagOfWords(vocabulary, classes), tmp_path)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), saved.parameters(), strict=True))
    tokens, lengths = pad(problem.texts, by_sentence=False)
    total = F.cross_entropy(model(tokens, lengths), torch.from_numpy(problem.labels), reduction="sum")
    decay = sum(p.square().sum() for p in model.parameters() if p.ndim > 1) / 2
    gradients = torch.autograd.grad(total + decay, list(model.parameters()))
    assert max(float(gradient.abs().max()) for gradient in gradients) < 0.05
    assert isinstance(model, BagOfWords)
    assert problem.validate(model).value == 100.0


def test_a_fit_of_many_counts_and_classes_has_fewer_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = torch.eye(6).to_sparse()
    labels = np.arange(6)
    whole, _ = classification.fit_logistic(counts, labels, 6)
    monkeypatch.setattr(classification, "_MAX_PRODUCTS", 2 * 36)
    short, _ = classification.fit_logistic(counts, labels, 6)
    assert 0 < float(short.norm()) < float(whole.norm())


def test_a_baseline_of_another_vocabulary(tmp_path: Path) -> None:
    prepared(tmp_path)
    with pytest.raises(ValueError, match=r"baseline\.safetensors is of another vocabulary; restore it, or train"):
        classification.load_baseline(BagOfWords(7, 3), tmp_path)
    with pytest.raises(FileNotFoundError, match=r"holds no baseline\.safetensors; name the folder of a training run"):
        classification.load_baseline(BagOfWords(7, 3), tmp_path / "data")


class _Attends(TextClassifier):
    """Reads the tokens with number 5 alone, or all alike."""

    def classify(self, tokens: torch.Tensor, lengths: torch.Tensor, need: Need = NOTHING) -> TextClassifierOutput:
        at = (tokens == 5).double()
        weights = torch.stack([at / at.sum(-1, keepdim=True), (tokens != PAD).double() / lengths[:, None]], 1)
        return TextClassifierOutput(torch.zeros(len(tokens), 2), weights)


def test_evidence_attention_of_a_case_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the hops read token 5, half of them all tokens: (1 + 2/5) / 2 and (0 + 3/4) / 2."""
    predictor = ClassifyTextPredictor(_Attends(), Tokenizer.train("words", ["a b c d e f"], 20), ["a", "b"])
    monkeypatch.setattr(ClassifyTextPredictor, "device", torch.device("cpu"))
    texts = [[[6, 7, 8], [5, 9]], [[5], [6, 7, 8]]]
    assert evidence_attention(predictor, texts, np.array([1, 1])) == pytest.approx(100 * (0.7 + 0.375) / 2)
    assert evidence_attention(predictor, texts, np.array([1, 7])) == pytest.approx(100 * 0.7 / 2), "cut off"


def test_evidence_attention_of_sentences(tmp_path: Path) -> None:
    """That of a hierarchical model is its sentence attention."""
    problem = prepared(tmp_path, "hierarchical")
    predictor = ClassifyTextPredictor(model_of(problem).float(), problem.tokenizer, problem.classes)
    texts = [text for text in problem.texts if len(text) == 2]
    tokens, lengths = pad(texts, by_sentence=True)
    with torch.no_grad():
        weights = predictor.model.classify(tokens, lengths, Need(weights=True)).sentence_weights
    expected = 100 * float(weights[:, 1].mean())
    assert evidence_attention(predictor, texts, np.ones(len(texts), int)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("model", ["self-attentive", "hierarchical"])
def test_evidence_behind_a_sentence_without_tokens(model: str, tmp_path: Path) -> None:
    """It has no attention, and the others have theirs as if it were absent."""
    problem = prepared(tmp_path, model)
    predictor = ClassifyTextPredictor(model_of(problem).float(), problem.tokenizer, problem.classes)
    without, at = predictor.sentence_shares([[[5, 6], [7]], [[5, 6], [], [7]]])
    torch.testing.assert_close(at, torch.stack([without[0], torch.tensor(0.0), without[1]]))


def test_texts_that_are_cut_off_are_counted(tmp_path: Path) -> None:
    assert "; 9 texts are cut off after 5 tokens" in prepared(tmp_path, max_length=5).summary
    assert "cut off" not in prepared(tmp_path / "b").summary


def test_a_batch_is_named_by_its_first_text(tmp_path: Path) -> None:
    problem = prepared(tmp_path)
    planned = problem.plan_epoch(0)[0]
    first = problem.tokenizer.decode(problem.texts[planned.rows[0]][0])
    assert problem.locate([planned]) == f"{len(planned.rows)} texts of train.txt, the first of them {first!r}"


@every_model
def test_evaluation_prints_the_baseline_and_intervals(model: str, tmp_path: Path) -> None:
    task = config(tmp_path, model).load()
    problem = task.prepare(tmp_path, new=True)
    predictor = task.predictor(tmp_path)
    predictor.model.load_state_dict(trained(problem, 40).state_dict())
    evaluation = task.evaluate(predictor, tmp_path, EvaluateLabelledTexts(), lambda done, count: None)
    assert (evaluation.count, evaluation.unit) == (7, "texts")
    assert evaluation.split == f"the validation texts of {tmp_path}, which has no test texts"
    assert list(evaluation.scores) == ["accuracy", "macro f1", "nll"]
    assert list(evaluation.facts) == ["baseline", "naive_bayes", "trained_on"]
    assert set(evaluation.intervals) == set(evaluation.facts["baseline"]["intervals"]) == set(evaluation.scores)
    for name, (low, high) in evaluation.intervals.items():
        assert low <= evaluation.scores[name] <= high
    warning, note, _, hardest = evaluation.notes
    assert warning.startswith("Warning: the run was trained on 7 of the 7 texts of ")
    assert note.startswith("bag of words, the baseline: accuracy 100.00 (95 % interval ")
    assert hardest.startswith("hardest classes: ")
    assert evaluation.facts["baseline"]["scores"]["accuracy"] == 100.0
    assert len(evaluation.predictions) == 7
    # files that are not the run's own
    other = tmp_path / "other.tsv"
    other.write_text("text\tlabel\nA film that is fine.\tgood\n")
    evaluation = task.evaluate(
        predictor, tmp_path, EvaluateLabelledTexts(test=(other, other)), lambda done, count: None
    )
    assert (evaluation.count, evaluation.split) == (2, f"{other} {other}")
    other.write_text("goode\tA film.\n")
    with pytest.raises(ValueError, match=r"other\.tsv has no label that the run knows, only 'goode'; the run knows "):
        task.evaluate(predictor, tmp_path, EvaluateLabelledTexts(test=(other,)), lambda done, count: None)


def test_evidence_is_scored_on_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = dataclasses.replace(
        embedded.TEXTS["documents"], splits=partial(embedded.TEXTS["documents"].splits, train=90, valid=30, test=30)
    )
    monkeypatch.setitem(embedded.TEXTS, "documents", few)
    for model, has in (("hierarchical", True), ("bag-of-words", False)):
        task = ClassifyText.of(data="documents", model=model, **SMALL[model]).load()
        folder = tmp_path / model
        folder.mkdir()
        task.prepare(folder, new=True)
        evaluation = task.evaluate(
            task.predictor(folder), folder, EvaluateLabelledTexts(split="valid"), lambda done, count: None
        )
        assert ("evidence" in evaluation.scores) == has
        assert evaluation.split == "the validation texts of documents"


def test_a_file_with_parts_is_evaluated_on_the_part_of_the_split(tmp_path: Path) -> None:
    parts = {
        name: [[f"{name} {label} text {n}", label] for label in ("x", "y") for n in range(count)]
        for name, count in (("train", 6), ("val", 2), ("test", 3))
    }
    path = tmp_path / "data.json"
    path.write_text(json.dumps(parts))
    task = ClassifyText.of(train=path, valid=path, test=path, width=4, hidden=4, hops=1, feed=4).load()
    task.prepare(tmp_path / "run", new=True)
    for split, texts in (("valid", 4), ("test", 6)):
        found = task.evaluate(
            task.predictor(tmp_path / "run"),
            tmp_path / "run",
            EvaluateLabelledTexts(split=split),  # type: ignore[arg-type]
            lambda done, count: None,
        )
        assert found.count == texts
