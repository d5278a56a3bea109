"""Generated text: rows are independent, streamed text is whole text, contexts slide."""

from dataclasses import replace

import pytest
import torch

from regard.data.text.special_tokens import EOS
from regard.data.text.tokenizer import Tokenizer
from regard.decoding.sliding import SlidingDecoder
from regard.models.gpt2 import GPT2
from regard.tasks.language_model.generation import TextStream
from regard.tasks.language_model.options import GenerateText, LanguageModelConfig
from regard.tasks.language_model.predictor import LanguageModelPredictor

TEXT = "the cat sat on the mat. \n"
PROMPTS = ["the c", "", "on the mat. the cat sat", "m"]
OPTIONS = GenerateText(tokens=30, temperature=1.5)


def predictor(tokens: str = "characters", segment: int = 16, **options: object) -> LanguageModelPredictor:
    torch.manual_seed(0)
    config = LanguageModelConfig.of(width=8, heads=2, layers=1, segment=segment, tokens=tokens, **options)
    tokenizer = Tokenizer.train("characters" if tokens == "characters" else "bpe", [TEXT], config.vocabulary_size)
    model = config.model.build(len(tokenizer), segment)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return LanguageModelPredictor(model.eval(), tokenizer, longest=config.context)


@pytest.mark.parametrize("tokens", ["characters", "bytes"])
@pytest.mark.parametrize("segment", [16, 64])
def test_a_batch_is_single_calls(tokens: str, segment: int) -> None:
    model = predictor(tokens, segment)
    together = model.predict(PROMPTS, replace(OPTIONS, count=2))
    for n, prompt in enumerate(PROMPTS):
        (single,) = model.predict([prompt], replace(OPTIONS, count=2), first=n)
        assert [each.tokens for each in single.continuations] == [each.tokens for each in together[n].continuations]
        assert len({each.tokens for each in single.continuations}) == 2
        for one, other in zip(single.continuations, together[n].continuations, strict=True):
            assert one.log_prob == pytest.approx(other.log_prob, rel=1e-4)


@pytest.mark.parametrize("stop", [(), ("t",), ("at", "e c"), ("\ufffd",)])
def test_streamed_text_is_whole_text(stop: tuple[str, ...]) -> None:
    model = predictor("bytes")
    options = replace(OPTIONS, stop=stop)
    for n, prompt in enumerate(PROMPTS):
        pieces = [*model.stream(prompt, options, number=n)]
        (whole,) = model.predict([prompt], options, first=n)
        assert pieces[-1].whole == whole.continuations[0]
        assert "".join(piece.text for piece in pieces) == whole.continuations[0].text
        assert not any(word in whole.continuations[0].text for word in stop)


def test_text_before_a_stop_word_is_the_unstopped_text() -> None:
    model = predictor()
    outputs = {n: model.predict(["the"], replace(OPTIONS, seed=n))[0].continuations[0] for n in range(5)}
    seed = max(outputs, key=lambda n: len(outputs[n].text))
    text = outputs[seed].text
    word = text[7:9]
    (stopped,) = model.predict(["the"], replace(OPTIONS, seed=seed, stop=(word,)))
    assert stopped.continuations[0].text == text[: text.index(word)]
    assert stopped.continuations[0].finished


def test_what_may_become_a_stop_word_is_held_back() -> None:
    tokenizer = Tokenizer.train("characters", ["abcd"], 100)
    stream = TextStream(tokenizer, (), ["abcd", "bca"])
    assert [stream.add(token) for token in tokenizer.encode_text("cabcabd")] == ["c", "", "", "", "a", "", ""]
    assert stream.is_stopped
    assert stream.finish() == ""
    stream = TextStream(tokenizer, (), ["abcd"])
    assert [stream.add(token) for token in tokenizer.encode_text("abc")] == ["", "", ""]
    assert stream.finish() == "abc"
    with pytest.raises(ValueError, match="--stop '' would end every text at once; name a word, or leave it out"):
        GenerateText(stop=("",))


def test_temperature_zero_takes_the_likeliest() -> None:
    model = predictor()
    (output,) = model.predict(["the c"], replace(OPTIONS, tokens=1, temperature=0))
    with torch.no_grad():
        logits = model.model(torch.tensor([model.tokenizer.encode_text("the c")]))[0, -1]
    logits[[0, 1, 3]] = -torch.inf
    assert output.continuations[0].tokens == (int(logits.argmax()),) or int(logits.argmax()) == EOS


def test_a_context_slides_by_half() -> None:
    torch.manual_seed(0)
    model = GPT2(11, width=8, layers=1, heads=2, longest=6, dropout=0.0).eval()
    sliding = SlidingDecoder(model, 6)
    rows = [[4, 5, 6, 7, 8, 9, 10, 4, 5], [7, 8, 9, 4, 5, 6]]
    state = sliding.init_state([rows[0][:3], []], torch.device("cpu"))
    expected_contexts = []
    for t in range(6):
        tokens = torch.tensor([[rows[0][3 + t]], [rows[1][t]]])
        step = sliding.step(tokens, state)
        state = step.state  # type: ignore[assignment]
        expected_contexts.append([len(context) for context in state.contexts])
        for row, context in enumerate(state.contexts):
            with torch.no_grad():
                expected = model(torch.tensor([context]))[0, -1]
            torch.testing.assert_close(step.logits[row, 0], expected, rtol=1e-4, atol=1e-5)
    assert expected_contexts == [[4, 1], [5, 2], [6, 3], [4, 4], [5, 5], [6, 6]]
    with pytest.raises(ValueError, match="follows one text per row, got 2; repeat the rows"):
        state.reorder(torch.zeros(2, 2, dtype=torch.long))


def test_notes_say_what_was_not_read() -> None:
    model = predictor()
    session = model.session(OPTIONS, None)
    prompts = ["the QQ", "the cat sat on the mat."]
    outputs = model.predict(prompts, OPTIONS)
    assert [output.has_slid for output in outputs] == [
        len(output.encoded.tokens) + len(output.continuations[0].tokens) > 17 for output in outputs
    ]
    session.add(prompts, [replace(output, has_slid=True) for output in outputs], 0)
    assert session.finish() == [
        "2 tokens were not in the vocabulary, so the model could not read them",
        "1 prompt had more than the 16 tokens that the model reads; only the last of them were read",
        "2 texts grew past the 16 tokens that the model reads at once; each time it was full, the older half of the "
        "context was dropped",
    ]
