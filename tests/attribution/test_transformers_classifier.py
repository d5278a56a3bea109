"""Models of transformers: fused, eager and compiled ones have the same scores; language models explain a token."""

import pytest
import torch
import transformers
from tests.attribution.classifiers import TEXT, made, spread
from tests.for_each import for_each
from tests.tasks.encoders import PIECES

import regard
from regard.attribution import METHODS, TransformersClassifier


@for_each("method", METHODS)
def test_eager_attention_is_explained_as_fused_attention(method: str) -> None:
    predictor, given = made("transformers")
    fused = regard.attribute(predictor, given, 1, method).scores
    predictor.model.set_attn_implementation("eager")
    if method == "masked-keys":
        with pytest.raises(ValueError, match="load a model of transformers with attn_implementation='sdpa'$"):
            regard.attribute(predictor, given, 1, method)
        return
    torch.testing.assert_close(regard.attribute(predictor, given, 1, method).scores, fused, atol=1e-5, rtol=1e-4)


def test_a_compiled_model_is_explained_as_it_is_written() -> None:
    predictor, given = made("transformers")
    compiled = TransformersClassifier(torch.compile(predictor.model, backend="eager"), predictor.tokenizer)
    for method in ("attention", "relevance", "gradient", "leave-one-out", "masked-keys"):
        expected = regard.attribute(predictor, given, 1, method)
        found = regard.attribute(compiled, given, 1, method)
        torch.testing.assert_close(found.scores, expected.scores, atol=1e-5, rtol=1e-4)
        assert found.target == expected.target


def gpt2(kind: str) -> TransformersClassifier:
    config = transformers.GPT2Config(
        vocab_size=len(PIECES), n_embd=12, n_layer=2, n_head=3, n_positions=40, num_labels=3, pad_token_id=0
    )
    torch.manual_seed(0)
    tokenizer = transformers.BertTokenizer(vocab={piece: n for n, piece in enumerate(PIECES)})
    return TransformersClassifier(spread(getattr(transformers, kind)(config)), tokenizer)


@pytest.mark.parametrize("kind", ["GPT2LMHeadModel", "GPT2ForSequenceClassification"])
def test_decoders_read_the_last_token(kind: str) -> None:
    predictor = gpt2(kind)
    (tokens,) = predictor.encode_tokens([TEXT])
    assert predictor.reading_row == -1
    names = {"GPT2LMHeadModel": PIECES, "GPT2ForSequenceClassification": ["LABEL_0", "LABEL_1", "LABEL_2"]}
    assert predictor.classes == names[kind]
    with torch.no_grad():
        logits = predictor.model(torch.tensor([tokens.ids])).logits[0]
        alone, padded = (predictor.token_logits(batch)[0] for batch in ([tokens], [tokens, tokens.without({1, 2})]))
    torch.testing.assert_close(alone, logits[-1] if logits.ndim == 2 else logits)
    torch.testing.assert_close(padded, alone)
    for method in METHODS:
        result = regard.attribute(predictor, TEXT, 2, method)
        assert result.target == predictor.classes[2]
        assert result.scores.isfinite().all()
    # no token can be attended to before it is there: the first query has one key
    rollout = regard.attribute(predictor, TEXT, 2, "rollout").scores
    assert float(rollout.sum()) == pytest.approx(1, abs=1e-5)


def test_the_token_that_classes_are_read_from() -> None:
    predictor, _ = made("transformers")
    rows = {reads: TransformersClassifier(predictor.model, predictor.tokenizer, reads) for reads in ("first", "mean")}
    assert {reads: each.reading_row for reads, each in rows.items()} == {"first": 0, "mean": None}
    first, mean = (regard.attribute(each, TEXT, 1, "attention").scores for each in rows.values())
    assert not torch.allclose(first, mean)
