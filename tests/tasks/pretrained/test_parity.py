"""Predictions of released folders, held to transformers' own generate and pipelines."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tests.models.pretrained.released import LONGROPE, gemma3, gpt_neox, phi3
from tests.serve.test_rounding import differences
from tests.tasks.pretrained.folders import (
    PIECES,
    Released,
    classifier_folder,
    decoder_folder,
    encoder_folder,
    gpt2_folder,
    llama_folder,
    marian_folder,
    masked_folder,
    vit_folder,
    write_image,
)

import regard
from regard.data.text.masking import choose_tokens
from regard.inference.limits import Limits
from regard.tasks.classify_text.data import pad, sentences_of
from regard.tasks.language_model.options import EvaluateLanguageModel, GenerateText
from regard.tasks.loading import load_run
from regard.tasks.masked_lm.options import PredictMasked
from regard.tasks.shared.image_options import PredictImageClasses
from regard.tasks.shared.text_options import EvaluateTextFiles
from regard.tasks.translate.options import PredictTranslations

TEXTS = [
    "the cat sat",
    "a dog and a cat",
    "",
    "sat",
    "unhappily the dogs sat on it, and Kätzchen",
    "a",
    "dog",
    "it sat",
]


def until_end(row: torch.Tensor, eos: int) -> tuple[int, ...]:
    ids = row.tolist()
    return tuple(ids[: ids.index(eos)] if eos in ids else ids)


@pytest.mark.filterwarnings("ignore:Recommended")
@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4, "nbest": 3}, {"beam": 3, "length_penalty": 0.4}], ids=str)
@torch.no_grad()
def test_translations_are_those_of_generate(options: dict[str, Any], tmp_path: Path) -> None:
    made = marian_folder(tmp_path)
    translator = regard.load(tmp_path, device="cpu")
    outputs = translator.predict(TEXTS, PredictTranslations(**options))
    beam, nbest = options["beam"], options.get("nbest", 1)
    by = {"length_penalty": options["length_penalty"]} if "length_penalty" in options else {}
    lengths = set()
    for text, output in zip(TEXTS, outputs, strict=True):
        if not text:
            assert output.best.text == ""
            continue
        encoding = made.tokenizer(text, return_tensors="pt")
        rows = made.model.generate(**encoding, num_beams=beam, num_return_sequences=nbest, do_sample=False, **by)
        assert [each.tokens for each in output.hypotheses] == [until_end(row[1:], 0) for row in rows], text
        # theirs leaves unknown pieces out
        assert [each.text.replace("<unk>", "") for each in output.hypotheses] == [
            made.tokenizer.decode(row, skip_special_tokens=True) for row in rows
        ]
        lengths |= {len(each.tokens) for each in output.hypotheses}
    assert len(lengths) > 1
    # alone and in another order
    for text, output in zip(TEXTS, outputs, strict=True):
        (alone,) = translator.predict([text], PredictTranslations(**options))
        assert [each.tokens for each in alone.hypotheses] == [each.tokens for each in output.hypotheses]
    again = translator.predict(TEXTS[::-1], PredictTranslations(**options))[::-1]
    assert [each.best.tokens for each in again] == [each.best.tokens for each in outputs]


@pytest.mark.filterwarnings("ignore:Recommended")
def test_the_loss_of_a_translator_is_theirs(tmp_path: Path) -> None:
    made = marian_folder(tmp_path)
    translator = regard.load(tmp_path, device="cpu")
    targets = ["Hund", "noch ein Satz"]
    found = translator.loss(TEXTS[:2], targets)
    for n, target in enumerate(targets):
        encoding = made.tokenizer(TEXTS[n], text_target=target, return_tensors="pt")
        with torch.no_grad():
            want = made.model(**encoding).loss * encoding["labels"].numel()
        torch.testing.assert_close(found[n], want, rtol=1e-5, atol=1e-5)


MASKED = ["the [MASK] sat", "a [MASK] is [MASK], Unhappily", "[MASK]", "dogs and cats [MASK] on the mat."]


@pytest.mark.parametrize("kind", ["BertForMaskedLM", "BertForPreTraining"])
def test_candidates_are_those_of_fill_mask(kind: str, tmp_path: Path) -> None:
    made = masked_folder(tmp_path, kind)
    predictor = regard.load(tmp_path, device="cpu")
    options = PredictMasked(top=len(PIECES) - 5)
    outputs = predictor.predict(MASKED, options)
    model = transformers.BertForMaskedLM.from_pretrained(tmp_path)
    pipeline = transformers.FillMaskPipeline(model=model, tokenizer=made.tokenizer, top_k=len(PIECES))
    for text, output in zip(MASKED, outputs, strict=True):
        assert list(output.encoded.tokens) == made.tokenizer(text)["input_ids"]
        masks = pipeline(text)
        masks = [masks] if isinstance(masks[0], dict) else masks
        for candidates, want in zip(output.candidates, masks, strict=True):
            found = {each.token: each.probability for each in candidates}
            assert found == pytest.approx(
                {each["token"]: each["score"] for each in want if each["token"] > 4}, rel=1e-5
            )
            names = {each["token"]: each["token_str"] for each in want}
            assert all(each.text == names[each.token] for each in candidates)
        (alone,) = predictor.predict([text], options)
        for candidates, same in zip(output.candidates, alone.candidates, strict=True):
            assert [each.probability for each in same] == pytest.approx(
                [each.probability for each in candidates], rel=1e-5
            )
    assert outputs[0].filled == f"the {outputs[0].candidates[0][0].text} sat".replace(" ##", "")


@torch.no_grad()
def test_vectors_are_the_mean_of_their_states(tmp_path: Path) -> None:
    made = encoder_folder(tmp_path)
    predictor = regard.load(tmp_path, device="cpu")
    texts = ["the cat sat unhappily.", "a dog", "cat"]
    for text, output in zip(texts, predictor.predict(texts), strict=True):
        states = made.model(**made.tokenizer(text, return_tensors="pt")).last_hidden_state[0]
        want = torch.nn.functional.normalize(states.mean(0), dim=0)
        torch.testing.assert_close(torch.as_tensor(output.vector), want, rtol=1e-5, atol=1e-5)


def test_masked_tokens_of_an_evaluation_are_scored_as_theirs(tmp_path: Path) -> None:
    made = masked_folder(tmp_path / "model")
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n\nUnhappily a dog is good ." * 4)
    loaded = load_run(tmp_path / "model", device="cpu")
    evaluation = loaded.evaluate(EvaluateTextFiles(test=(tmp_path / "text.txt",)), lambda done, count: None)
    ids = made.tokenizer((tmp_path / "text.txt").read_text(), add_special_tokens=False)["input_ids"]
    # rows of 13 tokens, [CLS] and [SEP] among them: 2 of 11 are masked, and at least one of the rest
    rows = [[2, *ids[n : n + 11], 3] for n in range(0, len(ids), 11)]
    assert evaluation.count == sum(max(round(0.15 * (len(row) - 2)), 1) for row in rows)
    rng, nll = np.random.default_rng(15), []
    for row in map(torch.tensor, rows):
        chosen = torch.from_numpy(choose_tokens(np.where(row.numpy() > 4, 4, 0)[None], None, 0.15, rng)[0])
        with torch.no_grad():
            log_p = made.model(row.masked_fill(chosen, 4)[None]).logits[0].log_softmax(-1)
        nll += (-log_p[chosen, row[chosen]]).tolist()
    assert evaluation.scores["nll"] == pytest.approx(sum(nll) / len(nll), rel=1e-5)


@torch.no_grad()
def test_classes_of_texts_are_theirs(tmp_path: Path) -> None:
    made = classifier_folder(tmp_path)
    predictor = regard.load(tmp_path, device="cpu")
    texts = ["the cat sat unhappily.", "It is bad. A dog, and it!", "cat", "", "unknown Wörter and the mat"]
    outputs = predictor.predict(texts)
    assert predictor.classes == ["good", "bad", "so-so"]
    for text, output in zip(texts, outputs, strict=True):
        want = made.model(**made.tokenizer(text, return_tensors="pt")).logits[0]
        (alone,) = predictor.predict([text])
        for each in (output, alone):
            found = [dict(each.probabilities)[name] for name in predictor.classes]
            assert found == pytest.approx(want.softmax(-1).tolist(), rel=1e-5)
        (sentences,) = sentences_of(predictor.tokenizer, [text], 13)
        assert [token for sentence in sentences for token in sentence] == made.tokenizer(text)["input_ids"]
        tokens, lengths = pad([sentences], by_sentence=False)
        torch.testing.assert_close(predictor.model(tokens, lengths)[0], want, rtol=1e-5, atol=1e-5)
    again = predictor.predict(texts[::-1])[::-1]
    assert [each.best for each in again] == [each.best for each in outputs]


@pytest.mark.parametrize(
    "processing",
    [{}, {"resample": 3}, {"do_normalize": False}, {"rescale_factor": 1 / 127.5}, {"do_rescale": False}],
    ids=str,
)
@torch.no_grad()
def test_classes_of_images_are_theirs(processing: dict[str, Any], tmp_path: Path) -> None:
    made = vit_folder(tmp_path, **processing)
    predictor = regard.load(tmp_path, device="cpu")
    paths = [write_image(tmp_path / f"{'a' * n}.png") for n in range(1, 4)]
    inputs = [predictor.read(str(path)) for path in paths]
    outputs = predictor.predict(inputs, PredictImageClasses(top=5))
    for path, given, output in zip(paths, inputs, outputs, strict=True):
        pixels = made.tokenizer(Image.open(path), return_tensors="pt")["pixel_values"]
        want = made.model(pixel_values=pixels).logits[0]
        found = predictor.classify(predictor.tensor([given]))[0][0]
        torch.testing.assert_close(found, want, rtol=1e-5, atol=1e-5 * float(want.abs().max()))
        names = ["cat (0)", "dog", "cat (2)", "owl", "crane"]
        assert dict(output.classes) == pytest.approx(dict(zip(names, want.softmax(-1).tolist(), strict=True)), rel=1e-4)
    assert [each.classes[0][0] for each in predictor.predict(inputs[::-1])][::-1] == [
        each.classes[0][0] for each in outputs
    ]


PROMPTS = ["the cat", "a dög sat on", "K", "it it it", " two  spaces\n"]


@pytest.mark.parametrize(
    "make",
    [
        gpt2_folder,
        llama_folder,
        lambda folder: llama_folder(folder, "MistralForCausalLM", sliding_window=4),
        lambda folder: llama_folder(folder, "Qwen2ForCausalLM"),
        lambda folder: llama_folder(folder, "Qwen3ForCausalLM"),
        lambda folder: decoder_folder(folder, phi3, **LONGROPE, original_max_position_embeddings=30),
        lambda folder: decoder_folder(folder, gemma3, max_position_embeddings=40),
        lambda folder: decoder_folder(folder, gpt_neox),
    ],
    ids=["gpt2", "llama", "mistral", "qwen2", "qwen3", "phi3", "gemma3", "gpt-neox"],
)
@torch.no_grad()
def test_greedy_texts_are_those_of_generate(make: Any, tmp_path: Path) -> None:
    made: Released = make(tmp_path)
    predictor = regard.load(tmp_path, device="cpu")
    options = GenerateText(tokens=14, temperature=0)
    outputs = predictor.predict(PROMPTS, options)
    end = made.model.config.eos_token_id
    for prompt, output in zip(PROMPTS, outputs, strict=True):
        encoding = made.tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
        assert list(output.encoded.tokens) == encoding["input_ids"][0].tolist()
        (row,) = made.model.generate(**encoding, do_sample=False, max_new_tokens=14, pad_token_id=end)
        start = encoding["input_ids"].shape[1]
        (continuation,) = output.continuations
        assert continuation.tokens == until_end(row[start:], end)
        whole = made.tokenizer.decode([*row[:start], *continuation.tokens], skip_special_tokens=True)
        before = made.tokenizer.decode(row[:start], skip_special_tokens=True)
        assert continuation.text == whole[len(before) :]
        (alone,) = predictor.predict([prompt], options)
        pieces = [*predictor.stream(prompt, options)]
        assert "".join(piece.text for piece in pieces) == continuation.text
        for same in (alone.continuations[0], pieces[-1].whole):
            assert (same.tokens, same.text) == (continuation.tokens, continuation.text)
            assert same.log_prob == pytest.approx(continuation.log_prob, rel=1e-5)


@torch.no_grad()
def test_samples_alone_are_those_of_a_batch_and_streamed_ones(tmp_path: Path) -> None:
    gpt2_folder(tmp_path)
    predictor = regard.load(tmp_path, device="cpu")
    options = GenerateText(tokens=20, top_p=0.9, seed=5)
    outputs = predictor.predict(PROMPTS, options)
    for n, (prompt, output) in enumerate(zip(PROMPTS, outputs, strict=True)):
        (alone,) = predictor.predict([prompt], options, first=n)
        assert alone.continuations[0].tokens == output.continuations[0].tokens
        pieces = [*predictor.stream(prompt, options, number=n)]
        assert "".join(piece.text for piece in pieces) == output.continuations[0].text


@pytest.mark.parametrize("make", [gpt2_folder, llama_folder], ids=["gpt2", "llama"])
def test_served_texts_do_not_depend_on_their_batch(make: Any, tmp_path: Path) -> None:
    make(tmp_path)
    endpoint = regard.load(tmp_path, device="cpu").endpoint(Limits(), run="released", step=0)
    bodies = [{"text": prompt, "tokens": 6 + n, "seed": n, "top_p": 0.9} for n, prompt in enumerate(PROMPTS)]
    assert differences(endpoint, bodies, (2, 5)) == 0


def test_every_end_of_a_released_model_ends_a_text(tmp_path: Path) -> None:
    """Llama 3 has several; all but the one of the tokenizer are in generation_config.json."""
    made = llama_folder(tmp_path)
    predictor = regard.load(tmp_path, device="cpu")
    options = GenerateText(tokens=14, temperature=0)
    (before,) = predictor.predict(["the cat"], options)
    tokens = before.continuations[0].tokens
    made.model.generation_config.eos_token_id = [2, tokens[3]]
    made.model.save_pretrained(tmp_path)
    (after,) = regard.load(tmp_path, device="cpu").predict(["the cat"], options)
    assert after.continuations[0].tokens == tokens[: tokens.index(tokens[3])]
    assert after.continuations[0].finished


def test_perplexity_is_that_of_their_loss(tmp_path: Path) -> None:
    made = gpt2_folder(tmp_path / "model")
    file = tmp_path / "text.txt"
    file.write_text("the cat sat on the mat\n")
    loaded = load_run(tmp_path / "model", device="cpu")
    evaluation = loaded.evaluate(EvaluateLanguageModel(test=(file,)), lambda done, count: None)
    ids = torch.tensor([[0, *made.tokenizer(file.read_text())["input_ids"]]])
    with torch.no_grad():
        want = made.model(ids, labels=ids).loss
    assert evaluation.scores["nll"] == pytest.approx(float(want), rel=1e-5)
    assert evaluation.count == ids.shape[1] - 1
