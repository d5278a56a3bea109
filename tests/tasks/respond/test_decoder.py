"""respond --decoder: released language models and runs of language-model, without their folder once a run has begun."""

import json
import shutil
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.tasks.laws import check_resume
from tests.tasks.pretrained.folders import gpt2_folder, llama_folder

import regard
from regard.cli.main import main
from regard.models.responding.flat import FlatResponder
from regard.tasks.respond.data import DialogueReader, history_batch
from regard.tasks.respond.decoder import PretrainedDecoder
from regard.tasks.respond.options import DecoderOptions, Respond

SMALL = ["--turns", "2", "--words", "9", "--batch", "256", "--threads", "1", "--device", "cpu", "--warmup", "1"]
STEPS = ["--validate-every", "2"]
LINES = [f"is it {word} ?\tit is {word} .\tgood\n" for word in ("red", "blue", "far", "near", "old", "new")]
LM = ["--threads", "1", "--device", "cpu", "--steps", "1", "--width", "8", "--layers", "1", "--segment", "32"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("decoders")
    (path / "dialogues.tsv").write_text("".join(LINES))
    (path / "lines.txt").write_text("".join(LINES).replace("\t", "\n") * 9)
    return path


def train(folder: Path, decoder: Path, out: Path, *more: str) -> int:
    data = ["--train", str(folder / "dialogues.tsv"), "--decoder", str(decoder)]
    small = SMALL[2:] if "--turns" in more else SMALL
    return main(["train", "respond", *data, *small, *STEPS, *more, "--out", str(out)])


def language_model(folder: Path, out: Path, *options: str) -> Path:
    if not out.exists():
        assert (
            main(["train", "language-model", "--train", str(folder / "lines.txt"), *LM, *options, "--out", str(out)])
            == 0
        )
    return out


def source_of(kind: str, folder: Path, path: Path) -> Path:
    if kind == "run":
        run = language_model(folder, folder / "gpt2", "--heads", "2", "--tokens", "bpe", "--vocabulary", "300")
        shutil.copytree(run, path)
        return path
    make: Any = gpt2_folder if kind == "gpt2" else llama_folder
    make(path)
    return path


@pytest.mark.parametrize("kind", ["gpt2", "llama", "run"])
def test_a_decoder_is_trained_further_and_its_folder_is_needed_no_more(
    kind: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = source_of(kind, folder, tmp_path / "source")
    before = {key: t.clone() for key, t in regard.load(source, device="cpu").model.state_dict().items()}

    def start(out: Path, steps: int) -> None:
        assert train(folder, source, out, "--steps", str(steps)) == 0
        if steps == 1:
            shutil.rmtree(source)

    check_resume(start, tmp_path)
    predictor = regard.load(tmp_path / "once", device="cpu")
    after = predictor.model.decoder.state_dict()  # type: ignore[union-attr]
    assert after.keys() == before.keys()
    assert any(not torch.equal(after[key], t) for key, t in before.items())
    together = predictor.predict(["is it red ?", "good\tis it old ?"])
    assert [predictor.predict([text])[0].best.tokens for text in ("is it red ?", "good\tis it old ?")] == [
        output.best.tokens for output in together
    ]
    assert predictor.loss(["good"], ["it is"]).isfinite().all()
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "once")]) == 0
    assert "perplexity" in capsys.readouterr().out
    # another run starts from this one
    turns = ["--turns", "1"]  # other turns may be read than those of the run
    data = ["--train", str(folder / "dialogues.tsv"), "--init-from", str(tmp_path / "once"), *turns, *SMALL[6:], *STEPS]
    assert main(["train", "respond", *data, "--steps", "1", "--out", str(tmp_path / "next")]) == 0


