"""Pretrained encoders of tasks: folders of transformers, runs of masked-lm, runs with an encoder, and bad ones."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.for_each import for_each
from tests.models.pretrained.released import gpt2, saved
from tests.tasks.encoders import bert_folder, edit_config, masked_lm_run
from torch import nn

import regard
from regard.tasks.shared.encoder import SMALLEST, PretrainedEncoder, pad_texts
from regard.tasks.shared.encoder_options import EncoderOptions
from regard.training import checkpoint

TEXTS = ["a good film", "bad.", "it was not a trip to x", ""]


@dataclass(frozen=True)
class Options(EncoderOptions):
    """Options of a model that is built elsewhere."""

    def build(self, *args: Any, **kwargs: Any) -> nn.Module:
        raise NotImplementedError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert_folder(tmp_path_factory.mktemp("encoders") / "bert", "BertForMaskedLM")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return masked_lm_run(tmp_path_factory.mktemp("runs") / "mlm", norm="pre", positions="learned", dropout=0.1)


def test_states_are_those_of_transformers(folder: Path, tmp_path: Path) -> None:
    encoder = PretrainedEncoder.of_folder(folder)
    model = encoder.build(Options(folder)).eval()
    theirs = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    tokens = transformers.BertTokenizerFast.from_pretrained(folder)
    for pairs in (False, True):
        given = (TEXTS, TEXTS[::-1]) if pairs else (TEXTS,)
        expected = tokens(*given, padding=True, return_tensors="pt")
        encoded = (
            encoder.tokenizer.encode_pairs(list(zip(TEXTS, TEXTS[::-1], strict=True)))
            if pairs
            else encoder.tokenizer.encode(TEXTS)
        )
        batch = pad_texts(encoded, encoder.tokenizer.pad)
        assert torch.equal(batch.tokens, expected["input_ids"])
        assert torch.equal(batch.types, expected["token_type_ids"])
        with torch.no_grad():
            states = model(*batch)
            right = theirs(**expected).last_hidden_state
        inside = expected["attention_mask"].bool()
        torch.testing.assert_close(states[inside], right[inside], rtol=1e-5, atol=1e-5)


def test_states_are_those_of_the_masked_language_model(run: Path) -> None:
    encoder = PretrainedEncoder.of_folder(run)
    predictor: Any = regard.load(run, device="cpu")
    (encoded,) = encoder.tokenizer.encode(["a good film"])
    assert encoded.ids == (*predictor.encode(" a good film[MASK]").tokens[:-2], encoded.ids[-1])
    batch = pad_texts([encoded], encoder.tokenizer.pad)
    with torch.no_grad():
        states = encoder.build(Options(run)).eval()(batch.tokens, batch.lengths, batch.types)
        torch.testing.assert_close(states, predictor.model.encoder(batch.tokens))
    assert encoder.longest == 24


def test_positions_without_a_table_read_any_length(tmp_path: Path) -> None:
    encoder = PretrainedEncoder.of_folder(masked_lm_run(tmp_path / "mlm", tokens="characters"))
    assert encoder.longest is None
    batch = pad_texts(encoder.tokenizer.encode(["a film " * 20]), encoder.tokenizer.pad)
    assert encoder.build(Options(tmp_path))(batch.tokens, batch.lengths).shape[1] > 24


@pytest.mark.parametrize("kind", ["BertModel", "BertForTokenClassification", "BertForPreTraining"])
def test_any_head_is_left_out(kind: str, tmp_path: Path) -> None:
    encoder = PretrainedEncoder.of_folder(bert_folder(tmp_path / "bert", kind, type_vocab_size=1))
    assert encoder.tokenizer.frame.second_type == 0, "the model has one type"
    model = encoder.build(Options(tmp_path / "bert"))
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in encoder.facts.build().parameters())


def test_a_run_needs_no_folder_later(folder: Path, tmp_path: Path) -> None:
    source = shutil.copytree(folder, tmp_path / "source")
    run = tmp_path / "run"
    run.mkdir()
    options = Options(source, freeze="1")
    first = PretrainedEncoder.prepare(options, run, new=True)
    assert {path.name for path in run.iterdir()} == {"encoder.json", "encoder-tokens.json"}
    model = first.build(options)
    # killed before its first checkpoint: the weights come from the folder again
    again = PretrainedEncoder.prepare(options, run, new=False).build(options)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), again.parameters(), strict=True))
    checkpoint.write(run / "last.safetensors", checkpoint.collect(model), {"step": 0})
    shutil.rmtree(source)
    later = PretrainedEncoder.prepare(options, run, new=False)
    assert later.facts == first.facts
    assert later.tokenizer.encode(TEXTS) == first.tokenizer.encode(TEXTS)
    rebuilt = later.build(options)
    assert not torch.equal(rebuilt.embedding.weight, model.embedding.weight), "its checkpoint has the weights"
    checkpoint.load(rebuilt, run / "last.safetensors")
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), rebuilt.parameters(), strict=True))
    assert [p.requires_grad for p in rebuilt.parameters()] == [p.requires_grad for p in model.parameters()]


def test_other_weights_before_the_first_checkpoint(folder: Path, tmp_path: Path) -> None:
    source = bert_folder(tmp_path / "source")
    PretrainedEncoder.prepare(Options(source), tmp_path, new=True)
    shutil.rmtree(source)
    bert_folder(source, initializer_range=0.5)
    with pytest.raises(
        ValueError,
        match=r"the weights of .*source have changed since .* began, which has no checkpoint yet; put them back",
    ):
        PretrainedEncoder.prepare(Options(source), tmp_path, new=False)


def test_another_attention(folder: Path) -> None:
    encoder = PretrainedEncoder.of_folder(folder)
    batch = pad_texts(encoder.tokenizer.encode(TEXTS), encoder.tokenizer.pad)
    with torch.no_grad():
        plain, sparse, additive = (
            encoder.build(Options(folder, attention=name)).eval() for name in (None, "sparsemax", "additive")
        )
        assert not torch.allclose(plain(*batch), sparse(*batch))
    names = dict(plain.named_parameters())
    assert all(torch.equal(p, names[name]) for name, p in additive.named_parameters() if name in names)
    with pytest.raises(ValueError, match=r"attention='additive' has weights of its own, .*; train all layers"):
        encoder.build(Options(folder, attention="additive", freeze="all"))


def test_a_meta_model_reads_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = PretrainedEncoder.of_folder(folder)
    monkeypatch.setattr(PretrainedEncoder, "read", lambda path: pytest.fail("weights were read"))
    with torch.device("meta"):
        assert encoder.build(Options(folder)).embedding.weight.is_meta


def test_the_smallest_encoder_can_be_built() -> None:
    tokens = torch.tensor([[5, 6, 7]])
    assert SMALLEST.build()(tokens).shape == (1, 3, SMALLEST.width)


def test_other_words_than_parts_are_refused() -> None:
    for freeze in ("some", "-1"):
        with pytest.raises(
            ValueError, match=f"freeze must be none, embeddings, all or a number of layers, got '{freeze}"
        ):
            Options(Path("bert"), freeze=freeze)


def test_frozen_parts() -> None:
    counts = {"none": 0, "embeddings": 1, "all": 4, "0": 0, "1": 2, "3": 4}
    assert {name: Options(Path("bert"), freeze=name).frozen_parts(3) for name in counts} == counts
    with pytest.raises(ValueError, match="freeze=4 is more than the 3 layers of bert; try freeze=all"):
        Options(Path("bert"), freeze="4").frozen_parts(3)


def without_checkpoints(path: Path) -> None:
    masked_lm_run(path)
    for name in ("best.safetensors", "last.safetensors"):
        (path / name).unlink()


def with_other_tokens(path: Path) -> None:
    (masked_lm_run(path) / "tokens.json").write_text("{}")


@for_each(
    ("make", "message"),
    [
        (
            Path.mkdir,
            r"holds neither config.json and weights nor a run \(run.json\); name a BERT in transformers' layout",
        ),
        (
            lambda path: gpt2().save_pretrained(path),
            r"holds a GPT2LMHeadModel, and an encoder of texts is a BERT; name a folder with one, or a run of",
        ),
        (lambda path: saved("ViTModel", path), r"holds a ViTModel, and an encoder of texts is a BERT"),
        (
            lambda path: edit_config(bert_folder(path), hidden_size=None),
            r"has no entry 'hidden_size'; save the model again",
        ),
        (without_checkpoints, r"has no best.safetensors yet; train it: regard train --resume"),
        (with_other_tokens, r"tokens.json has changed since the training wrote it"),
    ],
)
def test_a_folder_that_is_no_encoder(make: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    folder, run = tmp_path / "folder", tmp_path / "run"
    make(folder)
    run.mkdir()
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        PretrainedEncoder.prepare(Options(folder), run, new=True)
    assert not list(run.iterdir()), "no partial output"


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"is no folder with config.json and weights nor a run"):
        PretrainedEncoder.of_folder(tmp_path / "missing")


def test_a_run_of_another_task(run: Path, tmp_path: Path) -> None:
    other = shutil.copytree(run, tmp_path / "other")
    record = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps({**record, "checksum": None, "task": "translate"}))
    with pytest.raises(ValueError, match=r"is a run of translate, which has no encoder of texts; name a run of"):
        PretrainedEncoder.of_folder(other)


def test_a_run_without_the_weights_of_its_encoder(run: Path, folder: Path, tmp_path: Path) -> None:
    other = shutil.copytree(run, tmp_path / "other")
    PretrainedEncoder.prepare(Options(folder), other, new=True)
    message = r"best.safetensors holds no weights of an encoder of texts, which .*encoder.json describes; name a run of"
    with pytest.raises(ValueError, match=message):
        PretrainedEncoder.of_folder(other)


@pytest.mark.parametrize("name", ["encoder.json", "encoder-tokens.json"])
def test_a_damaged_run(name: str, folder: Path, tmp_path: Path) -> None:
    PretrainedEncoder.prepare(Options(folder), tmp_path, new=True)
    (tmp_path / name).write_text("{}")
    with pytest.raises((ValueError, TypeError), match=rf"{name} (is no tokenizer|does not describe an encoder)"):
        PretrainedEncoder.of_run(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"holds no {name}; name the folder of a training run"):
        PretrainedEncoder.of_run(tmp_path)
