"""TransformersClassifier: decoders, unknown words, sizes of vocabularies and texts, and models that it refuses."""

from typing import Any

import pytest
import tokenizers
import torch
import transformers
from tests.attribution.classifiers import CLASSES, spread
from tests.attribution.test_laws import logits_of
from tests.for_each import for_each
from tests.product import first
from tests.tasks.encoders import PIECES

import regard
from regard.attacks import HotFlip
from regard.attribution import REMOVALS, TransformersClassifier

TEXT = "a good film"
SIZES = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 10}
WORDS = {"a": 0, "good": 1, "film": 2, "bad": 3, "[UNK]": 4, "<end>": 5}
HEAD = "load one by transformers.AutoModelForSequenceClassification or AutoModelForCausalLM"


def bert(kind: str = "BertForSequenceClassification", size: int = len(PIECES)) -> TransformersClassifier:
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=size, num_labels=3, max_position_embeddings=11, **SIZES)
    config.id2label = dict(enumerate(CLASSES))
    tokenizer = transformers.BertTokenizer(vocab={piece: n for n, piece in enumerate(PIECES)})
    return TransformersClassifier(spread(getattr(transformers, kind)(config)), tokenizer)


def gpt(kind: str, **choices: Any) -> TransformersClassifier:
    torch.manual_seed(0)
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]", eos_token="<end>")
    config = transformers.GPT2Config(
        vocab_size=8, n_positions=11, n_embd=12, n_layer=1, n_head=3, num_labels=3, bos_token_id=5, eos_token_id=5,
        **choices,
    )  # fmt: skip
    return TransformersClassifier(spread(getattr(transformers, kind)(config)), tokenizer)


@pytest.mark.parametrize("kind", first(["GPT2ForSequenceClassification", "GPT2LMHeadModel"]))
def test_decoders_read_texts_of_any_length_alike(kind: str) -> None:
    predictor = gpt(kind, pad_token_id=5)
    (tokens,) = predictor.encode_tokens([TEXT])
    variants = [tokens, tokens.without({1}), tokens.without({0, 1, 2})]
    together = logits_of(predictor, variants)
    for variant, logits in zip(variants, together, strict=True):
        torch.testing.assert_close(logits_of(predictor, [variant])[0], logits, atol=1e-5, rtol=1e-4)
    assert regard.attribute(predictor, "film", 0, "leave-one-out").scores.isfinite().all()
    for removal in REMOVALS:
        (measured,) = regard.faithfulness(predictor, TEXT, 0, ["attention"], removal=removal).inputs
        assert all(0 < p < 1 for p in measured.scores["attention"].curve)


def test_an_unknown_word_is_a_word() -> None:
    predictor = gpt("GPT2LMHeadModel")
    assert regard.attribute(predictor, "good book", 0, "leave-one-out").scores.all()
    (tokens,) = predictor.encode_tokens(["book"])
    assert (tokens.names, tokens.is_special) == (("[UNK]",), (False,))


def test_tokens_without_a_name_are_classes() -> None:
    assert gpt("GPT2LMHeadModel").classes == [*WORDS, "[6]", "[7]"]


def test_an_embedding_of_more_rows_than_tokens() -> None:
    predictor, exact = bert(size=len(PIECES) + 5), bert()
    exact.model.load_state_dict(
        {name: p[: len(PIECES)] if "word_embeddings" in name else p for name, p in predictor.model.state_dict().items()}
    )
    for attack in (HotFlip(1), HotFlip(1, None)):
        results = [regard.attack(each, [TEXT, "it was bad"], None, attack) for each in (predictor, exact)]
        assert results[0].texts == results[1].texts


def test_pairs_of_bytes_are_the_letters_that_they_spell() -> None:
    pairs = tokenizers.ByteLevelBPETokenizer()
    pairs.train_from_iterator(["déjà vu déjà vu né né"] * 9, vocab_size=300, show_progress=False)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=pairs._tokenizer)
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_positions=40, n_embd=12, n_layer=1, n_head=3, bos_token_id=0, eos_token_id=0
    )
    predictor = TransformersClassifier(spread(transformers.GPT2LMHeadModel(config)), tokenizer)
    vocabulary = predictor.token_texts()
    text = "vu déjà né"
    for place in predictor.token_places(text):
        if vocabulary.texts[place.token] is not None:
            assert vocabulary.texts[place.token] == text[place.start : place.end]
    assert {"déjà", "vu", "né"} <= set(vocabulary.numbers)
    # half of a letter is no text
    assert vocabulary.texts[tokenizer.convert_tokens_to_ids("Ã")] is None


def test_long_texts() -> None:
    predictor = bert()
    text = "a good film " * 3
    assert predictor.can_read(text)
    assert not predictor.can_read(f"{text} a")
    sentence = "is 12 tokens long, and BertForSequenceClassification reads at most 11; shorten it"
    with pytest.raises(ValueError, match=f"^the text 'a good film a good film a good film a' {sentence}$"):
        regard.attribute(predictor, f"{text}a")


@for_each("kind", ["BertModel", "BertForTokenClassification"])
def test_models_without_logits_of_classes(kind: str) -> None:
    sentence = f"model must be for sequence classification, or a language model, got {kind}; {HEAD}"
    with pytest.raises(TypeError, match=f"^{sentence}$"):
        regard.attribute(bert(kind), TEXT, 0, "gradient")


def test_attention_that_cannot_be_replaced() -> None:
    predictor = bert()
    predictor.model.set_attn_implementation("eager")
    (measured,) = regard.faithfulness(predictor, TEXT, 0).inputs
    assert measured.attention is None
    assert set(measured.skipped) == {"masked-keys", "other attention"}
    assert measured.sentence.startswith("The attention of this model was not measured: intervene replaced no weights: ")
    with pytest.raises(ValueError, match="^intervene replaced no weights: "):
        regard.faithfulness(predictor, TEXT, 0, ["attention"])


def test_refusals() -> None:
    sentence = "by model.config.pad_token_id, which is None; set it to the number of a token that no text has$"
    with pytest.raises(ValueError, match=f"^GPT2ForSequenceClassification finds the last token of a text {sentence}"):
        gpt("GPT2ForSequenceClassification")
    bart = transformers.BartConfig(
        vocab_size=len(PIECES), d_model=12, encoder_layers=1, decoder_layers=1, encoder_attention_heads=3,
        decoder_attention_heads=3, encoder_ffn_dim=8, decoder_ffn_dim=8, max_position_embeddings=11, pad_token_id=0,
        bos_token_id=2, eos_token_id=3, decoder_start_token_id=3, forced_eos_token_id=None,
    )  # fmt: skip
    good = bert()
    with pytest.raises(TypeError, match="^model must be .* got BartForSequenceClassification; "):
        TransformersClassifier(transformers.BartForSequenceClassification(bart), good.tokenizer)
    masked = transformers.BertForMaskedLM(good.model.config)
    with pytest.raises(TypeError, match="^model must be .* got BertForMaskedLM; "):
        TransformersClassifier(masked, good.tokenizer)
    with pytest.raises(
        ValueError, match="^unknown reads 'frist'; did you mean 'first'[?] known are: first, last, mean$"
    ):
        TransformersClassifier(good.model, good.tokenizer, reads="frist")  # type: ignore[arg-type]
