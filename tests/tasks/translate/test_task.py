"""The work of a translation task: its loss is the cross-entropy, shards add up to the whole, and it learns."""

import dataclasses
import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.product import first
from torch import Tensor

from regard.data.text.batching import PairBatch
from regard.data.text.lines import Lines
from regard.data.text.pairs import Pairs, Splits
from regard.data.text.special_tokens import PAD
from regard.decoding.search import Beam, Greedy
from regard.layers.rnn.decoder_base import DecoderOutput
from regard.losses import linear_cross_entropy
from regard.tasks.shared.text_generation import TokenLoss, hard_attention_loss
from regard.tasks.translate import task as translation
from regard.tasks.translate.fingerprint import CorpusFingerprint
from regard.tasks.translate.options import Translate
from regard.tasks.translate.predictor import EXTRA_TOKENS, Translator
from regard.tasks.translate.task import TranslateProblem, evaluate, read

MODELS: dict[str, dict[str, Any]] = {
    "bahdanau": {"hidden": 24},
    "luong": {"hidden": 24, "decoder": "luong"},
    "luong-feeding": {"hidden": 24, "decoder": "luong-feeding", "cell": "lstm"},
    "fixed": {"hidden": 24, "decoder": "fixed"},
    "transformer": {"model": "transformer", "heads": 2, "layers": 1},
}


def reversals(count: int, longest: int = 4, letters: str = "abcdef") -> list[str]:
    chance = random.Random(7)
    every = ["".join(word) for length in range(2, longest + 1) for word in itertools.product(letters, repeat=length)]
    return [f"{word}\t{word[::-1]}\n" for word in chance.sample(every, count)]


def files(folder: Path, train: int = 83, valid: int = 11) -> dict[str, Any]:
    """Options of a task on small files."""
    lines = reversals(train + valid)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.tsv").write_text("".join(lines[:train]), encoding="utf-8")
    (folder / "valid.tsv").write_text("".join(lines[train:]), encoding="utf-8")
    sides = {"train": (folder / "train.tsv",), "valid": (folder / "valid.tsv",)}
    return {**sides, "tokens": "characters", "metric": "exact", "width": 16, "batch": 40, "dropout": 0.0}


def prepared(folder: Path, **options: Any) -> TranslateProblem:
    return Translate.of(**{**files(folder / "data"), **options}).prepare(folder)


def model_of(work: TranslateProblem) -> Any:
    torch.manual_seed(3)
    return work.build_model().double()


def test_batches_are_every_pair_once_and_a_pure_function(tmp_path: Path) -> None:
    work = prepared(tmp_path)
    plans = [work.plan_epoch(epoch) for epoch in (0, 1, 0)]
    for plan in plans:
        assert sorted(n for planned in plan for n in planned.tolist()) == list(range(83))
    assert [p.tolist() for p in plans[0]] == [p.tolist() for p in plans[2]] != [p.tolist() for p in plans[1]]
    batch = work.load_batch(plans[0][0], 0, 1)
    assert work.num_terms(batch) == batch.tokens == int((batch.target[:, 1:] != PAD).sum())
    assert max(batch.source.numel(), batch.target[:, 1:].numel()) <= 40
    source, target = work.vocabularies.source, work.vocabularies.target
    for one, other in zip(batch.source.tolist(), batch.target.tolist(), strict=True):
        assert source.decode(one) == target.decode(other)[::-1]


