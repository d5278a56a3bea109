"""The task embed: pairs, retrieval, neighbours, vectors in a file, released encoders, and bad input."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tasks.encoders import bert_folder

import regard
from regard.cli.main import main
from regard.common import atomic_files
from regard.data.text.pairs import Pairs
from regard.tasks.embed.data import contrastive_batch, encode_pairs, plan_pairs, with_text
from regard.tasks.embed.options import Embed
from regard.tasks.embed.predictor import EmbedPredictor
from regard.tasks.embed.task import EmbedTask, evaluate_pairs, retrieval_of

WORDS = ("good", "bad", "film", "trip", "it was", "to")
LINES = [f"a {first} {second}" for first in WORDS for second in WORDS]
SIZES = ["--tokens", "characters", "--width", "8", "--heads", "2", "--layers", "1", "--batch", "8"]
STEPS = ["--steps", "2", "--threads", "1", "--device", "cpu", "--validate-every", "2", "--warmup", "1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pairs, lines, an encoder of transformers and a run that began with it."""
    path = tmp_path_factory.mktemp("embed")
    (path / "pairs.tsv").write_text("".join(f"{line}\t{line[::-1]}\n" for line in LINES), encoding="utf-8")
    (path / "lines.txt").write_text("".join(f"{line}\n" for line in [*LINES[:9], "", LINES[0]]), encoding="utf-8")
    bert_folder(path / "bert")
    args = ["--train", str(path / "pairs.tsv"), "--encoder", str(path / "bert"), "--batch", "8"]
    assert main(["train", "embed", *args, *STEPS, "--out", str(path / "run")]) == 0
    return path


def sentence(capsys: pytest.CaptureFixture[str], *args: object) -> str:
    """The error of a command that fails."""
    capsys.readouterr()
    assert main([*map(str, args)]) == 2, args
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1, printed.err
    return printed.err


