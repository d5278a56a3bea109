"""TagPredictor: text in, its words with their tags, and spans with their probabilities, out."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.common.eval_mode import eval_mode
from regard.common.suggestions import known
from regard.common.tag_schemes import OUTSIDE, TaggedSpan
from regard.data.tagging.tagged import TaggedSentence
from regard.data.text.subword_inputs import SubwordEncoder, SubwordInputs
from regard.data.text.words import WordEncoder
from regard.inference.batches import similar_batches
from regard.inference.counted_note import EMPTY_TEXTS, CountedNote
from regard.inference.edited_text import EditedText
from regard.inference.margins import ranking_margin
from regard.inference.predictor import Observe, check_texts
from regard.inference.structured_predictor import OutputPart
from regard.inference.text_predictor import TextPredictor
from regard.inference.token_places import TokenPlace, VocabularyTexts, word_places
from regard.inference.token_predictor import TextScores
from regard.kernels import crf
from regard.layers.crf_search import best_paths, span_probabilities
from regard.models.tagger import Tagger, TaggerOutput
from regard.recording.recording import Recording
from regard.tasks.tag.attack import kept_tags, tag_scores
from regard.tasks.tag.data import TagVocabulary
from regard.tasks.tag.explained_tags import ExplainedTags, tag_target
from regard.tasks.tag.options import PredictTags, Tag
from regard.tasks.tag.outputs import Tagging, TagOutput, placed_span
from regard.viz.recording.figures import draw_recording

# stands for the words of a text that has none
_NOTHING = ("",)
# labels that are compared with the predicted one of a span, beside no span at all
_RIVALS = 3


class TagPredictor(TextPredictor[TagOutput]):
    """text -> words -> tags and spans, in batches of texts of similar length."""

    served_as = Tag.name
    page_title = "Tag texts with {run}"
    page_example = "Ada Lovelace worked with Charles Babbage in London."
    request_options = PredictTags
    model_noun = "this tagger"

    model: Tagger

    def __init__(
        self,
        model: Tagger,
        vocabulary: TagVocabulary,
        config: Tag,
        encoder: WordEncoder | SubwordEncoder | None = None,
        *,
        batch: int = 64,
    ) -> None:
        self.model, self.vocabulary, self.config, self.batch = model, vocabulary, config, batch
        self.encoder = vocabulary.encoder() if encoder is None else encoder
        self.scheme = vocabulary.tag_scheme
        self.split = vocabulary.splitter(config.words)

    # Prediction

    def read(self, argument: str) -> str:
        self._check_length(argument)
        return argument

    def _check_length(self, text: str) -> None:
        words = self.split(text)[0]
        count = len(words)
        if count > self.config.max_length:
            raise ValueError(
                f"the text {text[:30] + '…'!r} has {count:,} words, more than max_length={self.config.max_length:,} of "
                "this run; split it into sentences, one per line"
            )
        if isinstance(self.encoder, SubwordEncoder):
            self.encoder.check_length(words, f"the text {text[:30] + '…'!r}")

    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[TagOutput]:
        check_texts(inputs)
        options = PredictTags() if options is None else options
        for text in inputs:
            self._check_length(text)
        with observe():
            return self.outputs(inputs, options.paths)

    @torch.no_grad()
    def outputs(self, texts: Sequence[str], paths: int = 1) -> list[TagOutput]:
        """The output of every text."""
        split = [self.split(text) for text in texts]
        outputs: list[TagOutput | None] = [None] * len(texts)
        for index, mask, output in self._batches([words for words, _ in split]):
            emissions, potentials = output.emissions.cpu().double(), self._potentials(output)
            # one path more than asked for, for the margin
            best, scores = best_paths(emissions, mask, potentials, paths + 1)
            gaps = (scores[:, :-1] - scores[:, 1:]).nan_to_num(nan=torch.inf, posinf=torch.inf).amin(1)
            margins = (gaps / (1 + emissions.abs().amax((1, 2)))).tolist()
            best, scores = best[:, :paths], scores[:, :paths]
            shares = (scores - crf.nll(emissions, None, mask, potentials).unsqueeze(1)).exp()
            marginals = crf.marginals(emissions, mask, potentials)
            named = [
                [self.vocabulary.tags[n] for n in row[0][: len(split[k][0])]]
                for k, row in zip(index, best.tolist(), strict=True)
            ]
            spans = self._spans(emissions, mask, potentials, named, marginals)
            intents = None if output.intents is None else output.intents.cpu().double().softmax(-1)
            for row, k in enumerate(index):
                words, offsets = split[k]
                of_tags = marginals[row].gather(-1, best[row, 0].unsqueeze(-1)).squeeze(-1)[: len(words)]
                several = [
                    (tuple(self.vocabulary.tags[n] for n in path[: len(words)]), share)
                    for path, share, score in zip(*(part[row].tolist() for part in (best, shares, scores)), strict=True)
                    if score > -math.inf
                ]
                outputs[k] = TagOutput(
                    words,
                    offsets,
                    tuple(named[row]),
                    tuple(of_tags.tolist()),
                    tuple(
                        placed_span(span, probability, rivals, texts[k], offsets)
                        for span, probability, rivals in spans[row]
                    ),
                    None if intents is None else self._intent(intents[row]),
                    tuple(several) if paths > 1 else (),
                    min(margins[row], math.inf if intents is None else _margin(intents[row])),
                )
        return [each for each in outputs if each is not None]

    def tag_words(
        self, sentences: Sequence[Sequence[str]], done: Callable[[int], object] | None = None
    ) -> list[Tagging]:
        """The best tags and the intent of sentences that are words already."""
        taggings: list[Tagging | None] = [None] * len(sentences)
        with torch.no_grad():
            for index, mask, output in self._batches(sentences, done):
                path, _ = crf.viterbi(output.emissions.cpu(), mask, self._potentials(output, double=False))
                intents = None if output.intents is None else output.intents.argmax(-1).tolist()
                for row, (k, numbers) in enumerate(zip(index, path.tolist(), strict=True)):
                    tags = [self.vocabulary.tags[n] for n in numbers[: len(sentences[k])]]
                    taggings[k] = Tagging(tags, None if intents is None else self.vocabulary.intents[intents[row]])
        return [each for each in taggings if each is not None]

    def _batches(
        self, sentences: Sequence[Sequence[str]], done: Callable[[int], object] | None = None
    ) -> Iterator[tuple[list[int], Tensor, TaggerOutput]]:
        """The outputs of the model in batches of similar length, with the numbers of their sentences and their masks.

        A sentence without words is read as one unknown word, and its mask is empty.
        """
        with eval_mode(self.model):
            for index in similar_batches([*map(len, sentences)], self.batch, done):
                inputs = self.encoder.inputs([sentences[n] or _NOTHING for n in index])
                lengths = torch.tensor([len(sentences[n]) for n in index])
                mask = torch.arange(int(inputs.lengths.max())) < lengths.unsqueeze(1)
                yield index, mask, self.model(inputs.to(self.device))

    def _potentials(self, output: TaggerOutput, double: bool = True) -> crf.Potentials:
        scores = [score.cpu() for score in self.model.potentials(output.emissions)]
        return crf.Potentials(*(score.to(torch.float64 if double else output.emissions.dtype) for score in scores))

    def _spans(
        self,
        emissions: Tensor,
        mask: Tensor,
        potentials: crf.Potentials,
        tags: Sequence[Sequence[str]],
        marginals: Tensor,
    ) -> list[list[tuple[TaggedSpan, float, list[tuple[str, float]]]]]:
        """The spans of the best tags, each with its probability and its rivals, the likeliest first."""
        of_tags = [self.scheme.label(tag) for tag in self.scheme.tags]
        labels = sorted({*of_tags} - {""})
        outside = [OUTSIDE] if OUTSIDE in self.scheme.tags else []
        belongs = [[label == of_tag for of_tag in of_tags] for label in labels]
        member = torch.tensor(belongs, dtype=torch.float64)  # l k
        queries: list[list[TaggedSpan]] = []
        predicted = [self.scheme.spans(row) for row in tags]
        for row, spans in enumerate(predicted):
            queries.append([])
            for span in spans:
                # the labels whose tags have most of the probability of these words
                shares = (marginals[row, span.start : span.end] @ member.mT).mean(0)
                likely = [labels[n] for n in shares.argsort(descending=True).tolist() if labels[n] != span.label]
                queries[-1] += [span, *(span._replace(label=label) for label in [*outside, *likely[:_RIVALS]])]
        values = span_probabilities(emissions, queries, mask, potentials, self.scheme)
        answers = []
        for spans, queried, probabilities in zip(predicted, queries, values, strict=True):
            pairs = list(zip(queried, probabilities, strict=True))
            size = len(pairs) // len(spans) if spans else 0
            groups = [pairs[n * size : (n + 1) * size] for n in range(len(spans))]
            answers.append([_ranked(group) for group in groups])
        return answers

    def _intent(self, shares: Tensor) -> tuple[str, float]:
        n = int(shares.argmax())
        return self.vocabulary.intents[n], float(shares[n])

    def text(self, output: TagOutput) -> str:
        parts = [] if output.intent is None else [f"{output.intent[0]} {100 * output.intent[1]:.1f} %"]
        for span in output.spans:
            label, share = span.runner_up
            parts.append(f"{span.label}: {span.text} {100 * span.probability:.1f} % (else {label} {100 * share:.1f} %)")
        return "\t".join(parts) or "no spans"

    def json(self, output: TagOutput) -> dict[str, Any]:
        written: dict[str, Any] = {
            "words": [
                {"word": word, "start": start, "end": end, "tag": tag, "probability": share}
                for word, (start, end), tag, share in zip(
                    output.words, output.offsets, output.tags, output.probabilities, strict=True
                )
            ],
            "spans": [
                {
                    "label": span.label,
                    "text": span.text,
                    "start": span.characters[0],
                    "end": span.characters[1],
                    "probability": span.probability,
                    "runner_up": {"label": span.runner_up[0], "probability": span.runner_up[1]},
                }
                for span in output.spans
            ],
        }
        if output.intent is not None:
            written["intent"] = {"label": output.intent[0], "probability": output.intent[1]}
        if output.paths:
            written["paths"] = [{"tags": list(tags), "probability": share} for tags, share in output.paths]
        return written

    def margin(self, output: TagOutput) -> float:
        return min([output.margin, *(span.margin for span in output.spans)])

    # Gradients

    def loss(self, inputs: Sequence[str], targets: Sequence[str]) -> Tensor:  # -> "b"
        """−log p(tags | words), of tags separated by spaces, one per word."""
        return self._nll(*self._named_tags(inputs, targets))

    def _named_tags(
        self, texts: Sequence[str], targets: Sequence[str]
    ) -> tuple[list[tuple[str, ...]], list[list[str]]]:
        """The words of every text and their tags; raises for tags that do not fit."""
        split = [self.split(text)[0] for text in texts]
        tags = [target.split() for target in targets]
        for words, row in zip(split, tags, strict=True):
            if len(words) != len(row):
                raise ValueError(
                    f"target must have one tag per word, got {len(row)} for {len(words)} words of {words!r}"
                )
            for tag in row:
                known("tag", tag, self.vocabulary.tags)
        return split, tags

    def _nll(self, sentences: Sequence[Sequence[str]], tags: Sequence[Sequence[str]]) -> Tensor:  # -> "b"
        inputs = self.encoder.inputs([words or _NOTHING for words in sentences])
        gold = torch.zeros(len(sentences), int(inputs.lengths.max()), dtype=torch.int64)
        mask = torch.zeros_like(gold, dtype=torch.bool)
        for n, row in enumerate(tags):
            gold[n, : len(row)] = torch.tensor([self.vocabulary.tags.index(tag) for tag in row], dtype=torch.int64)
            mask[n, : len(row)] = True
        with eval_mode(self.model):
            emissions = self.model(inputs.to(self.device)).emissions
            potentials = self.model.potentials(emissions)
        return crf.nll(emissions, gold.to(self.device), mask.to(self.device), potentials)

    @torch.no_grad()
    def mean_nll(self, sentences: Sequence[TaggedSentence]) -> float:
        """−log p of the tags per word, 0 or more: a CRF rounds that of a certain sentence to either side of 0."""
        total = sum(
            float(self._nll([s.words for s in part], [s.tags for s in part]).clamp(min=0).sum())
            for part in (sentences[n : n + self.batch] for n in range(0, len(sentences), self.batch))
        )
        return total / max(1, sum(map(len, sentences)))

    @property
    def embedding(self) -> nn.Module:
        return self.model.embedding

    def embeddings(self, inputs: Sequence[str]) -> Tensor:  # -> "b t d"
        split = [self.split(text)[0] or _NOTHING for text in inputs]
        encoded = self.encoder.inputs(split)
        ids = encoded.tokens if isinstance(encoded, SubwordInputs) else encoded.words
        return self.model.embedding(ids.to(self.device))

    # Attacks

    def token_texts(self) -> VocabularyTexts:
        if isinstance(self.encoder, SubwordEncoder):
            return VocabularyTexts.of_tokenizer(self.encoder.tokenizer)
        return VocabularyTexts.of_words(self.encoder)

    def token_places(self, text: str) -> list[TokenPlace]:
        if not isinstance(self.encoder, SubwordEncoder):
            return word_places(self.encoder, text, self.split)
        words, spans = self.split(text)
        encoded = self.encoder.encode(words or _NOTHING)
        rows = zip(encoded.ids, encoded.words, encoded.offsets, strict=True)
        return [
            TokenPlace(*offsets, n).moved(spans[word][0]) for n, word, offsets in rows if word is not None and words
        ]

    def can_read(self, text: str) -> bool:
        try:
            self._check_length(text)
        except ValueError:
            return False
        return True

    def attack_targets(self, texts: Sequence[str], targets: Sequence[str] | None) -> list[tuple[int, ...]]:
        """The numbers of the tags of every word, given by their names with spaces between them."""
        if targets is None:
            tagged = self.tag_words([self.split(text)[0] for text in texts])
            targets = [" ".join(each.tags) for each in tagged]
        _, tags = self._named_tags(texts, targets)
        return [tuple(map(self.vocabulary.tags.index, row)) for row in tags]

    def target_group(self, target: tuple[int, ...]) -> None:
        """One trigger for all sentences."""

    def attack_scores(self, texts: Sequence[EditedText], targets: Sequence[tuple[int, ...]]) -> TextScores:
        kept = [kept_tags(text, tags, self.split) for text, tags in zip(texts, targets, strict=True)]
        words = [self.split(each.text)[0] or _NOTHING for each in texts]
        emissions = self.model(self.encoder.inputs(words).to(self.device)).emissions
        return tag_scores(emissions, self.model.potentials(emissions), kept)

    # Explanation

    def output_part(self, text: str, target: str | None) -> OutputPart:
        """The tags of a word or a span: see `tag_target`."""
        self._check_length(text)
        words = self.split(text)[0]
        if not words:
            raise ValueError(f"the text {text!r} has no words, so there is nothing to explain; give a sentence")
        explained = ExplainedTags(self, words, tag_target(self, words, target))
        return OutputPart(explained, explained.tokens())

    # The attention behind the tags

    @property
    def attends(self) -> bool:
        return self.model.attends and getattr(self.model, "attention", True) is not None

    def label(self, recording: Recording, example: str, output: TagOutput) -> Recording:
        """Rows are words with their tags and probabilities, columns are words; of an encoder both are sub-words."""
        rows = [
            word if tag == OUTSIDE else f"{word} {tag} {100 * share:.0f} %"
            for word, tag, share in zip(output.words, output.tags, output.probabilities, strict=True)
        ]
        keys, noun = list(output.words), "words"
        if isinstance(self.encoder, SubwordEncoder):
            encoded = self.encoder.encode(output.words or _NOTHING)
            keys, noun = self.encoder.tokenizer.pieces(encoded.ids), "tokens"
            named = dict(zip(encoded.firsts, rows, strict=False))
            rows = [named.get(place, piece) for place, piece in enumerate(keys)]
        return self.labelled(recording, example, self.text(output), rows, keys, {"keys": noun})

    def draw_figure(self, recording: Recording, example: str, output: TagOutput, path: Path) -> Path:
        """The attention of every word, beside its tag and the probability of it."""
        return draw_recording(recording, path, what="map", layer=len(recording) - 1)

    # Services

    def about(self) -> dict[str, object]:
        return {"tags": self.vocabulary.tags, "max_length": self.config.max_length}

    def notes(self, output: TagOutput) -> dict[CountedNote, int]:
        return {EMPTY_TEXTS: not output.words}


def _ranked(group: Sequence[tuple[TaggedSpan, float]]) -> tuple[TaggedSpan, float, list[tuple[str, float]]]:
    """The predicted span, which comes first, its probability, and the others, the likeliest first."""
    (span, probability), *others = group
    rivals = [(rival.label, share) for rival, share in others] or [(OUTSIDE, 0.0)]
    return span, probability, sorted(rivals, key=lambda pair: -pair[1])


def _margin(shares: Tensor) -> float:  # "k"
    """The margin of the likeliest of all classes."""
    return ranking_margin(shares.topk(min(2, len(shares))).values.tolist(), 1)
