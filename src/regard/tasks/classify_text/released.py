"""Released classifiers of texts: a folder with a BERT in transformers' layout as a ClassifyTextPredictor."""

from regard.data.spreadsheets.label_columns import TextColumns
from regard.data.text.subwords import PretrainedSubwords
from regard.inference.evaluation import Evaluation, Progress
from regard.inference.evaluation_split import EvaluationSplit
from regard.models.bert import BERTClassifier
from regard.models.pretrained.architecture import class_names
from regard.models.pretrained.folder import CONFIG
from regard.models.pretrained.loading import PretrainedModel
from regard.models.pretrained.tokenizer_files import load_tokenizer
from regard.models.transfer.classifier import ReleasedClassifier
from regard.tasks.classify_text.predictor import ClassifyTextPredictor
from regard.tasks.classify_text.task import evaluate_texts, read_files
from regard.tasks.shared.text_options import EvaluateLabelledTexts


def released_text_classifier(loaded: PretrainedModel) -> ClassifyTextPredictor:
    """Classes are named by id2label; a text longer than the positions of the model is cut off, and counted."""
    model, config = loaded.model, loaded.config
    assert isinstance(model, BERTClassifier)
    kind, count = config.text("problem_type", "single_label_classification"), model.output.out_features
    if kind != "single_label_classification" or count == 1:
        raise ValueError(
            f"{config.folder / CONFIG} describes a model of {count} outputs for {kind}, and regard predicts one of "
            "several classes; read it by regard.load_pretrained"
        )
    tokenizer = PretrainedSubwords(load_tokenizer(config))
    classes, longest = class_names(config, count), model.encoder.positions.longest
    return ClassifyTextPredictor(ReleasedClassifier(model).eval(), tokenizer, classes, max_length=longest)


def evaluate_text_classifier(
    predictor: ClassifyTextPredictor, options: EvaluateLabelledTexts, progress: Progress
) -> Evaluation:
    """Accuracy, macro F1 and −log p on the labelled texts of --test."""
    columns = options.columns(TextColumns())
    texts = read_files(options.test, predictor.classes, columns)
    return evaluate_texts(predictor, EvaluationSplit(texts, " ".join(map(str, options.test))), progress)
