"""EncoderTagger: the state of a word is that of its sub-words, and a sentence alone is one in a batch."""

import pytest
import torch

from regard.common.tag_schemes import TagScheme
from regard.data.text.special_tokens import SPECIAL
from regard.data.text.subword_inputs import SubwordEncoder, SubwordInputs
from regard.data.text.subwords import RunSubwords
from regard.data.text.tokenizer import Tokenizer
from regard.models.bert import BERT
from regard.models.tagger import TaggerSizes
from regard.models.transfer.tagger import SUBWORD_STATES, EncoderTagger
from regard.models.transfer.text_encoder import TextEncoder

TOKENIZER = RunSubwords(Tokenizer.train("characters", ["a trip to bcd"], 30))
ENCODER = SubwordEncoder(TOKENIZER, 40, "abirtTopcd")
SENTENCES = [["a", "trip", "to", "b"], ["to"], ["bad", "\x00", "trip"]]


def tagger(subwords: str = "first", output: str = "crf", characters: int = 5) -> EncoderTagger:
    torch.manual_seed(0)
    bert = BERT(TOKENIZER.size, width=6, layers=2, heads=2, longest=40, types=1)
    scheme = TagScheme("IOB2", ["O", "B-X", "I-X"])
    sizes = TaggerSizes(0, SPECIAL + 10, 3, 2)
    return EncoderTagger(
        TextEncoder(bert), sizes, subwords=subwords, characters=characters, output=output, scheme=scheme
    )


@pytest.mark.parametrize("subwords", SUBWORD_STATES)
def test_a_batch_is_its_sentences(subwords: str) -> None:
    model = tagger(subwords).eval()
    together = model(ENCODER.inputs(SENTENCES))
    for row, words in enumerate(SENTENCES):
        alone = model(ENCODER.inputs([words]))
        torch.testing.assert_close(together.emissions[row, : len(words)], alone.emissions[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(together.intents[row], alone.intents[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("subwords", SUBWORD_STATES)
def test_the_state_of_a_word_is_that_of_its_sub_words(subwords: str) -> None:
    model = tagger(subwords).eval()
    inputs = ENCODER.inputs(SENTENCES)
    states, words = model.encoder(inputs.tokens, inputs.num_tokens), model.word_states(inputs)
    for row, sentence in enumerate(SENTENCES):
        numbers = ENCODER.encode(sentence).words
        for word in range(len(sentence)):
            own = states[row, [place for place, number in enumerate(numbers) if number == word]]
            torch.testing.assert_close(words[row, word], own[0] if subwords == "first" else own.mean(0))


def test_characters_tell_upper_from_lower_case() -> None:
    lower = RunSubwords(Tokenizer.train("characters", ["trip"], 30))
    encoder = SubwordEncoder(lower, 40, "tT")
    given = encoder.inputs([["t"], ["T"], ["T"]])
    same = given._replace(tokens=given.tokens[:1].expand(3, -1))
    spelled, plain = (tagger(characters=n).eval()(same).emissions for n in (5, 0))
    assert not torch.allclose(spelled[0], spelled[1])
    torch.testing.assert_close(spelled[1], spelled[2])
    torch.testing.assert_close(plain[0], plain[1])


def test_dropped_words_are_masked() -> None:
    dropped = torch.zeros(8, dtype=torch.bool).numpy()
    dropped[[1, 4]] = True
    whole, masked = ENCODER.inputs(SENTENCES), ENCODER.inputs(SENTENCES, dropped)
    changed = whole.tokens != masked.tokens
    assert (masked.tokens[changed] == TOKENIZER.mask).all()
    expected = [(whole.word_ids[0] == 1), (whole.word_ids[1] == 0), torch.zeros_like(changed[2])]
    assert torch.equal(changed, torch.stack(expected))


def test_parameters_and_errors() -> None:
    model = tagger(output="softmax")
    assert model.crf is None
    assert model.embedding is model.encoder.embedding
    assert isinstance(ENCODER.inputs(SENTENCES).to(torch.device("cpu")), SubwordInputs)
    model(ENCODER.inputs(SENTENCES)).emissions.square().sum().backward()
    grads = {name: p.grad is not None for name, p in model.named_parameters()}
    assert all(has for name, has in grads.items() if not name.startswith("intent"))
    with pytest.raises(ValueError, match="unknown subwords 'last'; known are: first, mean"):
        tagger("last")
    with pytest.raises(
        ValueError, match="the text has 43 tokens of the encoder, which reads 40; split it into sentences"
    ):
        ENCODER.check_length(["a" * 41], "the text")
    SubwordEncoder(TOKENIZER, None).check_length(["a" * 99], "the text")