@torch.no_grad()
def test_the_first_logits_are_those_of_transformers(tmp_path: Path) -> None:
    """Turns joined by the end of a text, as DialoGPT reads them."""
    released = gpt2_folder(tmp_path / "gpt2")
    decoder = PretrainedDecoder.of_folder(tmp_path / "gpt2")
    model = decoder.build().eval()
    assert isinstance(model, FlatResponder)
    turns = ["is it red ?", "no, blue", "good"]
    eos = released.tokenizer.eos_token_id
    encoded = [released.tokenizer(turn)["input_ids"] for turn in turns]
    assert decoder.tokenizer.encode(turns) == encoded
    text = [token for ids in encoded for token in (*ids, eos)]
    reply = released.tokenizer("it is")["input_ids"]
    expected = released.model(torch.tensor([[*text, *reply]])).logits[0, len(text) - 1 :]
    task = Respond.of(decoder=tmp_path / "gpt2", turns=3, words=20)
    assert task.model_name == "pretrained"
    history = DialogueReader(decoder.tokenizer, 3, 20).read(tuple(turns))
    found = model(history_batch([history], decoder.tokenizer.special), torch.tensor([[eos, *reply]]))[0]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert decoder.tokenizer.decode([*reply, eos]) == "it is"
    assert decoder.tokenizer.pieces_of("it") == decoder.tokenizer.pieces(decoder.tokenizer.encode(["it"])[0])
    # written and read again
    decoder.write(tmp_path / "run")
    again = PretrainedDecoder.of_run(tmp_path / "run")
    assert again.facts == decoder.facts
    assert again.tokenizer.encode(turns) == encoded
    assert again.tokenizer.special == decoder.tokenizer.special


def test_the_default_turns_fit_the_decoder(folder: Path) -> None:
    run = language_model(folder, folder / "gpt2", "--heads", "2", "--tokens", "bpe", "--vocabulary", "300")
    context = cast(DecoderOptions, Respond.of(decoder=run).model).run_context
    assert context is not None
    assert Respond.of(decoder=run, words=9).longest <= context < Respond.of(decoder=run, words=9, turns=12).longest
    assert Respond.of(decoder=run.parent / "none", train="d.tsv").turns == 5


def test_wrong_decoders_are_one_sentence(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recurrent = language_model(folder, folder / "recurrent", "--model", "recurrent", "--memory", "3")
    memory = language_model(folder, folder / "xl", "--model", "transformer-xl", "--memory", "9", "--heads", "2")
    gpt2 = gpt2_folder(tmp_path / "gpt2").folder
    endless = tmp_path / "endless"
    shutil.copytree(gpt2, endless)
    for file in ("config.json", "generation_config.json"):
        values = json.loads((endless / file).read_text())
        (endless / file).write_text(json.dumps({**values, "eos_token_id": None}))
    respond = tmp_path / "respond"
    assert train(folder, gpt2, respond, "--steps", "1") == 0
    sentences = {
        recurrent: f"{recurrent} holds a RecurrentLanguageModel, and a decoder of replies is a Transformer; name a run "
        "of language-model with --model gpt2",
        memory: "--decoder must read a dialogue at once, and this one has a memory of 9 tokens between segments; train "
        "it with memory=0",
        respond: f"{respond} is a model of respond, which continues no text; name a run of language-model, or a GPT-2 "
        "or Llama in transformers' layout",
        gpt2: f"--turns 4 of --words 9 tokens and a reply are up to 50 tokens, and {gpt2} reads 40 at once; give fewer "
        "turns or words",
        endless: f"{endless} has no token that ends a text (eos_token_id of its config.json), so no reply would end; "
        "name another decoder",
    }
    for decoder, sentence in sentences.items():
        capsys.readouterr()
        assert train(folder, decoder, tmp_path / "out", "--steps", "1", "--turns", "4") == 2
        assert capsys.readouterr().err.splitlines()[-1] == f"regard: {sentence}"
    tokens = respond / "decoder-tokens.json"
    content = json.loads(tokens.read_text())
    for wrong, why in (("{}", "special"), (json.dumps({**content, "library": {}}), "the text is no tokenizer.json")):
        tokens.write_text(wrong)
        with pytest.raises(
            ValueError, match=rf"decoder-tokens\.json is no tokenizer \(.*{why}.*\); restore it, or train"
        ):
            PretrainedDecoder.of_run(respond)


def test_weights_that_changed_before_the_first_checkpoint_are_refused(folder: Path, tmp_path: Path) -> None:
    source, run = gpt2_folder(tmp_path / "gpt2").folder, tmp_path / "run"
    task = Respond.of(train=folder / "dialogues.tsv", decoder=source, turns=2, words=9)
    PretrainedDecoder.prepare(task, run, True).write(run)
    assert PretrainedDecoder.prepare(task, run, False).folder == source
    decoder = PretrainedDecoder.of_run(run)
    facts = {**json.loads((run / "decoder.json").read_text()), "weights_sha256": "0"}
    (run / "decoder.json").write_text(json.dumps(facts))
    assert decoder.folder is None
    with pytest.raises(ValueError, match="has no checkpoint yet; put them back, or train in another folder") as error:
        PretrainedDecoder.prepare(task, run, False)
    assert str(error.value).startswith(f"the weights of {source} have changed since {run} began")
