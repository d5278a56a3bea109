"""Released translators: a folder with a Marian model in transformers' layout as a Translator."""

from regard.data.text.pairs import read_pairs
from regard.decoding.search import as_in_generate
from regard.inference.evaluation import Evaluation, Progress
from regard.models.pretrained.folder import read_generation_config
from regard.models.pretrained.loading import PretrainedModel
from regard.models.pretrained.sentencepiece_files import MarianTokenizer
from regard.models.transformer import Transformer
from regard.tasks.translate.options import EvaluateTranslations
from regard.tasks.translate.predictor import Translator
from regard.tasks.translate.task import evaluate_pairs
from regard.tasks.translate.vocabularies import Vocabularies


def released_translator(loaded: PretrainedModel) -> Translator:
    """The translator follows the rules of transformers' `generate`, with the largest length that the folder names."""
    tokenizer, model = loaded.load_tokenizer(), loaded.model
    assert isinstance(tokenizer, MarianTokenizer)
    assert isinstance(model, Transformer)
    assert model.longest is not None
    # transformers counts the token that begins a translation
    most = read_generation_config(loaded.config).integer("max_length", model.longest + 1) - 1
    return Translator(
        model,
        Vocabularies(tokenizer.source, tokenizer.target),
        stretch=None,
        longest=model.longest,
        most=max(most, 1),
        max_length=model.longest - 1,
        search_rule=as_in_generate,
        is_released=True,
    )


def evaluate_translator(predictor: Translator, options: EvaluateTranslations, progress: Progress) -> Evaluation:
    """BLEU, chrF and exact matches on the pairs of --test."""
    return evaluate_pairs(
        predictor, read_pairs(options.test, names=options.columns), " ".join(map(str, options.test)), options, progress
    )
