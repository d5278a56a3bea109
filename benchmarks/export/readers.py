"""Exported folders, read by other libraries: the answers that each gives, in batches of any size.

READERS has one class per library. A reader tokenizes with the files of the folder; the pieces of sentencepiece, for
which there is no file, are those of regard. Scores are log p without any penalty. ONNX Runtime, torch and CTranslate2
have no beam search by the rules of transformers, so they score the sentences that regard's beam found.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from benchmarks.export.answers import BEAM, GENERATED, Answer, mask_answer, token_log_probs
from benchmarks.peers.exported_graphs import GraphFolder, padded
from regard.inference.predictor import Predictor
from regard.tasks.classify_text.predictor import ClassifyTextPredictor
from regard.tasks.embed.predictor import EmbedPredictor
from regard.tasks.language_model.predictor import LanguageModelPredictor
from regard.tasks.masked_lm.predictor import MaskedLMPredictor
from regard.tasks.translate.predictor import Translator

POOLINGS: dict[str, Callable[[Tensor], Tensor]] = {  # "t d" -> "d"
    "mean": lambda states: states.mean(0),
    "first": lambda states: states[0],
    "max": lambda states: states.amax(0),
}


def _sums(logits: Tensor, targets: Sequence[Sequence[int]]) -> list[float]:  # "b t v"
    """Σ log p of the tokens of each target."""
    return [
        float(row[: len(target)].log_softmax(-1).gather(1, torch.tensor(target)[:, None]).sum())
        for row, target in zip(logits, targets, strict=True)
    ]


def pooled(predictor: EmbedPredictor, states: Tensor) -> Tensor:  # "t d" -> "d"
    """The vector of a text, as the guide says to compute it from states."""
    vector = POOLINGS[predictor.model.pooling](states)
    return torch.nn.functional.normalize(vector, dim=0) if predictor.model.normalize else vector


class Reader(ABC):
    """A loaded folder; `answers` takes one batch of texts, and the answers of regard, whose beam may be scored."""

    to: ClassVar[str]  # the format that it reads

    def __init__(self, folder: Path, predictor: Predictor[Any, Any]) -> None:
        self.folder, self.predictor = folder, predictor

    def answers(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        families: dict[type, Callable[[Sequence[str], Sequence[Answer]], list[Answer]]] = {
            Translator: self.translations,
            LanguageModelPredictor: self.continuations,
            EmbedPredictor: self.vectors,
            ClassifyTextPredictor: self.classes,
            MaskedLMPredictor: self.masks,
        }
        (answer,) = [each for kind, each in families.items() if isinstance(self.predictor, kind)]
        with torch.inference_mode():
            return answer(texts, own)

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of texts by the tokenizer of the folder."""
        path = self.folder / "tokenizer.json"
        if not path.exists():
            vocabulary = self.predictor.vocabularies.source
            return [[*ids, vocabulary.special.eos] for ids in vocabulary.encode(texts)]
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.encode_special_tokens = not self.predictor.exportable().vocabulary.matches_special
        return [tokenizer.encode(text).ids for text in texts]

    @abstractmethod
    def translations(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]: ...

    @abstractmethod
    def continuations(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]: ...

    @abstractmethod
    def vectors(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]: ...

    @abstractmethod
    def classes(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]: ...

    @abstractmethod
    def masks(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]: ...


def _class_answers(rows: Sequence[Sequence[int]], logits: Tensor) -> list[Answer]:
    return [Answer(tuple(ids), ((int(row.argmax()),),), row) for ids, row in zip(rows, logits, strict=True)]


def _mask_answers(rows: Sequence[Sequence[int]], logits: Tensor, mask: int) -> list[Answer]:  # "b t v"
    return [
        mask_answer(ids, row[[n for n, token in enumerate(ids) if token == mask]])
        for ids, row in zip(rows, logits, strict=True)
    ]