def test_neighbours(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, lines = str(folder / "run"), str(folder / "lines.txt")
    capsys.readouterr()
    picture = tmp_path / "neighbours.svg"
    args = [run, LINES[0], "--neighbours", lines, "--top", "3"]
    assert main(["embed", *args, "--picture", str(picture)]) == 0
    printed = capsys.readouterr()
    first, second, _ = printed.out.rstrip("\n").split("\t")
    assert first == second == f"1.000 {LINES[0]}"
    assert f"the neighbours are drawn in {picture}" in printed.err
    assert LINES[0] in picture.read_text()
    assert main(["predict", *args, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["neighbours"]
    assert [each["line"] for each in found[:2]] == [1, 11], "the earlier line comes first"
    # the order is that of the cosines
    predictor = regard.load(folder / "run", device="cpu")
    vectors = np.stack([output.vector for output in predictor.predict([LINES[0], *LINES[:9]])])
    cosines = vectors[1:] @ vectors[0]
    assert found[2]["cosine"] == pytest.approx(sorted(cosines)[-2], abs=1e-5)


def test_vectors_of_a_file(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "vectors.npy"
    for model in (folder / "run", folder / "bert"):
        capsys.readouterr()
        assert main(["embed", str(model), "--file", str(folder / "lines.txt"), "--out", str(out)]) == 0
        printed = capsys.readouterr()
        assert printed.out == ""
        assert f"11 vectors of 12 numbers are in {out}" in printed.err
        assert "1 text is empty; its vector is that of the tokens which begin and end every text" in printed.err
        vectors = np.load(out, allow_pickle=False)
        assert vectors.shape == (11, 12)
        assert vectors.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
        predictor = regard.load(model, device="cpu")
        for row, line in ((0, LINES[0]), (3, LINES[3]), (9, ""), (10, LINES[0])):
            (alone,) = predictor.predict([line])
            np.testing.assert_allclose(vectors[row], alone.vector, rtol=1e-5, atol=1e-6)


def test_vectors_of_a_column(folder: Path, tmp_path: Path) -> None:
    sheet, out = tmp_path / "sheet.csv", tmp_path / "vectors.npy"
    sheet.write_text(f"number,line\n1,{LINES[0]}\n2,{LINES[3]}\n", encoding="utf-8")
    run = folder / "run"
    assert main(["embed", str(run), "--file", str(sheet), "--text-column", "line", "--out", str(out)]) == 0
    vectors = np.load(out, allow_pickle=False)
    outputs = regard.load(run, device="cpu").predict([LINES[0], LINES[3]])
    np.testing.assert_allclose(vectors, np.stack([output.vector for output in outputs]), rtol=1e-5, atol=1e-6)


def test_bad_input(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, bert, lines, out = folder / "run", folder / "bert", folder / "lines.txt", tmp_path / "vectors.npy"
    (tmp_path / "empty.txt").touch()
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "long.txt").write_text("a good film\n" + "film " * 60 + "\n")
    (tmp_path / "column.tsv").write_text("a\nb\n")
    (tmp_path / "one.tsv").write_text("a\tb\n\tc\nd\t\n")
    (tmp_path / "nothing").mkdir()
    cases: dict[tuple[object, ...], str] = {
        ("embed", run, "a", "--neighbours", lines, "--top", 11): "--top 11 exceeds the 10 lines with text of .*txt",
        ("embed", run, "a", "--top", 3): "--top 3 is the number of lines of --neighbours; name a file",
        ("embed", run, "--file", lines, "--out", out, "--top", 3): "--top 3 is the number of lines of --neighbours",
        ("embed", run, "a", "--neighbours", tmp_path / "empty.txt"): "empty.txt is empty; it must hold one sentence",
        ("embed", run, "a", "--neighbours", tmp_path / "blank.txt"): "has 2 lines without text; name a file",
        ("embed", run, "--file", tmp_path / "long.txt", "--out", out): r"has 62 tokens, more than the 40 positions of",
        ("embed", bert, "film " * 60): "more than the 40 positions of the encoder; split it into sentences",
        ("embed", run, "--file", lines, "--out", tmp_path / "x.txt"): "suffix of --out",
        ("embed", run, "--file", lines, "--out", out, "--json"): "--out .* and --json exclude each other",
        ("embed", run, "a", "--out", out, "--neighbours", lines): "--out .* and --neighbours exclude each other",
        ("train", "embed", "--train", tmp_path / "column.tsv"): "a line must be text, tab, text, got 0 tabs; or",
        ("train", "embed", "--train", tmp_path / "empty.txt"): "is empty; it must hold text, tab, text",
        ("train", "embed", "--train", tmp_path / "one.tsv"): "no pair to spare for validation",
        (
            *("train", "embed", "--valid", tmp_path / "one.tsv"),
        ): "has 1 of 3 pairs to valid with text on both sides, and a pair is only right among others; give two pairs",
        ("train", "embed", "--encoder", bert, "--width", 3): "--width 3 belongs to --model bert",
        ("train", "embed", "--encoder", bert, "--freeze", "all"): "--freeze all leaves nothing to train in embed",
        ("train", "embed", "--encoder", bert, "--freeze", "2"): "--freeze 2 leaves nothing to train in embed; use the",
        ("train", "embed", "--encoder", bert, "--head-rate", 2): "is for layers above the encoder, and embed has none",
        ("evaluate", run, "--test", tmp_path / "one.tsv"): "has 1 of 3 pairs with text on both sides",
        ("evaluate", bert): "name files with --test",
    }
    for words, message in cases.items():
        more = ["--out", tmp_path / "run", *STEPS] if words[0] == "train" else []
        more += ["--train", folder / "pairs.tsv"] if more and "--train" not in words else []
        assert re.search(message, sentence(capsys, *words, *more)), words
    assert not out.exists()
    assert not (tmp_path / "run").exists()


def test_evaluate_a_released_encoder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["evaluate", str(folder / "bert"), "--test", str(folder / "pairs.tsv"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["candidates"] == 36
    assert set(found["scores"]) == {"recall@1", "recall@10", "mrr", "nll"}
    assert set(found["baseline"]["scores"]) == {"recall@1", "recall@10", "mrr"}


def test_the_pooling_of_sentence_transformers(tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "bert")
    path = folder / "1_Pooling" / "config.json"
    path.parent.mkdir()
    modes = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False, "word_embedding_dimension": 12}
    path.write_text(json.dumps(modes))
    predictor = regard.load(folder, device="cpu")
    assert predictor.model.pooling == "first"
    modules = [
        {"idx": n, "name": str(n), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for n, (place, kind) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")])
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    assert isinstance(regard.load(folder, device="cpu"), EmbedPredictor)
    dense = {**modules[2], "type": "sentence_transformers.models.Dense"}
    elsewhere = {**modules[1], "path": "3_Pooling"}
    for wrong, message in (
        ([*modules, dense], "has a module 'Dense', and regard supports Transformer, Pooling, Normalize; take another"),
        ([modules[0], elsewhere], r"has its pooling in \['3_Pooling'\], and regard reads one in 1_Pooling; rename"),
        ([{"idx": 0}], r"modules.json must be a list of modules with type and path \('type'\); restore it"),
    ):
        (folder / "modules.json").write_text(json.dumps(wrong))
        with pytest.raises(ValueError, match=message):
            regard.load(folder, device="cpu")
    (folder / "modules.json").unlink()
    path.write_text(json.dumps({"pooling_mode_lasttoken": True}))
    with pytest.raises(ValueError, match=r"asks for pooling_mode_lasttoken, and regard supports one of .*mean_tokens"):
        regard.load(folder, device="cpu")


def test_an_encoder_of_a_run_of_embed(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    pairs = ["--train", str(folder / "pairs.tsv")]
    assert main(["train", "embed", *pairs, *SIZES, *STEPS, "--out", str(source)]) == 0
    # the first weights are those of the run, so before a step the vectors are, too
    task = EmbedTask(Embed.of(train=(folder / "pairs.tsv",), encoder=source))
    problem = task.prepare(_made(tmp_path / "next"), new=True)
    ours = regard.load(source, device="cpu").predict(LINES[:3])
    theirs = EmbedPredictor(problem.build_model(), problem.encoder.tokenizer).predict(LINES[:3])
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.vector, b.vector, rtol=1e-5, atol=1e-6)
    with pytest.raises(
        ValueError, match="a batch of 3 pairs leaves one of 2 processes fewer than two, and .*batch=4 or"
    ):
        problem.load_batch(np.arange(3), 0, 2)
    assert [len(problem.load_batch(np.arange(5), rank, 2) or ()) for rank in (0, 1)] == [3, 2]


def _made(path: Path) -> Path:
    atomic_files.make_folder(path)
    return path


def test_texts_that_are_cut_off_or_empty_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{line}\t{line}\n" for line in LINES) + "\tnothing\n" + "film " * 40 + "\ta film\n")
    run = tmp_path / "run"
    assert main(["train", "embed", "--train", str(file), *SIZES, *STEPS, "--max-length", "50", "--out", str(run)]) == 0
    printed = capsys.readouterr()
    assert "1 text is cut off after 50 tokens; 1 pair without text on both sides left out" in printed.err + printed.out
    assert main(["evaluate", str(run), "--test", str(file)]) == 0
    assert "1 text was cut off after 50 tokens" in capsys.readouterr().out


def test_equal_texts_are_no_negatives() -> None:
    pairs = [("a", "b"), ("a", "c"), ("d", "b"), ("e", "f")]

    class Letters:
        def encode(self, texts: Any, longest: int) -> Any:
            from regard.data.text.subwords import EncodedText

            return [EncodedText((ord(text),), (0,), (0,), (None,), ((0, 1),)) for text in texts]

    encoded = encode_pairs(Letters(), pairs, 9)  # type: ignore[arg-type]
    batch = contrastive_batch(encoded, np.arange(4))
    expected = torch.eye(4, dtype=torch.bool)
    expected[0, 1] = expected[1, 0] = expected[0, 2] = expected[2, 0] = True
    assert torch.equal(batch.same, expected)
    assert batch.texts.tokens.tolist() == [*map(ord, "aadebcbf")]


def test_batches_of_one_size() -> None:
    batches = plan_pairs(11, 4, 0, 1)
    assert [len(batch) for batch in batches] == [4, 4]
    assert len({*np.concatenate(batches).tolist()}) == 8
    assert not np.array_equal(batches[0], plan_pairs(11, 4, 0, 2)[0])
    assert [len(batch) for batch in plan_pairs(3, 4, 0, 1)] == [3]


def test_candidates_are_different_texts() -> None:
    queries, candidates, right, answers = retrieval_of([("a", "x"), ("b", "y"), ("c", "x"), ("a", "y"), ("a", "y")])
    assert (queries, candidates, right.tolist()) == (["a", "b", "c", "a", "a"], ["x", "y"], [0, 1, 0, 1, 1])
    assert [each.tolist() for each in answers] == [[0, 1], [1], [0], [0, 1], [0, 1]]
    assert with_text(Pairs(["a", " ", "c"], ["x", "y", ""])) == [("a", "x")]


def test_a_text_with_two_right_texts_can_score() -> None:
    """An oracle brings every first text and all of its second texts to one vector."""

    class Oracle:
        max_length = 9

        def vectors(self, texts: Any, done: Any = None) -> torch.Tensor:
            return torch.eye(2)[[int(text[0] in "by") for text in texts]]

        def num_cut(self, texts: Any) -> int:
            return 0

    pairs = Pairs(["a", "a", "b", "b"], ["x1", "x2", "y1", "y2"])
    evaluation = evaluate_pairs(Oracle(), pairs, "pairs", lambda done, total: None, 0.05)  # type: ignore[arg-type]
    assert evaluation.scores["recall@1"] == evaluation.scores["mrr"] == 100
    assert evaluation.scores["nll"] < 1e-6
    assert set(evaluation.intervals) == set(evaluation.scores)
    assert not any("right:" in sample for sample in evaluation.samples)
    assert any(note.startswith("the first text of 4 pairs has several right second texts") for note in evaluation.notes)


def test_training_finds_pairs(tmp_path: Path) -> None:
    """A text and its last word: nothing but training brings them together."""
    file = tmp_path / "pairs.tsv"
    names = [f"{a}{b}{c}" for a in "klmnp" for b in "aeiou" for c in "rst"]
    file.write_text("".join(f"{name}\t{name.upper()}\n" for name in names))
    more = ["--steps", "60", "--lr", "1e-2", "--threads", "1", "--validate-every", "60", "--warmup", "5"]
    assert main(["train", "embed", "--train", str(file), *SIZES, *more, "--out", str(tmp_path / "run")]) == 0
    predictor = regard.load(tmp_path / "run", device="cpu")
    vectors = [predictor.predict([name.upper() if upper else name for name in names]) for upper in (False, True)]
    a, b = (np.stack([output.vector for output in outputs]) for outputs in vectors)
    assert ((a @ b.T).argmax(1) == np.arange(len(names))).mean() > 0.5, "chance is 1 in 75"
