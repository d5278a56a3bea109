"""caption on the command line: train, evaluate, predict and compare."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.cli.conftest import Regard

from regard.cli.main import main
from regard.cli.verbs.train import TrainOptions, parse_task
from regard.decoding.search import Greedy
from regard.tasks.caption.options import Caption
from regard.tasks.caption.task import caption_scores
from regard.training.config import TrainingConfig
from regard.training.run_folder import write_config

TINY = ["--annotation", "6", "--channels", "4", "--width", "6", "--hidden", "8", "--threads", "1", "--warmup", "1"]


@pytest.fixture(scope="module")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captions")
    draw = np.random.default_rng(0)
    lines = []
    for n in range(6):
        pixels = draw.integers(0, 255, (12, 16), np.uint8)
        Image.fromarray(pixels).save(folder / f"{n}.png")
        lines += [f"{n}.png\tnumber {n % 3} here", f"{n}.png\there is {n % 3}"]
    (folder / "all.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def captioner(captions: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("captioner") / "run"
    tsv = str(captions / "all.tsv")
    command = ["train", "caption", *TINY, "--train", tsv, "--tokens", "words", "--steps", "3", "--out", str(run)]
    assert main(command) == 0
    return run


def test_evaluate(regard: Regard, captions: Path, captioner: Path, tmp_path: Path) -> None:
    ran = regard("evaluate", captioner, "--test", captions / "all.tsv", "--out", tmp_path / "said.txt")
    assert ran.code == 0
    assert ran.out.startswith("bleu  ")
    assert f"6 pictures, {captions / 'all.tsv'}, in " in ran.out
    assert "right: number 0 here / here is 0" in ran.out
    assert len((tmp_path / "said.txt").read_text().splitlines()) == 6
    assert "has no test pictures" not in ran.out
    two = regard("evaluate", captioner, "--test", captions / "all.tsv", captions / "all.tsv")
    assert two.code == 2
    assert "--test must be one .tsv file, got 2" in two.err


def test_evaluate_tells_what_weights_were_chosen_by(
    regard: Regard, captions: Path, captioner: Path, tmp_path: Path
) -> None:
    said = f"1 picture, the validation pictures of {captioner}, which has no test pictures"
    for words in ((), ("--split", "test")):
        ran = regard("evaluate", captioner, *words)
        assert ran.code == 0
        assert said in ran.out
        assert json.loads(regard("evaluate", captioner, "--json", *words).out)["split"] == "valid"
    tsv, run = captions / "all.tsv", tmp_path / "run"
    assert regard("train", "caption", *TINY, "--train", tsv, "--test", tsv, "--steps", 1, "--out", run).code == 0
    assert f"6 pictures, the test pictures of {run}" in regard("evaluate", run).out
    assert json.loads(regard("evaluate", run, "--json").out)["split"] == "test"


def test_captions_without_spaces_are_scored_as_translations_are(regard: Regard, captions: Path, tmp_path: Path) -> None:
    lines = (captions / "all.tsv").read_text(encoding="utf-8").splitlines()
    chinese, japanese = captions / "chinese.tsv", captions / "japanese.tsv"
    for file, words in ((chinese, "一只棕色的狗在雪地里跑"), (japanese, "いぬがゆきのなかをはしる")):
        file.write_text("".join(line.split("\t")[0] + f"\t{words}\n" for line in lines), encoding="utf-8")
    run = tmp_path / "run"
    trained = regard("train", "caption", *TINY, "--train", chinese, "--valid", chinese, "--steps", 1, "--out", run)
    assert trained.code == 0
    assert "BLEU is cut by zh, as the captions are written without spaces; --bleu says otherwise" in trained.out
    # the run records its choice, and other captions are scored by it
    for test in (chinese, japanese):
        assert "tok:zh" in regard("evaluate", run, "--test", test).out
    problem = Caption.of(train=japanese, valid=japanese).prepare(tmp_path, new=True)
    assert problem.resolved_options() == {"bleu": "char"}
    captioner: Any = SimpleNamespace(
        describe=lambda pixels, search, done: [[SimpleNamespace(text=right[0])] for right in problem.valid.captions]
    )
    values, _ = caption_scores(captioner, problem.valid, Greedy(), cut=problem.bleu)
    assert values["bleu"] == pytest.approx(100)


def test_other_sizes_are_told(regard: Regard, captioner: Path, tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "a.tsv").write_text("a.png\tx\n")
    ran = regard("evaluate", captioner, "--test", tmp_path / "a.tsv")
    assert ran.code == 2
    assert f"the images of {tmp_path / 'a.tsv'} are (8, 8, 1), (height, width, channels), those to train" in ran.err
    assert "(12, 16, 1); resize them, or train with size" in ran.err


def test_other_pictures_are_told_before_anything_is_learned(regard: Regard, captions: Path, tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "small.png")
    Image.new("RGB", (16, 12), (1, 2, 3)).save(tmp_path / "blue.png")
    for name, said in (
        ("small", "are (8, 8, 1), (height, width, channels), those to train on (12, 16, 1); resize them, or"),
        ("blue", "are (12, 16, 3), (height, width, channels), those to train on (12, 16, 1); make all grey, or all"),
    ):
        tsv = tmp_path / f"{name}.tsv"
        tsv.write_text(f"{name}.png\tx\n")
        for option in ("--valid", "--test"):
            files = ("--train", captions / "all.tsv", option, tsv)
            ran = regard("train", "caption", *TINY, *files, "--steps", 1, "--out", tmp_path / "run")
            assert ran.code == 2
            assert f"the images of {option} {tsv} {said}" in ran.err
            assert ran.err.count("\n") == 1
            assert "step" not in ran.out
            assert not (tmp_path / "run").exists()
    files = ("--train", captions / "all.tsv", "--valid", tmp_path / "small.tsv", "--size", 8)
    assert regard("train", "caption", *TINY, *files, "--steps", 1, "--out", tmp_path / "run").code == 0


@pytest.mark.parametrize("values", ["soft,hard", "hard"])
def test_a_comparison_with_the_options_of_a_run(
    values: str, regard: Regard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.experiments.comparison._process", lambda args: 130)
    write_config(tmp_path / "config.toml", Caption.of(attention="hard"), TrainingConfig(steps=2))
    options = ["--config", tmp_path / "config.toml", "--attention", values, "--out", tmp_path / "out"]
    ran = regard("compare", "caption", *options)
    assert ran.code == 130, ran.err
    assert ran.err.startswith(f"regard: --attention replaces expected, entropy of {tmp_path / 'config.toml'}\n")


def test_the_attention_of_a_run_is_replaced(tmp_path: Path) -> None:
    def task_of(base: Caption, *args: str) -> Caption:
        write_config(tmp_path / "config.toml", base, TrainingConfig(steps=2))
        words = ["--config", str(tmp_path / "config.toml"), *args]
        return Caption(**parse_task(TrainOptions, "regard train caption", Caption, words).task)

    assert task_of(Caption.of(attention="hard"), "--attention", "soft") == Caption.of()
    assert task_of(Caption.of(), "--attention", "hard") == Caption.of(attention="hard")
    chosen = Caption.of(attention="hard", expected=0.7)
    assert task_of(chosen, "--attention", "hard") == chosen
    with pytest.raises(ValueError, match="expected=0.7 belongs to attention='hard', not to 'soft'"):
        task_of(chosen, "--attention", "soft")
