"""Every command that takes a run takes a released folder of every supported architecture as well."""

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from tests.serve.conftest import visit
from tests.tasks.cases import request_body
from tests.tasks.laws import check_loss, check_picture, check_predictions
from tests.tasks.pretrained.folders import CASES, write_image

import regard
from regard.cli.main import main
from regard.inference.limits import Limits
from regard.inference.predictor import labelled_recording
from regard.models.pretrained import ARCHITECTURES
from regard.tasks.language_model.options import GenerateText
from regard.tasks.loading import load_run
from regard.tasks.pretrained import RELEASED
from regard.tasks.registry import TASKS, read_config

every_architecture = pytest.mark.parametrize("name", CASES)
pytestmark = pytest.mark.filterwarnings("ignore:Recommended")


def test_no_task_is_left_out() -> None:
    assert {case.task for case in CASES.values()} == set(RELEASED)
    assert {ARCHITECTURES[name.partition(",")[0]].task for name in CASES} == set(RELEASED)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of an architecture; tests read it and leave it as it is."""
    path = tmp_path_factory.mktemp("released")

    def folder(name: str) -> Path:
        if not (path / name).exists():
            CASES[name].make(path / name)
            write_image(path / name / "random.png")
        return path / name

    return folder


def inputs(name: str, folder: Path) -> list[str]:
    return [str(folder / "random.png") if given == "IMAGE" else given for given in CASES[name].inputs]


@every_architecture
def test_predict(name: str, released: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = released(name)
    assert read_config(folder).name == CASES[name].task
    options = GenerateText(tokens=9) if CASES[name].task == "language-model" else None
    check_predictions(folder, inputs(name, folder), CASES[name].predict.split(), options, capsys)


def test_chat_leaves_out_the_turns_that_a_model_has_no_positions_for(
    released: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat\n" * 4 + b"the cat sat on it " * 9)))
    assert main(["chat", str(released("GPT2LMHeadModel")), "--tokens", "9", "--seed", "3", "--json"]) == 2
    said = capsys.readouterr()
    *_, last = map(json.loads, said.out.splitlines())
    assert last["turn"] == 4
    (note,) = last["notes"]
    assert re.fullmatch("left out: the first [0-9]+ turns? of the conversation; the model reads 40 tokens", note)
    # a single turn that is too long is refused
    assert re.search(r"\nregard: stdin:5: the prompt '.*' has [0-9]+ tokens, and this model has 40 positions", said.err)


@every_architecture
def test_predict_draws(name: str, released: Callable[[str], Path], tmp_path: Path) -> None:
    folder = released(name)
    check_picture(folder, inputs(name, folder)[0], tmp_path / "picture.png", *CASES[name].predict.split())


@every_architecture
def test_loss_is_differentiable(name: str, released: Callable[[str], Path]) -> None:
    check_loss(released(name), inputs(name, released(name)), CASES[name].targets)


@every_architecture
def test_recordings_have_the_tokens_as_labels(name: str, released: Callable[[str], Path]) -> None:
    folder = released(name)
    predictor = regard.load(folder, device="cpu")
    _, recording = labelled_recording(predictor, predictor.read(inputs(name, folder)[0]), run="released")
    assert len(recording)
    assert all(item.verified for item in recording)
    if TASKS[CASES[name].task].input_kind == "image":
        assert {item.grid for item in recording} == {(3, 3)}
        return
    keys = recording.keys
    assert keys is not None
    pieces = dict.fromkeys(("classify-text", "embed"), "##ly")
    marks = {"translate": "▁the", "language-model": "[Ġ▁].*", "masked-lm": r"\[MASK\]", **pieces}
    assert any(re.fullmatch(marks[CASES[name].task], key) for key in keys), keys


@every_architecture
def test_record_and_view(
    name: str, released: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = released(name)
    given = inputs(name, folder)[0]
    out = tmp_path / "recording.safetensors"
    assert main(["record", str(folder), given, "--out", str(out)]) == 0
    assert main(["view", str(out)]) == 0
    assert main(["view", str(folder), given, "--out", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


@every_architecture
def test_serve(name: str, released: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = released(name)
    config, loaded = TASKS[CASES[name].task], load_run(folder, device="cpu")
    if not config.is_served:
        assert main(["serve", str(folder)]) == 2
        assert (
            f"is a released model of {config.name}, which is not served; use regard predict" in capsys.readouterr().err
        )
        return
    endpoint = loaded.predictor.endpoint(Limits(), run="released", step=loaded.step)
    given = inputs(name, folder)

    async def act(client: httpx.AsyncClient) -> list[httpx.Response]:
        bodies: list[Any] = [request_body(config.input_kind, each) for each in given]
        if name in ("GPT2LMHeadModel", "LlamaForCausalLM"):
            bodies += [{"text": given[0], "tokens": 9}, {"text": given[0], "tokens": 9, "stream": True}]
        if name == "MarianMTModel":
            bodies += [{"text": given[0], "beam": 3, "nbest": 2, "alignment": True}]
        posts = [await client.post(f"/v1/{endpoint.name}", json=body) for body in bodies]
        return [*posts, await client.get("/v1/model"), await client.get("/")]

    *answers, about, page = visit(endpoint, act)
    assert [answer.status_code for answer in answers] == [200] * len(answers), [answer.text for answer in answers]
    assert about.json()["parameters"] > 0
    assert page.status_code == 200
    if name == "MarianMTModel":
        best, second = answers[-1].json()["answers"][0]["translations"]
        assert best["score"] >= second["score"]
        assert best["alignment"]["source"][0] == "▁the"
    if name == "GPT2LMHeadModel":
        whole, streamed = (answer for answer in answers[-2:])
        assert json.dumps(whole.json()["answers"][0]["texts"][0]["text"], ensure_ascii=False) in streamed.text


@pytest.mark.parametrize(
    ("name", "files", "score"),
    [
        ("MarianMTModel", {"pairs.tsv": "the cat sat\tHund\na dog\tein Satz\n"}, "bleu"),
        ("BertForSequenceClassification", {"labelled.tsv": "good\tthe cat sat\nbad\ta dog is bad\n"}, "accuracy"),
        ("BertForMaskedLM", {"text.txt": "the cat sat on the mat\n\nunhappily a dog is good " * 5}, "accuracy"),
        ("BertModel", {"pairs.tsv": "the cat sat\tcats\na dog\tit is bad\n"}, "recall@1"),
        ("GPT2LMHeadModel", {"text.txt": "the cat sat on the mat\n"}, "perplexity"),
    ],
)
def test_evaluate(
    name: str,
    files: dict[str, str],
    score: str,
    released: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    given = ["evaluate", str(released(name)), "--test", *(str(tmp_path / file) for file in files)]
    capsys.readouterr()
    assert main([*given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert score in found["scores"]
    assert (found["weights"], found["step"]) == ("released", 0)
    assert main(given) == 0
    assert "; released weights\n" in capsys.readouterr().out


def test_verbs_of_one_task(released: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["translate", str(released("MarianMTModel")), "the cat sat", "--beam", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert main(["generate", str(released("GPT2LMHeadModel")), "the cat", "--tokens", "5"]) == 0
    assert capsys.readouterr().out.startswith("the cat")
    assert main(["translate", str(released("GPT2LMHeadModel")), "the cat"]) == 2
    assert (
        "is a released model of language-model, and regard translate is for runs of translate"
        in capsys.readouterr().err
    )


def change_json(path: Path, **entries: object) -> None:
    values = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**values, **entries}))


def test_entries_without_effect_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tensors without a place, entries of generation_config.json, and classes that transformers numbers anew."""
    from safetensors.torch import load_file, save_file

    CASES["GPT2LMHeadModel"].make(tmp_path / "gpt2")
    change_json(tmp_path / "gpt2" / "generation_config.json", repetition_penalty=1.8, no_repeat_ngram_size=2, top_k=50)
    weights = tmp_path / "gpt2" / "model.safetensors"
    save_file({**load_file(weights), **{f"extra.{n}": torch.zeros(1) for n in range(7)}}, weights)
    capsys.readouterr()
    assert main(["generate", str(tmp_path / "gpt2"), "a cat", "--tokens", "2"]) == 0
    printed = capsys.readouterr().err
    names = "extra.0, extra.1, extra.2, extra.3, extra.4, …"
    assert f"has 7 tensors that the model has no place for: {names}\n" in printed
    assert "asks for no_repeat_ngram_size=2, repetition_penalty=1.8, which regard does not apply; type" in printed

    CASES["ViTForImageClassification"].make(tmp_path / "vit")
    write_image(tmp_path / "vit" / "random.png")
    model = load_run(tmp_path / "vit").predictor.model
    count = len(load_run(tmp_path / "vit").predictor.classes)  # type: ignore[attr-defined]
    assert not model.training
    change_json(tmp_path / "vit" / "config.json", id2label={"0": "LABEL_0"}, num_labels=count)
    capsys.readouterr()
    assert main(["predict", str(tmp_path / "vit"), str(tmp_path / "vit" / "random.png")]) == 0
    printed = capsys.readouterr()
    assert f"does not name {count} classes, so they are LABEL_0, LABEL_1, …\n" in printed.err
    assert "LABEL_" in printed.out
