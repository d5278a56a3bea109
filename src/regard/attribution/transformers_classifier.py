"""TransformersClassifier: a model of transformers with its tokenizer, to explain or to attack, fused or compiled."""

import inspect
from collections.abc import Hashable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.common.suggestions import known
from regard.inference.edited_text import EditedText
from regard.inference.embedded_classifier import TokenInput, TokenLayer
from regard.inference.token_places import TokenPlace, VocabularyTexts
from regard.inference.token_predictor import TextScores, class_numbers, margin_scores
from regard.recording.recording import Recording

# the query that the classes are read from; None: all
_ROWS = {"first": 0, "last": -1, "mean": None}


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
        whole: Any = getattr(model, "_orig_mod", model)
        self._name = type(whole).__name__
        self._arguments = inspect.signature(whole.forward).parameters
        config = whole.config
        self._predicts_tokens = whole.get_output_embeddings() is not None
        # a masked language model predicts tokens too, but none that comes next
        if config.is_encoder_decoder or (self._predicts_tokens and not whole.can_generate()):
            raise self._refusal()
        is_decoder = hasattr(whole, "score")
        if is_decoder and config.pad_token_id is None:
            raise ValueError(
                f"{self._name} finds the last token of a text by model.config.pad_token_id, which is None; set it to "
                "the number of a token that no text has"
            )
        # a token of the vocabulary may have no name, where the embedding is larger
        self.classes = (
            [name or f"[{n}]" for n, name in enumerate(tokenizer.convert_ids_to_tokens(range(config.vocab_size)))]
            if self._predicts_tokens
            else [str(config.id2label[n]) for n in range(config.num_labels)]
        )
        if reads is not None:
            known("reads", reads, _ROWS)
        self.reads = reads or ("last" if self._predicts_tokens or is_decoder else "first")
        numbers = (config.pad_token_id, tokenizer.pad_token_id, 0)
        self._pad = next(n for n in numbers if n is not None)
        self._unknown = next(n for n in (tokenizer.unk_token_id, tokenizer.eos_token_id, *numbers) if n is not None)
        positions = getattr(config, "max_position_embeddings", None)
        self._longest = min(tokenizer.model_max_length, positions or tokenizer.model_max_length)

    def _refusal(self) -> TypeError:
        return TypeError(
            f"model must be for sequence classification, or a language model, got {self._name}; load one by "
            "transformers.AutoModelForSequenceClassification or AutoModelForCausalLM"
        )

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
            read = self.tokenizer(text, return_special_tokens_mask=True, verbose=False)
            ids, special = read["input_ids"], tuple(map(bool, read["special_tokens_mask"]))
            if all(special):
                raise ValueError(f"the text {text!r} has no tokens, so there is nothing to explain; give a sentence")
            if len(ids) > self._longest:
                raise ValueError(
                    f"the text {text!r:.40} is {len(ids)} tokens long, and {self._name} reads at most {self._longest}; "
                    "shorten it"
                )
            names = tuple(self.tokenizer.convert_ids_to_tokens(ids))
            tokens.append(TokenInput(names, tuple(ids), special, (len(ids),), (0,) * len(ids)))
        return tokens

    def token_logits(self, tokens: Sequence[TokenInput]) -> Tensor:  # -> "b k"
        read = [each.ids or (self._unknown,) for each in tokens]
        lengths = torch.tensor([*map(len, read)], device=self.device)
        ids = torch.full((len(read), int(lengths.max())), self._pad, device=self.device)
        for row, each in zip(ids, read, strict=True):
            row[: len(each)] = torch.tensor(each)
        is_real = torch.arange(ids.shape[1], device=self.device) < lengths[:, None]
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": is_real}
        if "use_cache" in self._arguments:
            inputs["use_cache"] = False
        logits: Tensor | None = getattr(self.model(**inputs), "logits", None)
        if logits is None or (logits.ndim == 3) != self._predicts_tokens:
            raise self._refusal()
        # "b t k" of a language model: those of the token behind the text
        return logits[range(len(read)), lengths - 1] if self._predicts_tokens else logits

    def vector_places(self, tokens: Sequence[TokenInput]) -> list[Tensor]:  # -> "n 3" each
        return [
            torch.tensor([(0, n, column) for column in range(len(each))], device=self.device)
            for n, each in enumerate(tokens)
        ]

    def token_recording(self, recording: Recording, tokens: TokenInput) -> Recording:
        return recording

    @property
    def reading_row(self) -> int | None:
        return _ROWS[self.reads]

    # Attacks

    @property
    def embedding(self) -> nn.Module | None:
        return self.token_layers[0].module

    def token_texts(self) -> VocabularyTexts:
        embedding: Any = self.embedding
        # a tokenizer may have more tokens than vectors
        pieces = self.tokenizer.convert_ids_to_tokens(range(min(len(self.tokenizer), embedding.num_embeddings)))
        # pairs of bytes are displayed by other letters, and the space before a word by Ġ
        if any(piece is not None and piece[:1] == "Ġ" for piece in pieces):
            texts = [self.tokenizer.convert_tokens_to_string([piece or ""]) for piece in pieces]
            pieces = [f"Ġ{text[1:]}" if text[:1] == " " else text for text in texts]
        return VocabularyTexts.of_pieces([piece or "" for piece in pieces], set(self.tokenizer.all_special_ids))

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
        return len(self.tokenizer(text, verbose=False)["input_ids"]) <= self._longest

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
