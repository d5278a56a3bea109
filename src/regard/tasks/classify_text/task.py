"""The task classify-text: its training problem and its evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attn.call import Need
from regard.common.wording import clipped, plural
from regard.data.embedded import recall
from regard.data.splitting import Split
from regard.data.spreadsheets.label_columns import TextColumns
from regard.data.text.batching import long_sample_warnings, plan_batches
from regard.data.text.labelled import LabelledTexts, read_labelled
from regard.data.text.special_tokens import UNK
from regard.data.text.subwords import SubwordTokenizer
from regard.data.text.tokenizer import Tokenizer
from regard.data.unseen_labels import extend_classes, renumber
from regard.inference.evaluation import Evaluation, Progress, sample_rows, timed
from regard.inference.evaluation_split import EvaluationSplit, record_splits
from regard.losses import frobenius_penalty, reinforce
from regard.models.bag_of_words import BagOfWords
from regard.models.hierarchical import HierarchicalAttention
from regard.models.self_attentive import SelfAttentive
from regard.models.text_classifier import TextClassifier, TextClassifierOutput
from regard.tasks.base import Task
from regard.tasks.classify_text.baseline import fit_baseline
from regard.tasks.classify_text.data import (
    Sentences,
    TextBatch,
    TextFacts,
    contents,
    drop_words,
    encode,
    pad,
    plan_document_batches,
    read,
    sentences_of,
    train_tokenizer,
)
from regard.tasks.classify_text.naive_bayes import (
    add_ratios,
    log_count_ratios,
    naive_bayes,
    token_counts,
)
from regard.tasks.classify_text.options import AttentiveOptions, BagOfWordsOptions, ClassifyText, SelfAttentiveOptions
from regard.tasks.classify_text.predictor import ClassifyTextPredictor
from regard.tasks.shared.classification import (
    baseline_note,
    class_evaluation,
    class_intervals,
    class_loss,
    class_sample,
    class_scores,
    is_affordable,
    is_baseline_saved,
    known_rows,
    load_baseline,
    unseen_class_notes,
    write_baseline,
)
from regard.tasks.shared.encoder import PretrainedEncoder, smallest_encoder
from regard.tasks.shared.encoder_options import EncoderOptions
from regard.tasks.shared.row_batches import SeededRows
from regard.tasks.shared.text_generation import initial_tokenizer, read_tokenizer, write_tokenizer
from regard.tasks.shared.text_options import AttackLabelledTexts, EvaluateLabelledTexts
from regard.training.protocol import BaselineReport, Loss, TrainingProblem, ValidationResult

_TOKENS = "tokens.json"
_BASELINE_TOKENS = "baseline-tokens.json"
_NAIVE_BAYES = "naive-bayes.safetensors"
# the baselines in words, by their names in JSON
_BASELINES = {"baseline": "bag of words, the baseline", "naive_bayes": "naive Bayes, the baseline by counts alone"}
# the weight of the entropy of a hard attention, which keeps it undecided while it learns where to attend
_ENTROPY = 0.05


Scores = dict[str, float]
Intervals = dict[str, tuple[float, float]]


@dataclass(frozen=True, eq=False)
class ClassifyTextProblem(TrainingProblem[TextClassifier, TextBatch]):
    """−log p(class | text), with label smoothing and the penalty of hops."""

    config: ClassifyText
    classes: Sequence[str]
    tokenizer: Tokenizer | SubwordTokenizer  # tokenizer of the model
    texts: Sequence[Sentences]
    labels: NDArray[np.int64]  # "n"
    valid: LabelledTexts
    summary: str
    max_length: int
    folder: Path
    encoder: PretrainedEncoder | None = None
    shared: Sequence[str] = ()  # warnings about texts that files share
    unit: str = "texts"

    def build_model(self) -> TextClassifier:
        model, options = build(self.config, self.tokenizer, len(self.classes), self.encoder), self.config.model
        if isinstance(options, AttentiveOptions) and options.initial_embeddings == "log-ratios":
            assert isinstance(model, SelfAttentive | HierarchicalAttention)
            counts = token_counts(self.texts, self.labels, model.embedding.num_embeddings, len(self.classes))
            add_ratios(model.embedding, log_count_ratios(counts))
        return model

    def plan_epoch(self, epoch: int) -> Sequence[SeededRows]:
        if self.config.model.reads_sentences:
            batches = plan_document_batches(self.texts, self.config.batch, self.config.seed, epoch)
        else:
            lengths = np.array([sum(map(len, text)) for text in self.texts])
            batches = plan_batches((lengths, lengths), self.config.batch, self.config.seed, epoch)
        return [SeededRows((self.config.seed, epoch, n), rows) for n, rows in enumerate(batches)]

    def warnings(self) -> Sequence[str]:
        lengths = np.array([sum(map(len, text)) for text in self.texts])
        notes = [*long_sample_warnings([lengths], self.config.batch), *unseen_class_notes(self.valid, self.classes)]
        if not is_baseline_saved(self.folder):
            notes.append(
                f"the texts have {len(self.classes):,} classes, too many for a bag of words as the baseline; if they "
                "should be fewer, name the column of the labels, or part label and text by a tab"
            )
        return notes

    def baselines(self) -> BaselineReport | None:
        if isinstance(self.config.model, BagOfWordsOptions):
            return None
        baselines = baseline_scores(self.config, self.folder, self.valid, self.classes)
        if not baselines:
            return None
        advice = ""
        if isinstance(self.config.model, AttentiveOptions):
            ratios = self.config.model.initial_embeddings == "log-ratios"
            advice = "" if ratios else "--embedding-std 0.05 --initial-embeddings log-ratios, or "
            advice += "--encoder FOLDER with a pretrained encoder"
        scores = {_BASELINES[name].partition(",")[0]: each["accuracy"] for name, (each, _) in baselines.items()}
        return BaselineReport("accuracy", True, scores, advice)

    def load_batch(self, planned: SeededRows, rank: int, world: int) -> TextBatch | None:
        rows = planned.rows[rank::world]
        if not len(rows):
            return None
        rng = np.random.default_rng(planned.seed)
        unknown, kept = UNK, frozenset[int]()
        if self.encoder is not None:
            unknown, kept = self.encoder.tokenizer.dropped, self.encoder.tokenizer.special
        whole = [self.texts[n] for n in planned.rows]
        texts = drop_words(whole, self.config.word_dropout, rng, unknown, kept)[rank::world]
        tokens, lengths = pad(texts, self.config.model.reads_sentences)
        return TextBatch(tokens, lengths, torch.from_numpy(self.labels[rows]))

    def loss(self, model: TextClassifier, batch: TextBatch) -> Loss:
        options = self.config.model
        penalty = options.penalty if isinstance(options, SelfAttentiveOptions) else 0.0
        samples = model.training and model.samples_keys
        need = Need(weights=penalty > 0, log_prob=samples, entropy=samples)
        output = model.classify(batch.tokens, batch.lengths, need)
        loss = class_loss(output.logits, batch.labels, self.config.smoothing)
        total = loss.total
        if penalty:
            assert output.weights is not None
            total = total + penalty * frobenius_penalty(output.weights.float()).sum()
        if samples:
            total = total + _hard_attention_loss(output, batch.labels)
        return replace(loss, total=total)

    def validate(self, model: TextClassifier) -> ValidationResult:
        predictor = ClassifyTextPredictor(model, self.tokenizer, self.classes, max_length=self.max_length)
        probabilities = predictor.probabilities(sentences_of(self.tokenizer, self.valid.texts, self.max_length))
        sample = _sample(self.valid, probabilities, 0)
        return ValidationResult(class_scores(probabilities, self.valid.labels), "accuracy", True, sample)

    def locate(self, planned: Sequence[SeededRows]) -> str:
        """The number of the texts of these batches, and the beginning of the first."""
        index = np.concatenate([each.rows for each in planned])
        ids = next(filter(None, self.texts[index[0]]))
        reader = self.tokenizer
        text = reader.decode(ids) if isinstance(reader, Tokenizer) else " ".join(reader.pieces(ids))
        start = clipped(text, 60)
        return f"{len(index)} texts of {self.config.dataset_label}, the first of them {start!r}"


class ClassifyTextTask(Task[ClassifyText, ClassifyTextPredictor]):
    """Trains, loads and evaluates classifiers of texts."""

    def prepare(self, folder: Path, new: bool) -> ClassifyTextProblem:
        config = self.config
        initial = TextFacts.of_initial(folder)
        splits = read(config, None if initial is None else initial.classes)
        facts = TextFacts(classes=list(splits.train.classes)).for_data(splits)
        # a run that was killed while it read its data has nothing to load yet; the facts are written last
        new = new or not TextFacts.is_saved(folder)
        # the folder of an encoder is read first: if it is none, nothing was computed in vain
        options = config.model
        encoder = PretrainedEncoder.prepare(options, folder, new) if isinstance(options, EncoderOptions) else None
        if new:
            tokenizer = initial_tokenizer(folder, _TOKENS, lambda: train_tokenizer(config, splits.train.texts))
        else:
            facts.check_same(folder)
            tokenizer = read_tokenizer(folder / _TOKENS)
        encoded = encode(tokenizer, splits.train.texts, config.max_length)
        if new:
            write_tokenizer(tokenizer, folder / _TOKENS)
            _write_baselines(config, folder, splits.train, tokenizer, [text.tokens for text in encoded])
            facts.write(folder)
        shared = record_splits(config, folder, splits, "texts", contents, new)
        reader: Tokenizer | SubwordTokenizer = tokenizer
        max_length = longest_text(config, encoder)
        vocabulary = f"{len(tokenizer):,} tokens"
        if encoder is not None:
            reader = encoder.tokenizer
            encoded = encode(reader, splits.train.texts, max_length)
            vocabulary = f"{reader.size:,} tokens of {encoder.facts.source}"
        labels, valid = splits.train.labels, splits.valid
        summary = f"{len(labels):,} texts to train on, {len(valid):,} to validate, {len(facts.classes)} classes, "
        summary += vocabulary
        if count := sum(text.num_cut > 0 for text in encoded):
            are = "is" if count == 1 else "are"
            summary += f"; {plural(count, 'text')} {are} cut off after {max_length:,} tokens"
        if count := splits.train.num_latin1:
            summary += (
                f"; {count:,} line{'s are' if count > 1 else ' is'} not UTF-8 and read as {splits.train.fallback}"
            )
        rest = ([text.tokens for text in encoded], labels, valid, summary, max_length, folder, encoder, shared)
        return ClassifyTextProblem(config, facts.classes, reader, *rest)

    def sketch(self) -> nn.Module:
        options = self.config.model
        if isinstance(options, EncoderOptions):
            return options.build(smallest_encoder(options), 3)
        return options.build(11, 3)

    def predictor(self, folder: Path) -> ClassifyTextPredictor:
        classes, encoder = TextFacts.read(folder).classes, None
        tokenizer: Tokenizer | SubwordTokenizer = read_tokenizer(folder / _TOKENS)
        if isinstance(self.config.model, EncoderOptions):
            encoder = PretrainedEncoder.of_run(folder)
            tokenizer = encoder.tokenizer
        model = build(self.config, tokenizer, len(classes), encoder)
        return ClassifyTextPredictor(model, tokenizer, classes, max_length=longest_text(self.config, encoder))

    def example(self, folder: Path) -> str:
        return read(self.config).valid.texts[0]

    def known_features(self, predictor: ClassifyTextPredictor, count: int) -> Sequence[tuple[str, NDArray[np.bool_]]]:
        if self.config.dataset != "recall":
            return ()
        # every character is a token, and one of them is the answer
        texts = read(self.config).valid.texts[:count]
        return [(text, np.arange(len(text)) == recall.answer_place(text)) for text in texts]

    def evaluate(
        self, predictor: ClassifyTextPredictor, folder: Path, options: EvaluateLabelledTexts, progress: Progress
    ) -> Evaluation:
        split = self._texts(folder, options, predictor.classes)
        baselines = baseline_scores(self.config, folder, split.data, predictor.classes)
        return evaluate_texts(predictor, split, progress, baselines)

    def attack_examples(
        self, predictor: ClassifyTextPredictor, folder: Path, options: AttackLabelledTexts
    ) -> tuple[list[str], list[str], str]:
        split = self._texts(folder, options, predictor.classes)
        data = split.data[known_rows(split.data.labels, len(predictor.classes))]
        return list(data.texts), [data.classes[n] for n in data.labels], split.title

    def _texts(
        self, folder: Path, options: EvaluateLabelledTexts, classes: Sequence[str]
    ) -> EvaluationSplit[LabelledTexts]:
        """The texts to classify."""
        has_test = bool(options.test) or (options.split == "test" and self.config.test is not None)
        part: Split = "test" if has_test else "valid"
        columns = options.columns(self.config.columns)
        return EvaluationSplit.of(
            self.config,
            options,
            folder,
            "texts",
            read_files=lambda paths: read_files(paths, classes, columns, part),
            read_part=lambda part: getattr(read(self.config, classes), part),
            contents=contents,
        )


def _write_baselines(
    config: ClassifyText, folder: Path, train: LabelledTexts, tokenizer: Tokenizer, texts: Sequence[Sentences]
) -> None:
    """Naive Bayes and a bag of words, where they are affordable; words as they are written are folded for both."""
    if config.dataset == "files" and tokenizer.kind == "words":
        tokenizer = train_tokenizer(config, train.texts, "folded-words")
        write_tokenizer(tokenizer, folder / _BASELINE_TOKENS)
        texts = sentences_of(tokenizer, train.texts, config.max_length)
    counted = (texts, train.labels, len(tokenizer), len(train.classes))
    if is_affordable(len(tokenizer), len(train.classes)):
        write_baseline(naive_bayes(token_counts(*counted), train.labels), folder, _NAIVE_BAYES)
    if is_affordable(len(tokenizer) + BagOfWordsOptions().bigrams, len(train.classes)):
        write_baseline(fit_baseline(*counted), folder)


def baseline_scores(
    config: ClassifyText, folder: Path, data: LabelledTexts, classes: Sequence[str]
) -> dict[str, tuple[Scores, Intervals]]:
    """The scores on texts and their intervals, of the baselines that the run has."""
    # baselines have tokens of their own where the model is a pretrained encoder, or reads words as they are written
    has_tokens = (folder / _BASELINE_TOKENS).exists()
    tokenizer = read_tokenizer(folder / (_BASELINE_TOKENS if has_tokens else _TOKENS))
    sizes = len(tokenizer), len(classes)
    models = {}
    if is_baseline_saved(folder):
        models["baseline"] = load_baseline(BagOfWords(*sizes), folder)
    if is_baseline_saved(folder, _NAIVE_BAYES):
        models["naive_bayes"] = load_baseline(BagOfWords(*sizes, bigrams=0), folder, _NAIVE_BAYES)
    counted = sentences_of(tokenizer, data.texts, config.max_length)
    scores = {}
    for name, model in models.items():
        baseline = ClassifyTextPredictor(model, tokenizer, classes, max_length=config.max_length)
        probabilities = baseline.probabilities(counted)
        scores[name] = class_scores(probabilities, data.labels), class_intervals(probabilities, data.labels)
    return scores


def read_files(
    paths: Sequence[Path], classes: Sequence[str], columns: TextColumns = TextColumns(), part: Split = "test"
) -> LabelledTexts:
    """The texts of files, labels that are not among these classes behind them.

    Of a file with parts it is this `part`.
    """
    files = [read_labelled(path, classes, part, columns) for path in paths]
    together = extend_classes((name for file in files for name in file.classes), classes, " ".join(map(str, paths)))
    labels = np.concatenate([renumber(file.labels, file.classes, together) for file in files])
    return LabelledTexts([text for file in files for text in file.texts], labels, together)


def evaluate_texts(
    predictor: ClassifyTextPredictor,
    split: EvaluationSplit[LabelledTexts],
    progress: Progress,
    baselines: Mapping[str, tuple[Scores, Intervals]] = MappingProxyType({}),
) -> Evaluation:
    """The scores on texts, beside those of the baselines and their intervals."""
    data = split.data
    encoded = predictor.tokenize(data.texts)
    tokens = [text.tokens for text in encoded]
    probabilities, seconds = timed(lambda done: predictor.probabilities(tokens, done), len(data), progress)
    notes, facts = [], {}
    for name, (scores_below, of_baseline) in baselines.items():
        facts[name] = {"scores": scores_below, "intervals": of_baseline}
        notes.append(baseline_note(scores_below, of_baseline, _BASELINES[name]))
    if count := sum(text.num_cut > 0 for text in encoded):
        were = "was" if count == 1 else "were"
        notes.append(f"{plural(count, 'text')} {were} cut off after {predictor.max_length:,} tokens")
    evidence = None
    if data.evidence is not None and predictor.model.attends:
        evidence = evidence_attention(predictor, tokens, data.evidence)
        notes.append("evidence: the share of the attention that is on the sentence that decides the class, in percent")
    samples = [_sample(data, probabilities, n) for n in sample_rows(len(data))]
    return class_evaluation(
        split,
        probabilities,
        predictor.classes,
        "texts",
        seconds,
        samples=samples,
        notes=notes,
        facts=facts,
        evidence=evidence,
        inputs=data.texts,
    )


def build(
    config: ClassifyText, tokenizer: Tokenizer | SubwordTokenizer, classes: int, encoder: PretrainedEncoder | None
) -> TextClassifier:
    """The model with initial weights; those of an encoder come from its folder if the run has none yet."""
    if isinstance(config.model, EncoderOptions):
        assert encoder is not None
        return config.model.build(encoder.build(config.model), classes)
    assert isinstance(tokenizer, Tokenizer)
    return config.model.build(len(tokenizer), classes)


def longest_text(config: ClassifyText, encoder: PretrainedEncoder | None) -> int:
    """The tokens after which a text is cut off: an encoder may have fewer positions than `max_length`."""
    return config.max_length if encoder is None else encoder.longest_input(config.max_length)


def evidence_attention(
    predictor: ClassifyTextPredictor, texts: Sequence[Sentences], evidence: NDArray[np.int64]
) -> float:
    """The share of the attention to the sentence that decides the class, in percent, the mean over texts.

    A sentence that was cut off receives none.
    """
    shares = predictor.sentence_shares(texts)
    return 100.0 * float(
        np.mean(
            [float(share[n]) if n < len(share) else 0.0 for share, n in zip(shares, evidence.tolist(), strict=True)]
        )
    )


def _hard_attention_loss(output: TextClassifierOutput, labels: Tensor) -> Tensor:
    """Σ −(R − b) log p(s) − λ H(s): teaches a hard attention where to attend  (Xu et al. 2015, 4.1).

    R is log p of the right class, b the mean of R over the other texts of the batch.
    """
    assert output.log_prob is not None
    assert output.entropy is not None
    reward = -F.cross_entropy(output.logits.float(), labels, reduction="none").detach()
    others = max(len(reward) - 1, 1)
    level = (reward.sum() - reward) / others if len(reward) > 1 else reward
    return reinforce(output.log_prob, reward, level, entropy=output.entropy, entropy_weight=_ENTROPY) * len(reward)


def _sample(data: LabelledTexts, probabilities: NDArray[np.float64], n: int) -> str:
    return class_sample(clipped(data.texts[n], 100), data, probabilities, n)