def test_a_batch_is_named_by_the_lines_of_the_file(tmp_path: Path) -> None:
    """Whatever was held out or dropped before them."""
    lines = [f"{'ab' * (n % 7)}{n:03}\t{n:03}\n" if n % 5 else "\t\n" for n in range(200)]
    (tmp_path / "train.tsv").write_text("".join(lines))
    options = {"tokens": "characters", "max_length": 13, "width": 16, "hidden": 24, "batch": 200}
    work = Translate.of(train=(tmp_path / "train.tsv",), **options).prepare(tmp_path)
    assert len(work.held) == 3
    assert len(work.corpus.left_out) > 40
    for planned in work.plan_epoch(0):
        batch = work.load_batch(planned, 0, 1)
        said = sorted(int(work.vocabularies.target.decode(row)) + 1 for row in batch.target.tolist())
        some = ", ".join(map(str, said[:12]))
        more = f" and {len(said) - 12} more" if len(said) > 12 else ""
        assert work.locate([planned]) == f"lines {some}{more} of train.tsv"
    assert re.fullmatch(r"line \d+ of train\.tsv", work.locate([planned[:1]]))
    assert re.fullmatch(r"lines \d+, \d+ of train\.tsv", work.locate([planned[:1], planned[1:2]]))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_cross_entropy_of_what_is_no_padding(name: str, smoothing: float, tmp_path: Path) -> None:
    work = prepared(tmp_path, smoothing=smoothing, **MODELS[name])
    model, batch = model_of(work), work.load_batch(work.plan_epoch(0)[0], 0, 1)
    loss = work.loss(model, batch)
    logits = model(batch.source, batch.source_lengths, batch.target[:, :-1]).flatten(0, 1)
    targets = batch.target[:, 1:].flatten()
    # torch counts padding's share of the smoothing among the words, as we do, and leaves out padded rows
    want = F.cross_entropy(logits, targets, ignore_index=PAD, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(loss.total, want)
    assert loss.count == batch.tokens
    torch.testing.assert_close(loss.sums["nll"], F.cross_entropy(logits, targets, ignore_index=PAD, reduction="sum"))
    inputs = list(model.parameters())
    for one, other in zip(torch.autograd.grad(loss.total, inputs), torch.autograd.grad(want, inputs), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("world", [2, 3])
def test_shards_add_up_to_the_whole(name: str, world: int, tmp_path: Path) -> None:
    work = prepared(tmp_path, **MODELS[name])
    model, planned = model_of(work), max(work.plan_epoch(0), key=len)
    assert len(planned) > world

    def learned(batches: list[PairBatch | None]) -> tuple[float, int, list[Tensor]]:
        model.zero_grad()
        losses = [work.loss(model, batch) for batch in batches if batch is not None]
        for loss in losses:
            loss.total.backward()
        totals = sum(float(loss.total.detach()) for loss in losses), sum(loss.count for loss in losses)
        return *totals, [p.grad.clone() for p in model.parameters()]

    whole = learned([work.load_batch(planned, 0, 1)])
    parts = learned([work.load_batch(planned, rank, world) for rank in range(world)])
    assert parts[0] == pytest.approx(whole[0])
    assert parts[1] == whole[1]
    for one, other in zip(parts[2], whole[2], strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("cumulative", [True, False])
def test_a_sample_is_rewarded_by_its_consequences(cumulative: bool) -> None:
    """Σ −(R − b) log p − β H in plain loops: R what came after the draw, or at once where no state carries it on."""
    nll_of = [[1.0, 2.0, 0.5], [3.0, 0.25]]
    log_of, entropy_of = [[-0.1, -0.7, -0.3, 9.0], [-1.1, -0.2, 9.0, 9.0]], [[0.3, 0.4, 0.5, 9.0], [0.6, 0.1, 9.0, 9.0]]
    keep = torch.tensor([[True, True, True, False], [True, True, False, False]])
    taught = DecoderOutput(torch.zeros(2, 4, 1), None, torch.tensor(log_of), torch.tensor(entropy_of))
    nll = torch.tensor([x for row in nll_of for x in row])
    got = hard_attention_loss(TokenLoss(nll.sum(), nll, keep, taught), None, 0.05, cumulative=cumulative)
    rewards = [[-(sum(row[t:]) if cumulative else row[t]) for t in range(len(row))] for row in nll_of]
    want = 0.0
    for b, row in enumerate(rewards):
        for t, reward in enumerate(row):
            others = [other[t] for n, other in enumerate(rewards) if t < len(other) and n != b]
            advantage = reward - sum(others) / len(others) if others else 0.0
            want -= advantage * log_of[b][t] + 0.05 * entropy_of[b][t]
    assert float(got) == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("decoder", ["bahdanau", "luong", "luong-feeding"])
def test_hard_attention_is_taught_where_to_look(decoder: str, tmp_path: Path) -> None:
    work = prepared(tmp_path, attention="hard", decoder=decoder, hidden=24)
    model, batch = model_of(work), work.load_batch(work.plan_epoch(0)[0], 0, 1)
    work.loss(model, batch).total.backward()
    for key, p in model.named_parameters():
        assert p.grad is not None, key
        assert p.grad.any(), key
    # in evaluation nothing is drawn, and the loss is the likelihood alone
    model.eval()
    targets = batch.target[:, 1:]
    logits = model(batch.source, batch.source_lengths, batch.target[:, :-1])
    want = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=PAD, reduction="sum")
    loss = work.loss(model, batch)
    torch.testing.assert_close(loss.sums["nll"], want)


def test_validation(tmp_path: Path) -> None:
    work = prepared(tmp_path, valid_lines=7)
    model = model_of(work).eval()
    with torch.no_grad():
        score = work.validate(model)
    assert len(work.valid) == len(work.valid_corpus) == 7
    assert score.main == "exact"
    assert score.higher_is_better
    assert set(score.values) == {"exact", "bleu", "chrf", "nll"}
    total = count = 0.0
    model.requires_grad_(False)
    for n in range(7):
        source = work.vocabularies.source.encode([work.valid.source[n]])[0]
        target = work.vocabularies.target.encode([work.valid.target[n]])[0]
        states = model.teacher_force(
            torch.tensor([[*source, 2]]), torch.tensor([len(source) + 1]), torch.tensor([[1, *target]])
        ).states
        total += float(
            linear_cross_entropy(states[0], model.output.weight, torch.tensor([*target, 2]), bias=model.output.bias)[0]
        )
        count += len(target) + 1
    assert score.values["nll"] == pytest.approx(total / count)
    assert score.sample.startswith(f"{work.valid.source[3]} → ")
    assert score.sample.endswith(f"(right: {work.valid.target[3]})")


@pytest.mark.parametrize(
    ("metric", "reported", "higher"),
    [("bleu", ("bleu", "chrf"), True), ("nll", ("bleu", "chrf"), False), ("per", ("per", "bleu", "chrf"), False)],
)
def test_the_score_that_decides(metric: str, reported: tuple[str, ...], higher: bool, tmp_path: Path) -> None:
    work = prepared(tmp_path, metric=metric)
    assert work.reported == reported
    with torch.no_grad():
        score = work.validate(model_of(work).eval())
    assert score.main == metric
    assert score.higher_is_better == higher
    assert score.value == score.values[metric]


def test_targets_without_spaces_are_scored_by_letters(tmp_path: Path) -> None:
    """Told, recorded, and so when the run goes on; what is asked for is not told."""
    letters = str.maketrans("abcdef", "我们在这里学")
    data = files(tmp_path / "data")
    for path in (*data["train"], *data["valid"]):
        lines = (line.split("\t") for line in path.read_text().splitlines())
        path.write_text("".join(f"{one}\t{other.translate(letters)}\n" for one, other in lines), encoding="utf-8")
    work = Translate.of(**data).prepare(tmp_path)
    assert work.summary.endswith(
        "; BLEU is cut by zh, as the targets are written without spaces; --bleu says otherwise"
    )
    assert work.bleu == work.config.prepare(tmp_path, new=False).bleu == CorpusFingerprint.read(tmp_path).bleu == "zh"
    with torch.no_grad():
        model = model_of(work).eval()
        values = work.validate(model).values
    interpreter = Translator(model, work.vocabularies, stretch=work.stretch)
    assert evaluate(interpreter, work.valid, Greedy(), ["bleu"], bleu="zh")[0]["bleu"] == values["bleu"]
    for cut in ("char", "13a"):
        asked = Translate.of(**data, bleu=cut).prepare(tmp_path / cut)
        assert (asked.bleu, "BLEU" in asked.summary) == (cut, False)
    # a run that began when all was cut by 13a goes on so
    told = json.loads((tmp_path / "data.json").read_text())
    del told["bleu"]
    (tmp_path / "data.json").write_text(json.dumps(told))
    assert work.config.prepare(tmp_path, new=False).bleu == "13a"
    with pytest.raises(
        ValueError, match=r"bleu was '13a' when \S+ began and is 'char' now; leave it out, or train anew"
    ):
        Translate.of(**data, bleu="char").prepare(tmp_path, new=False)


def test_any_of_several_answers_is_right() -> None:
    class Parrot(Translator):
        def __init__(self) -> None:
            pass

        def translate(self, lines: Any, search: Any = Greedy(), done: Any = None) -> Any:  # type: ignore[override]
            from regard.tasks.translate.predictor import GeneratedText

            return [[GeneratedText(line.upper(), (), 0.0, 0.0, True)] for line in lines]

    pairs = Pairs(["a", "b"], ["x", "y"], [("x", "A"), ("y", "z")])
    assert evaluate(Parrot(), pairs, Beam(), ["exact", "wer"]) == ({"exact": 50.0, "wer": 50.0}, ["A", "B"])


def test_files_without_valid_hold_out_a_fiftieth(tmp_path: Path) -> None:
    options = {**files(tmp_path, train=150), "valid": ()}
    splits = read(Translate.of(**options))
    assert (len(splits.train), len(splits.valid)) == (147, 3)
    assert splits.test is splits.valid
    whole = [line.rstrip("\n").split("\t") for line in (tmp_path / "train.tsv").read_text().splitlines()]
    got = [*zip(splits.train.source, splits.train.target, strict=True)]
    held = [*zip(splits.valid.source, splits.valid.target, strict=True)]
    assert sorted(got + held) == sorted(map(tuple, whole))
    assert got == [tuple(pair) for pair in whole if tuple(pair) not in held]  # in their order
    assert list(read(Translate.of(**options)).valid.source) == list(splits.valid.source)
    assert list(read(Translate.of(**options, seed=1)).valid.source) != list(splits.valid.source)
    # however many lines there are, memory does not hold them all
    assert isinstance(splits.train.source, Lines)


def test_files_to_test_on(tmp_path: Path) -> None:
    options = files(tmp_path)
    (tmp_path / "test.tsv").write_text("ab\tba\n")
    assert list(read(Translate.of(**options, test=(tmp_path / "test.tsv",))).test.source) == ["ab"]
    assert len(read(Translate.of(**options)).test) == 11


def test_files_without_text(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_text("\n \n\n", encoding="utf-8")
    (tmp_path / "a.de").write_text("ein\nHund\n\n", encoding="utf-8")
    train = (tmp_path / "a.en", tmp_path / "a.de")
    said = f"train={train[0]} {train[1]} has no text on the side of the source, in 3 lines; give lines to learn from"
    with pytest.raises(ValueError, match=re.escape(said)):
        Translate.of(train=train).prepare(tmp_path)


def test_saved_once_and_the_same_when_resumed(tmp_path: Path) -> None:
    work = prepared(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert names == ["data.json", "examples.safetensors", "tokens.source.json", "tokens.target.json"]
    assert json.loads((tmp_path / "data.json").read_text())["train"] == 83
    saved = {name: (tmp_path / name).read_bytes() for name in names}
    again = work.config.prepare(tmp_path, new=False)
    assert [p.tolist() for p in again.plan_epoch(3)] == [p.tolist() for p in work.plan_epoch(3)]
    assert {name: (tmp_path / name).read_bytes() for name in names} == saved
    assert "83 pairs to train on, 11 to validate" in work.summary
    assert work.config.load().predictor(tmp_path).vocabularies.source.encode(
        ["fab"]
    ) == work.vocabularies.source.encode(["fab"])


def test_changed_data_is_refused(tmp_path: Path) -> None:
    work = prepared(tmp_path)
    for name, count in (("train", 83), ("valid", 11)):
        path = getattr(work.config, name)[0]
        text = path.read_text()
        for changed, now in ((text + "ab\tba\n", count + 1), (text.replace("a", "b"), count)):
            path.write_text(changed)
            message = f"the {name} data of .* has changed: it had {count} pairs, now {now}, and other content; put the"
            with pytest.raises(ValueError, match=message):
                work.config.prepare(tmp_path, new=False)
        path.write_text(text)
    work.config.prepare(tmp_path, new=False)


def test_a_damaged_fingerprint_is_refused(tmp_path: Path) -> None:
    work = prepared(tmp_path)
    for text in ("{}", '{"train":' * 100_000):
        (tmp_path / "data.json").write_text(text)
        with pytest.raises(
            ValueError, match="data.json does not describe the data of a run .*; restore it, or train in"
        ):
            work.config.load().predictor(tmp_path)
    (tmp_path / "data.json").unlink()
    with pytest.raises(FileNotFoundError, match="holds no data.json; name the folder of a training run"):
        work.config.load().predictor(tmp_path)


def test_an_example_needs_no_training_file(tmp_path: Path) -> None:
    work = prepared(tmp_path)
    work.config.train[0].unlink()
    assert work.config.load().example(tmp_path) == work.valid.source[0]


def test_a_test_file_may_change(tmp_path: Path) -> None:
    test = tmp_path / "test.tsv"
    test.write_text("ab\tba\n")
    work = prepared(tmp_path, test=(test,))
    test.write_text("ab\tba\nba\tab\n")
    work.config.prepare(tmp_path, new=False)


def test_a_new_run_learns_its_own_vocabularies(tmp_path: Path) -> None:
    """Whatever one that failed has left in the folder."""
    prepared(tmp_path, tokens="characters")
    work = prepared(tmp_path, tokens="words")
    assert work.vocabularies.source.kind == "words"
    assert work.config.load().predictor(tmp_path).vocabularies.source.kind == "words"
    prepared(tmp_path, tokens="bpe", vocabulary=300, shared=True)
    assert not (tmp_path / "tokens.source.json").exists()


def test_a_resumed_run_that_was_killed_while_it_read_learns_them(tmp_path: Path) -> None:
    work = prepared(tmp_path)
    (tmp_path / "data.json").unlink()
    assert work.config.prepare(tmp_path, new=False).stretch == work.stretch
    assert (tmp_path / "data.json").exists()


def test_blank_lines_are_not_validated_on(tmp_path: Path) -> None:
    """Of a file of documents with blank lines between them, or before them."""
    lines = ["\t\n"] * 300 + [line + "\t\n" for line in reversals(250)]
    (tmp_path / "train.tsv").write_text("".join(lines))
    options = {"tokens": "characters", "width": 16, "hidden": 24, "valid_lines": 3}
    work = Translate.of(train=(tmp_path / "train.tsv",), **options).prepare(tmp_path)
    assert (len(work.valid), len(work.valid_corpus), len(work.corpus)) == (3, 3, 247)
    assert all(line.strip() for line in (*work.valid.source, *work.valid.target))
    # drawn by the seed: a run that goes on validates on the same
    again = work.config.prepare(tmp_path, new=False)
    assert list(again.valid.source) == list(work.valid.source)


def test_pairs_to_validate_on_have_two_sides(tmp_path: Path) -> None:
    (tmp_path / "valid.tsv").write_text("ab\t \n\tba\n")
    with pytest.raises(ValueError, match="valid has 2 lines and none with two sides; give pairs to validate on"):
        prepared(tmp_path, valid=(tmp_path / "valid.tsv",))


def test_targets_much_longer_than_their_sources_are_not_cut(tmp_path: Path) -> None:
    """The limit is learned from the pairs: no target of theirs is beyond it."""
    (tmp_path / "train.tsv").write_text("a\t" + "x" * 40 + "\nbbb\t" + "y" * 60 + "\n")
    (tmp_path / "valid.tsv").write_text("a\tx\n")
    task = Translate.of(train=(tmp_path / "train.tsv",), valid=(tmp_path / "valid.tsv",), tokens="characters")
    work = task.prepare(tmp_path)
    assert work.stretch == pytest.approx(61 / (4 + 10))
    model = work.build_model()  # made to say one token for ever
    for p in model.parameters():
        torch.nn.init.zeros_(p)
    torch.nn.init.constant_(model.output.bias[-1:], 9.0)
    (said,) = Translator(model, work.vocabularies, stretch=work.stretch).translate(["bbb"])
    assert len(said[0].tokens) == 61 + EXTRA_TOKENS


def test_what_is_dropped_is_told(tmp_path: Path) -> None:
    options = files(tmp_path / "data")
    longer = sum(len(line.split("\t")[0]) > 3 for line in (tmp_path / "data" / "train.tsv").read_text().splitlines())
    work = Translate.of(**options, max_length=3).prepare(tmp_path)
    assert len(work.corpus) == 83 - longer
    assert f"dropped {longer} of 83 pairs: {longer} with a side of more than 3 tokens" in work.summary
    assert len(work.valid_corpus) == 11  # every line counts


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    options = files(tmp_path / "data")
    with pytest.raises(ValueError, match="no pair is left to learn from: dropped 83 of 83 pairs"):
        Translate.of(**options, max_length=1).prepare(tmp_path)
    one = tmp_path / "one.tsv"
    one.write_text("ab\tba\n")
    with pytest.raises(
        ValueError, match="train has no pair to spare for validation: of 1 lines 1 have text on both sides, and not two"
    ):
        read(Translate.of(train=(one,)))
    one.write_text("a b c\tc a\na b a\ta a\na b\tb b\n" * 3)
    told = (
        "points at tokens of the source, each once, and the target 'b b' has 'b' more often than its source 'a b'; take"
    )
    with pytest.raises(ValueError, match=told):
        Translate.of(train=(one,), model="pointer", tokens="words").prepare(tmp_path / "pointed")
    (tmp_path / "data" / "valid.tsv").write_text("ab\tba\nabcdefabcdef\tfed\n")
    told = "positions='learned' knows 10 positions at max_length=4, a line to .* has 13 tokens; raise max_length to 6"
    learned = Translate.of(**options, max_length=4, model="transformer", positions="learned")
    with pytest.raises(ValueError, match=told):
        learned.prepare(tmp_path / "other")
    dataclasses.replace(learned, max_length=6).prepare(tmp_path / "fits")


def test_embedded_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its seed; reported as it suits."""
    from regard.data.embedded import letters

    def few(seed: int) -> Splits:
        return letters.reverse_splits(seed, 41, 5, 3, longest=4)

    kind = dataclasses.replace(translation.EMBEDDED["reverse"], splits=few)
    monkeypatch.setitem(translation.EMBEDDED, "reverse", kind)
    works = [Translate.of(data="reverse", seed=seed).prepare(tmp_path / str(seed)) for seed in (0, 1)]
    assert list(works[0].valid.source) != list(works[1].valid.source)
    assert works[0].reported == ("exact",)
    assert len(works[0].corpus) == 41


# steps that are enough to learn some of it
LEARNERS: dict[str, tuple[int, dict[str, Any]]] = {
    "bahdanau": (70, {"hidden": 48}),
    "hard, fed on": (100, {"hidden": 48, "attention": "hard"}),
    "luong": (50, {"hidden": 48, "decoder": "luong"}),
    "transformer": (120, {"model": "transformer", "heads": 2, "layers": 1, "width": 32}),
    "hard": (100, {"hidden": 48, "attention": "hard", "decoder": "luong"}),
}


@pytest.mark.parametrize("name", first(LEARNERS, 2))
def test_it_learns(name: str, tmp_path: Path) -> None:
    """To turn words of up to four letters round, of which by chance less than one in a hundred comes out right."""
    steps, options = LEARNERS[name]
    task = Translate.of(**{**files(tmp_path / "data", train=900, valid=100), "width": 32, "batch": 256, **options})
    work = task.prepare(tmp_path)
    torch.manual_seed(0)
    model = work.build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2 if name != "transformer" else 4e-3)
    losses: list[float] = []
    plans = itertools.chain.from_iterable(work.plan_epoch(epoch) for epoch in itertools.count())
    for planned in itertools.islice(plans, steps):
        loss = work.loss(model, work.load_batch(planned, 0, 1))
        losses.append(float(loss.sums["nll"]) / loss.count)
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        score = work.validate(model)
    assert sum(losses[-10:]) / 10 < losses[0] / 2
    assert score.values["exact"] > 30
    assert score.values["nll"] < losses[0] / 2
    # and each letter is sought where it stands
    interpreter = Translator(model, work.vocabularies)
    said = [found[0] for found in interpreter.translate(work.valid.source)]
    places = [
        (int(row.argmax()), len(aligned.source) - 2 - t)
        for aligned in interpreter.align(work.valid.source, said)
        for t, row in enumerate(aligned.weights[: len(aligned.source) - 1])
    ]
    assert sum(one == other for one, other in places) > (0.9 if "hard" in name else 0.5) * len(places)
