"""Released masked language models: a folder with a BERT in transformers' layout as a predictor."""

from regard.data.text.subwords import PretrainedSubwords
from regard.models.bert import BERTMaskedLM
from regard.models.pretrained.loading import PretrainedModel
from regard.models.pretrained.tokenizer_files import load_tokenizer
from regard.tasks.masked_lm.masked_texts import ReleasedMaskedTexts
from regard.tasks.masked_lm.predictor import MaskedLMPredictor


def released_masked_lm(loaded: PretrainedModel) -> MaskedLMPredictor:
    """It guesses tokens of text alone; the probabilities are among all tokens, as the model has them."""
    assert isinstance(loaded.model, BERTMaskedLM)
    texts = ReleasedMaskedTexts(PretrainedSubwords(load_tokenizer(loaded.config)))
    return MaskedLMPredictor(loaded.model, texts, longest=loaded.model.encoder.positions.longest)