class GraphReader(Reader):
    """Graphs of ONNX or torch.export."""

    def __init__(self, folder: Path, predictor: Predictor[Any, Any]) -> None:
        super().__init__(folder, predictor)
        self.graphs = GraphFolder.read(folder, self.to)

    def translations(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        rows, beams = self.read(texts), [answer.written[1] for answer in own]
        found, log_p = self.graphs.translate(rows, self.predictor.most)
        sums = _sums(self.graphs.translation_logits(rows, beams), beams)
        return [
            Answer(tuple(ids), (tuple(tokens), beam), torch.tensor([greedy, total]))
            for ids, tokens, beam, greedy, total in zip(rows, found, beams, log_p, sums, strict=True)
        ]

    def continuations(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        rows = self.read(texts)
        found, log_p, logits = self.graphs.generate(rows, GENERATED)
        return [
            Answer(tuple(ids), (tuple(tokens),), torch.tensor([total, token_log_probs(row[-len(ids) :], ids)]))
            for ids, tokens, total, row in zip(rows, found, log_p, logits, strict=True)
        ]

    def vectors(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        rows = self.read(texts)
        return [Answer(tuple(ids), (), row) for ids, row in zip(rows, self.graphs.encode(rows), strict=True)]

    def classes(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        rows = self.read(texts)
        return _class_answers(rows, self.graphs.encode(rows))

    def masks(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        rows = self.read(texts)
        return _mask_answers(rows, self.graphs.encode(rows), self.graphs.special["mask"])


class ONNXReader(GraphReader):
    to = "onnx"


class TorchReader(GraphReader):
    to = "torch"


class CTranslate2Reader(Reader):
    """CTranslate2 has no heads of classes or masks: these are refused by the export."""

    to = "ctranslate2"
    KINDS: ClassVar[dict[type, str]] = {
        Translator: "Translator",
        LanguageModelPredictor: "Generator",
        EmbedPredictor: "Encoder",
    }

    def __init__(self, folder: Path, predictor: Predictor[Any, Any]) -> None:
        import ctranslate2

        super().__init__(folder, predictor)
        kind = getattr(ctranslate2, self.KINDS[type(predictor)])
        self.model = kind(str(folder), compute_type="float32", inter_threads=1, intra_threads=1)
        parts = predictor.exportable()
        self.source, self.target = parts.vocabulary, parts.target or parts.vocabulary
        self.ids = {piece: n for n, piece in enumerate(self.target.pieces)}
        unknown = self.target.special.get("unk")
        never = [[self.target.pieces[n]] for n in self.target.forbidden if n != unknown]
        self.search = {"suppress_sequences": never, "disable_unk": unknown in self.target.forbidden}

    def _pieces(self, rows: Sequence[Sequence[int]]) -> list[list[str]]:
        return [[self.source.pieces[n] for n in row] for row in rows]

    def translations(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        rows, eos = self.read(texts), self.target.special["eos"]
        sources, beams = self._pieces(rows), [answer.written[1] for answer in own]
        results = self.model.translate_batch(
            sources,
            beam_size=1,
            min_decoding_length=0,
            max_decoding_length=self.predictor.most,
            return_end_token=True,
            **self.search,
        )
        found = [tuple(self.ids[piece] for piece in result.hypotheses[0]) for result in results]
        scores = [self._log_probs(sources, targets, eos) for targets in (found, beams)]
        return [
            Answer(tuple(ids), (tokens, beam), torch.tensor(pair))
            for ids, tokens, beam, *pair in zip(rows, found, beams, *scores, strict=True)
        ]

    def _log_probs(self, sources: list[list[str]], targets: Sequence[Sequence[int]], eos: int) -> list[float]:
        """log p of translations, with their end if they have one."""
        texts = [[self.target.pieces[n] for n in row if n != eos] for row in targets]
        results = self.model.score_batch(sources, texts)
        return [sum(result.log_probs[: len(row)]) for result, row in zip(results, targets, strict=True)]

    def continuations(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        rows = self.read(texts)
        found: list[tuple[int, ...]] = [()] * len(rows)
        # CTranslate2 returns the prompts of a batch, too, if one of them has a single token
        single = {n for n, row in enumerate(rows) if len(row) == 1}
        for numbers in (sorted(single), [n for n in range(len(rows)) if n not in single]):
            for n, tokens in zip(numbers, self._generate([rows[n] for n in numbers]), strict=True):
                found[n] = tokens
        wholes = self.model.score_batch(self._pieces([[*ids, *more] for ids, more in zip(rows, found, strict=True)]))
        answers = []
        for ids, tokens, whole in zip(rows, found, wholes, strict=True):
            # the first token has no log p
            log_p, first = whole.log_probs, len(ids) - 1
            answers.append(Answer(tuple(ids), (tokens,), torch.tensor([sum(log_p[first:]), sum(log_p[:first])])))
        return answers

    def _generate(self, rows: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        by = {"sampling_topk": 1, "include_prompt_in_result": False, "return_end_token": True, **self.search}
        results = self.model.generate_batch(self._pieces(rows), max_length=GENERATED, **by) if rows else []
        return [tuple(result.sequences_ids[0]) for result in results]

    def vectors(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        rows = self.read(texts)
        states = torch.from_numpy(np.array(self.model.forward_batch(rows).last_hidden_state))
        return [
            Answer(tuple(ids), (), pooled(self.predictor, row[: len(ids)]))
            for ids, row in zip(rows, states, strict=True)
        ]

    def classes(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        raise TypeError("CTranslate2 has no classifiers")

    def masks(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        raise TypeError("CTranslate2 has no masked language models")


class TransformersReader(Reader):
    """Models and tokenizers by transformers' `from_pretrained`, searches by its `generate`."""

    to = "transformers"
    KINDS: ClassVar[dict[type, str]] = {
        Translator: "AutoModelForSeq2SeqLM",
        LanguageModelPredictor: "AutoModelForCausalLM",
        EmbedPredictor: "AutoModel",
        ClassifyTextPredictor: "AutoModelForSequenceClassification",
        MaskedLMPredictor: "AutoModelForMaskedLM",
    }

    def __init__(self, folder: Path, predictor: Predictor[Any, Any]) -> None:
        import transformers

        super().__init__(folder, predictor)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        kind = getattr(transformers, self.KINDS[type(predictor)])
        self.model, report = kind.from_pretrained(folder, output_loading_info=True)
        # a bare encoder has no pooler, which transformers adds
        assert not [name for name in report["missing_keys"] if "pooler" not in name], report
        self.model.eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self.tokenizer(list(texts)).input_ids
        return ids

    def _padded(self, rows: Sequence[Sequence[int]], left: bool = False) -> dict[str, Tensor]:
        pad = self.tokenizer.pad_token_id
        ids, mask = padded(rows, 0 if pad is None else pad, left)
        return {"input_ids": ids, "attention_mask": mask}

    def translations(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        rows = self.read(texts)
        inputs, found = self._padded(rows), []
        for beams in (1, BEAM):
            output = self.model.generate(
                **inputs, num_beams=beams, max_new_tokens=self.predictor.most, do_sample=False, length_penalty=1.0
            )
            found.append([self._until_end(row[1:]) for row in output])
        scores = [self._log_probs(inputs, targets) for targets in found]
        return [
            Answer(tuple(ids), (greedy, beam), torch.tensor(pair))
            for ids, greedy, beam, *pair in zip(rows, *found, *scores, strict=True)
        ]

    def _until_end(self, row: Tensor) -> tuple[int, ...]:
        ids, end = row.tolist(), self.model.generation_config.eos_token_id
        return tuple(ids[: ids.index(end) + 1] if end in ids else ids)

    def _log_probs(self, inputs: dict[str, Tensor], targets: Sequence[Sequence[int]]) -> list[float]:
        begin = self.model.config.decoder_start_token_id
        ids, _ = padded([[begin, *target[:-1]] for target in targets], self.model.config.pad_token_id)
        return _sums(self.model(**inputs, decoder_input_ids=ids).logits, targets)

    def continuations(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        rows = self.read(texts)
        inputs = self._padded(rows, left=True)
        output = self.model.generate(**inputs, max_new_tokens=GENERATED, do_sample=False)
        found = [self._until_end(row[inputs["input_ids"].shape[1] :]) for row in output]
        wholes = [[*ids, *more] for ids, more in zip(rows, found, strict=True)]
        logits = self.model(**self._padded(wholes)).logits
        answers = []
        for ids, tokens, whole, row in zip(rows, found, wholes, logits, strict=True):
            prompt = token_log_probs(row, ids)
            answers.append(Answer(tuple(ids), (tokens,), torch.tensor([token_log_probs(row, whole) - prompt, prompt])))
        return answers

    def vectors(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        rows = self.read(texts)
        states = self.model(**self._padded(rows)).last_hidden_state
        return [
            Answer(tuple(ids), (), pooled(self.predictor, row[: len(ids)]))
            for ids, row in zip(rows, states, strict=True)
        ]

    def classes(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        rows = self.read(texts)
        return _class_answers(rows, self.model(**self._padded(rows)).logits)

    def masks(self, texts: Sequence[str], own: Sequence[Answer]) -> list[Answer]:
        rows = self.read(texts)
        return _mask_answers(rows, self.model(**self._padded(rows)).logits, self.tokenizer.mask_token_id)


READERS: dict[str, type[Reader]] = {
    "CTranslate2": CTranslate2Reader,
    "ONNX Runtime": ONNXReader,
    "torch.export": TorchReader,
    "transformers": TransformersReader,
}
