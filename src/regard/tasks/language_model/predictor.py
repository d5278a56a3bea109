"""LanguageModelPredictor: a prompt in, its continuations out."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.common.eval_mode import eval_mode
from regard.common.wording import plural, shortened
from regard.data.text.library_vocabulary import library_vocabulary
from regard.data.text.special_tokens import EOS
from regard.data.text.text_tokenizer import PromptTokenizer
from regard.data.text.tokenizer import Tokenizer
from regard.inference.chat import ChatAnswer, Emit
from regard.inference.counted_note import UNKNOWN_TOKENS, CountedNote
from regard.inference.exportable import Exportable
from regard.inference.predictor import Observe, Predictor
from regard.models.language_model import LanguageModel
from regard.models.pretrained.prompt_tokenizer import ReleasedTokenizer
from regard.recording.recording import Recording
from regard.tasks.language_model.generation import (
    Continuation,
    EncodedPrompt,
    PromptRow,
    StreamedText,
    encode_prompt,
    generate_stream,
)
from regard.tasks.language_model.options import GenerateText

# texts that are generated together
_BATCH = 32


@dataclass(frozen=True)
class GeneratedTexts:
    """The continuations of one prompt."""

    prompt: str
    encoded: EncodedPrompt
    continuations: tuple[Continuation, ...]
    has_slid: bool = False  # whether a text grew past the context of the model


class LanguageModelPredictor(Predictor[str, GeneratedTexts]):
    """prompt -> tokens -> sampled tokens -> text; a text depends on the prompt, its number and the seed alone."""

    input_key: ClassVar[str] = "prompt"
    endpoint_class = "regard.tasks.language_model.endpoint:GenerateEndpoint"
    model: LanguageModel

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: PromptTokenizer,
        *,
        longest: int | None,
        ends: Sequence[int] | None = None,
        cuts_prompts: bool = True,
    ) -> None:
        """`longest` is the number of tokens that the model reads at once; None: any. `ends` are the tokens that end a
        text; None: that of the tokenizer. Of a longer prompt the last tokens are read, unless `cuts_prompts` is false.
        """
        self.model, self.tokenizer = model, tokenizer
        self.longest, self.cuts_prompts = longest, cuts_prompts
        self.ends = (tokenizer.special.eos,) if ends is None else tuple(ends)

    # Generation

    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[GeneratedTexts]:
        options = GenerateText() if options is None else options
        rows = [row for number, text in enumerate(inputs, first) for row in self.rows(text, number, options)]
        continuations = iter(self.continuations(rows))
        outputs = [self.output(text, [*islice(continuations, options.count)]) for text in inputs]
        if observe is not nullcontext:
            with observe(), torch.no_grad(), eval_mode(self.model):
                # the text that was read and written, once more: a pass in which every token attends to those before it
                for output in outputs:
                    self.model.hidden_states(torch.tensor([self.tokens_read(output)], device=self.device))
        return outputs

    def encode(self, prompt: str) -> EncodedPrompt:
        """The tokens of a prompt; raises if it is longer than the model reads and may not be cut."""
        encoded = encode_prompt(self.tokenizer, prompt, self.longest)
        if encoded.num_dropped and not self.cuts_prompts:
            raise ValueError(
                f"the prompt {shortened(prompt, 40)} has {len(encoded.tokens) + encoded.num_dropped} tokens, and "
                f"this model has {self.longest} positions; shorten it"
            )
        return encoded

    def rows(self, prompt: str, number: int, options: GenerateText) -> list[PromptRow]:
        """The texts to generate for a prompt, as many as the options ask for; tokens are sampled by its number."""
        encoded = self.encode(prompt)
        return [PromptRow(encoded, (options.seed, number, k), options) for k in range(options.count)]

    def continuations(self, rows: Sequence[PromptRow]) -> list[Continuation]:
        """The text of each row, whatever the options of the others."""
        wholes: list[Continuation] = []
        for start in range(0, len(rows), _BATCH):
            pieces = self._stream(rows[start : start + _BATCH])
            wholes += [piece.whole for piece in pieces if piece.whole is not None]
        return wholes

    def output(self, prompt: str, continuations: Sequence[Continuation]) -> GeneratedTexts:
        """The output for a prompt with these continuations."""
        encoded = self.encode(prompt)
        most = max(len(each.tokens) for each in continuations)
        has_slid = self.longest is not None and len(encoded.tokens) + most > self.longest + 1
        return GeneratedTexts(prompt, encoded, tuple(continuations), has_slid)

    def stream(self, prompt: str, options: GenerateText, *, number: int = 0) -> Iterator[StreamedText]:
        """The first text that `predict` gives for this prompt, in pieces as they are sampled."""
        return self._stream(self.rows(prompt, number, replace(options, count=1)))

    def _stream(self, rows: Sequence[PromptRow]) -> Iterator[StreamedText]:
        with eval_mode(self.model):
            yield from generate_stream(self.model, self.tokenizer, rows, self.longest, self.ends)

    def tokens_read(self, output: GeneratedTexts) -> list[int]:
        """The tokens of the prompt and of its first continuation: the last ones, if the model cannot read all."""
        tokens = [*output.encoded.tokens, *output.continuations[0].tokens]
        return tokens if self.longest is None else tokens[-self.longest :]

    def chat(
        self, turns: Sequence[str], options: Any = None, *, first: int = 0, emit: Emit | None = None
    ) -> ChatAnswer:
        """The turns are lines of a prompt, and the reply is the line behind them; of a conversation that is longer than
        the model reads, the first turns are left out."""
        options = GenerateText() if options is None else options
        lines, start = [f"{turn}\n" for turn in turns], 0
        while encode_prompt(self.tokenizer, "".join(lines[start:]), self.longest).num_dropped and lines[start + 1 :]:
            start += 1
        prompt, stop = "".join(lines[start:]), replace(options, stop=(*options.stop, "\n"))
        for piece in self.stream(prompt, stop, number=first):
            if emit is not None and piece.text:
                emit(piece.text)
        assert piece.whole is not None
        left_out = {"turn": start, "token": self.encode(prompt).num_dropped}
        notes = [
            f"left out: the first {plural(count, noun)} of the conversation; the model reads {self.longest} tokens"
            for noun, count in left_out.items()
            if count
        ]
        return ChatAnswer(piece.whole.text, notes=tuple(notes))

    def text(self, output: GeneratedTexts) -> str:
        """Prompt and continuation in one line; line breaks are written as \\n."""
        texts = (output.prompt + each.text for each in output.continuations)
        return "\t".join(text.replace("\\", "\\\\").replace("\n", "\\n") for text in texts)

    def json(self, output: GeneratedTexts) -> dict[str, Any]:
        return {"texts": [self.continuation_json(each) for each in output.continuations]}

    def continuation_json(self, continuation: Continuation) -> dict[str, Any]:
        return {
            "text": continuation.text,
            "tokens": len(continuation.tokens),
            "log_prob": continuation.log_prob,
            "finished": continuation.finished,
        }

    def sample_line(self, prompt: str, tokens: int) -> str:
        """A short continuation by the likeliest tokens, as a line."""
        (output,) = self.predict([prompt], GenerateText(tokens=tokens, temperature=0))
        return f"{prompt} → {output.continuations[0].text}".replace("\n", "\\n")

    # Gradients

    def loss(self, inputs: Sequence[str], targets: Sequence[str]) -> Tensor:  # -> "b"
        """−log p(target | prompt), the sum over the tokens of the target."""
        prompts = [encode_prompt(self.tokenizer, text, None).tokens for text in inputs]
        ends = [self.tokenizer.encode_text(target) for target in targets]
        rows = [[*prompt, *end] for prompt, end in zip(prompts, ends, strict=True)]
        for row in rows:
            if self.longest is not None and len(row) > self.longest + 1:
                raise ValueError(
                    f"a prompt and its target have {len(row)} tokens, and this model reads {self.longest}; "
                    "shorten one of them"
                )
        tokens = self._pad(rows)
        is_target = torch.zeros_like(tokens, dtype=torch.bool)
        for n, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
            is_target[n, len(prompt) : len(row)] = True
        with eval_mode(self.model):
            logits = self.model.logits(self.model.hidden_states(tokens[:, :-1]).states)
        nll = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
        return (nll * is_target[:, 1:]).sum(1)

    @property
    def embedding(self) -> nn.Module | None:
        embedding: nn.Module | None = getattr(self.model, "embedding", None)
        return embedding

    def embeddings(self, inputs: Sequence[str]) -> Tensor:  # -> "b t d"
        assert self.embedding is not None
        prompts = [self.encode(text).tokens for text in inputs]
        return self.embedding(self._pad(prompts))

    def _pad(self, rows: Sequence[Sequence[int]]) -> Tensor:  # -> "b t"
        """Padding stands behind the text, where no token attends to it."""
        longest, end = max(map(len, rows)), self.tokenizer.special.pad
        return torch.tensor([[*row, *[end] * (longest - len(row))] for row in rows], device=self.device)

    # The context of each token

    def label(self, recording: Recording, example: str, output: GeneratedTexts) -> Recording:
        """Rows are tokens and columns those before them; the text is the prompt with its first continuation."""
        pieces = tuple(self.tokenizer.pieces(self.tokens_read(output)))
        about = {**recording.about, "text": example, "said": output.continuations[0].text, "keys": "tokens"}
        return replace(recording, queries=pieces, keys=pieces, about=about)

    # Services

    def exportable(self) -> Exportable:
        if isinstance(self.tokenizer, Tokenizer):
            # an empty text is the end of the one before
            vocabulary = library_vocabulary(self.tokenizer, spaced=False, bos=EOS)
        else:
            assert isinstance(self.tokenizer, ReleasedTokenizer)
            vocabulary = self.tokenizer.library_vocabulary()
        return Exportable(self.model, vocabulary, longest=self.longest)

    def notes(self, output: GeneratedTexts) -> dict[CountedNote, int]:
        read = f"the {self.longest} tokens that the model reads"
        cut = CountedNote("prompt", f"had more than {read}; only the last of them were read")
        slid = CountedNote(
            "text", f"grew past {read} at once; each time it was full, the older half of the context was dropped"
        )
        encoded = output.encoded
        return {UNKNOWN_TOKENS: encoded.num_unknown, cut: encoded.num_dropped > 0, slid: output.has_slid}
