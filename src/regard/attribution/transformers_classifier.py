"""TransformersClassifier: a model of transformers with its tokenizer, to explain or to attack, fused or compiled."""

import inspect
from collections.abc import Hashable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.inference.edited_text import EditedText
from regard.inference.embedded_classifier import TokenInput, TokenLayer
from regard.inference.token_places import TokenPlace, VocabularyTexts
from regard.inference.token_predictor import TextScores, class_numbers, margin_scores
from regard.recording.recording import Recording


class TransformersClassifier:
    """The logits of a model for sequence classification, or of the next token of a language model.

        predictor = regard.attribution.TransformersClassifier(model, tokenizer)
        regard.attribute(predictor, "a good film", "POSITIVE")

    `reads` is the token whose state the classes are read from: the first, the last or the mean of all; None takes the
    last where the model is a decoder, and the first elsewhere.
    """

    def __init__(self, model: nn.Module, tokenizer: Any, reads: Literal["first", "last", "mean"] | None = None) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._arguments = inspect.signature(getattr(model, "_orig_mod", model).forward).parameters
        config: Any = self.model.config
        self._predicts_tokens = not hasattr(self.model, "classifier") and not hasattr(self.model, "score")
        self.classes = (
            tokenizer.convert_ids_to_tokens(range(config.vocab_size))
            if self._predicts_tokens
            else [str(config.id2label[n]) for n in range(config.num_labels)]
        )
        self.reads = reads or ("last" if self._predicts_tokens or hasattr(self.model, "score") else "first")

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def token_layers(self) -> tuple[TokenLayer, ...]:
        model: Any = self.model
        return (TokenLayer(model.get_input_embeddings(), self.tokenizer.pad_token_id),)

    def encode_tokens(self, inputs: Sequence[str]) -> list[TokenInput]:
        tokens = []
        for text in inputs:
            ids = self.tokenizer(text)["input_ids"]
            special = tuple(n in self.tokenizer.all_special_ids for n in ids)
            if all(special):
                raise ValueError(f"the text {text!r} has no tokens, so there is nothing to explain; give a sentence")
            names = tuple(self.tokenizer.convert_ids_to_tokens(ids))
            tokens.append(TokenInput(names, tuple(ids), special, (len(ids),), (0,) * len(ids)))
        return tokens

    def token_logits(self, tokens: Sequence[TokenInput]) -> Tensor:  # -> "b k"
        lengths = torch.tensor([len(each) for each in tokens], device=self.device)
        ids = torch.zeros(len(tokens), int(lengths.max()), dtype=torch.long, device=self.device)
        ids.fill_(self.tokenizer.pad_token_id or 0)
        for row, each in zip(ids, tokens, strict=True):
            row[: len(each)] = torch.tensor(each.ids)
        is_real = torch.arange(ids.shape[1], device=self.device) < lengths[:, None]
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": is_real}
        if "use_cache" in self._arguments:
            inputs["use_cache"] = False
        logits: Tensor = self.model(**inputs).logits
        # "b t k" of a language model: those of the token behind the text
        return logits[range(len(tokens)), lengths - 1] if logits.ndim == 3 else logits

    def vector_places(self, tokens: Sequence[TokenInput]) -> list[Tensor]:  # -> "n 3" each
        return [
            torch.tensor([(0, n, column) for column in range(len(each))], device=self.device)
            for n, each in enumerate(tokens)
        ]

    def token_recording(self, recording: Recording, tokens: TokenInput) -> Recording:
        return recording

    @property
    def reading_row(self) -> int | None:
        return {"first": 0, "last": -1, "mean": None}[self.reads]

    # Attacks

    @property
    def embedding(self) -> nn.Module | None:
        return self.token_layers[0].module

    def token_texts(self) -> VocabularyTexts:
        pieces = self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))
        return VocabularyTexts.of_pieces(pieces, set(self.tokenizer.all_special_ids))

    def token_places(self, text: str) -> list[TokenPlace]:
        read = self.tokenizer(text, return_offsets_mapping=True, return_special_tokens_mask=True)
        rows = zip(read["input_ids"], read["offset_mapping"], read["special_tokens_mask"], strict=True)
        # byte pairs include the space before a word
        return [
            TokenPlace(end - len(text[start:end].lstrip()), end, token)
            for token, (start, end), is_special in rows
            if not is_special
        ]

    def can_read(self, text: str) -> bool:
        return len(self.tokenizer(text)["input_ids"]) <= self.tokenizer.model_max_length

    def attack_targets(self, texts: Sequence[str], targets: Sequence[str] | None) -> list[int]:
        """The numbers of classes, given by their names."""
        if targets is not None:
            return class_numbers(targets, self.classes)
        with torch.no_grad():
            return self.token_logits(self.encode_tokens(texts)).argmax(1).tolist()

    def target_group(self, target: int) -> Hashable:
        return target

    def attack_scores(self, texts: Sequence[EditedText], targets: Sequence[int]) -> TextScores:
        return margin_scores(self.token_logits(self.encode_tokens([each.text for each in texts])), targets)
