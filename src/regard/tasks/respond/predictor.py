"""RespondPredictor: the turns of a dialogue in, the next turn out."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attn.call import Need
from regard.common.eval_mode import eval_mode
from regard.common.wording import plural
from regard.data.text.text_tokenizer import TextTokenizer
from regard.decoding.paths import PathStep
from regard.decoding.search import Greedy, Sampling, Search, hypotheses_of, num_hypotheses, search_steps
from regard.inference.batches import similar_batches
from regard.inference.chat import ChatAnswer, Emit, WordWeight, joined_words
from regard.inference.counted_note import UNKNOWN_TOKENS, CountedNote
from regard.inference.limits import Limits
from regard.inference.predictor import Observe
from regard.inference.text_predictor import StreamingPredictor
from regard.models.responding.responder import History, Responder
from regard.recording.recording import Recording
from regard.tasks.respond.data import DialogueReader, EncodedReply, EncodedTurns, ReplyBatch, history_batch
from regard.tasks.respond.maps import label_dialogue
from regard.tasks.respond.options import PredictReplies, RequestReplies, Respond
from regard.tasks.shared.text_generation import GeneratedText, TextHypotheses, search_texts, shift_right
from regard.viz.recording.figures import draw_recording


@dataclass(frozen=True)
class GeneratedReplies(TextHypotheses):
    """The replies to one dialogue, the best first."""

    dialogue: str
    encoded: EncodedTurns


class AttendedTurn(NamedTuple):
    """A turn that the model read: its tokens for display, and the attention that each had from every reply token."""

    pieces: list[str]
    weights: Tensor  # "t w"; its sum over words is the attention to the turn


class RespondPredictor(StreamingPredictor[GeneratedReplies]):
    """turns -> tokens -> search -> text; an input is a dialogue so far, its turns separated by tabs or line breaks.

    The turns alternate between two speakers, and the reply is given by the one who did not speak last.
    """

    input_key: ClassVar[str] = "dialogue"
    served_as = Respond.name
    page_title = "Talk with {run}"
    request_options = RequestReplies

    model: Responder

    def __init__(self, model: Responder, reader: DialogueReader, *, batch: int = 32) -> None:
        self.model, self.reader, self.batch = model, reader, batch

    @property
    def tokenizer(self) -> TextTokenizer:
        return self.reader.tokenizer

    # Generation

    def read(self, argument: str) -> str:
        self.reader.parse(argument)
        return argument

    def predict(
        self, inputs: Sequence[str], options: Any = None, observe: Observe = nullcontext, *, first: int = 0
    ) -> list[GeneratedReplies]:
        options = PredictReplies() if options is None else options
        histories = [self.reader.read(self.reader.parse(text)) for text in inputs]
        replies = self.generate(histories, options.search, first=first)
        outputs = [
            GeneratedReplies(hypotheses, text, history, numbered=options.nbest is not None)
            for text, history, hypotheses in zip(inputs, histories, replies, strict=True)
        ]
        if observe is not nullcontext:
            with observe():
                for output in outputs:
                    self.attend(output)
        return outputs

    @torch.no_grad()
    def generate(
        self,
        histories: Sequence[EncodedTurns],
        search: Search = Greedy(),
        *,
        first: int = 0,
        done: Callable[[int], object] | None = None,
    ) -> list[list[GeneratedText]]:
        """The replies after these turns, the best first, in batches of dialogues of similar length.

        `first` is the number of the first dialogue, by which replies are sampled. `done` is called with the number of
        dialogues that have replies, after every batch.
        """
        lengths = [sum(map(len, history.turns)) for history in histories]
        replies: list[list[GeneratedText]] = [[] for _ in histories]
        with eval_mode(self.model):
            for rows in similar_batches(lengths, self.batch, done):
                state = self.model.init_state(self._history([histories[n] for n in rows]))
                limits, numbers = self._limits(len(rows)), [first + n for n in rows]
                texts = search_texts(self.model, state, self.tokenizer, search, limits, numbers)
                for n, hypotheses in zip(rows, texts, strict=True):
                    replies[n] = hypotheses
        return replies

    def stream(self, dialogue: str, options: Any = None, *, first: int = 0) -> Iterator[str | GeneratedReplies]:
        """The reply of `predict` in pieces of its text, each as soon as its tokens are found, and then the output.

        A beam decides about the first token last, so its reply is one piece.
        """
        options = PredictReplies() if options is None else options
        search = options.search
        if not isinstance(search, Greedy | Sampling) or num_hypotheses(search) > 1:
            (output,) = self.predict([dialogue], options, first=first)
            yield output.best.text
            yield output
            return
        history, special = self.reader.read(self.reader.parse(dialogue)), self.tokenizer.special
        limits, steps, released = self._limits(1), list[PathStep](), ""
        with eval_mode(self.model):
            with torch.no_grad():
                state = self.model.init_state(self._history([history]))
            marks: dict[str, Any] = {"bos": special.bos, "eos": special.eos, "forbidden": special.forbidden}
            for step in search_steps(self.model, state, search, limits, [first], **marks):
                steps.append(step)
                # the bytes of half a character are held back
                text = self.tokenizer.decode([int(each.tokens) for each in steps]).rstrip("\ufffd")
                if text != released and text.startswith(released):
                    yield text[len(released) :]
                    released = text
        ((hypothesis,),) = hypotheses_of(search, steps, limits, eos=special.eos)
        reply = GeneratedText.of(hypothesis, self.tokenizer)
        if reply.text != released:
            yield reply.text[len(released) :]
        yield GeneratedReplies([reply], dialogue, history, numbered=options.nbest is not None)

    def _limits(self, count: int) -> Tensor:  # -> "b"
        """The most tokens of replies, with their ends."""
        return torch.full((count,), self.reader.words + 1, device=self.device)

    def _history(self, histories: Sequence[EncodedTurns]) -> History:
        return history_batch(histories, self.tokenizer.special).to(self.device)

    def text(self, output: GeneratedReplies) -> str:
        return output.lines()

    def json(self, output: GeneratedReplies) -> dict[str, Any]:
        counts = {"dropped": output.encoded.num_dropped, "cut": output.encoded.num_cut}
        return {"replies": output.json(), **counts}

    def margin(self, output: GeneratedReplies) -> float:
        return output.best.margin

    # Likelihood

    @torch.no_grad()
    def token_nlls(
        self, replies: Sequence[EncodedReply], done: Callable[[int], object] | None = None
    ) -> list[np.ndarray[Any, np.dtype[np.float64]]]:  # "t" each
        """−log p of every token of replies, each with the turns before it."""
        lengths = [(len(reply.tokens), len(reply.history.turns)) for reply in replies]
        nlls = [np.empty(0)] * len(replies)
        with eval_mode(self.model):
            for rows in similar_batches(lengths, self.batch, done):
                nll = self._nll(ReplyBatch.of([replies[n] for n in rows], self.tokenizer.special).to(self.device))
                for n, each in zip(rows, nll.cpu().double().numpy(), strict=True):
                    nlls[n] = each[: len(replies[n].tokens)]
        return nlls

    def _nll(self, batch: ReplyBatch) -> Tensor:  # -> "b t"
        logits = self.model(batch.history, batch.target[:, :-1])
        return F.cross_entropy(logits.transpose(1, 2), batch.target[:, 1:], reduction="none") * batch.is_token

    def loss(self, inputs: Sequence[str], targets: Sequence[str]) -> Tensor:  # -> "b"
        """−log p(target | dialogue), with the end of the turn; a longer target than the model writes is cut."""
        replies = []
        for text, target in zip(inputs, targets, strict=True):
            (ids,) = self.tokenizer.encode([target])
            tokens = (*ids, self.tokenizer.special.eos)[: self.reader.words + 1]
            replies.append(EncodedReply(self.reader.read(self.reader.parse(text)), tokens, False, 0, 0))
        with eval_mode(self.model):
            return self._nll(ReplyBatch.of(replies, self.tokenizer.special).to(self.device)).sum(1)

    @property
    def embedding(self) -> nn.Module:
        return self.model.embedding

    def embeddings(self, inputs: Sequence[str]) -> Tensor:  # -> "b t d"
        history = self._history([self.reader.read(self.reader.parse(text)) for text in inputs])
        return self.embedding(history.tokens.flatten(1))

    # The attention behind a reply

    def _force(self, history: EncodedTurns, reply: GeneratedText, need: Need = Need()) -> Tensor | None:
        """The steps of the search once more, all at once; the weights "t m·w" if they are needed."""
        with torch.no_grad(), eval_mode(self.model):
            inputs = shift_right([reply.with_eos or [reply.eos]], self.tokenizer.special).to(self.device)
            weights = self.model.teacher_force(self._history([history]), inputs, need).weights
        return None if weights is None else weights[0].cpu()

    def attend(self, output: GeneratedReplies) -> None:
        """The pass of the best reply once more, for an observer of its attention."""
        self._force(output.encoded, output.best)

    def attended(self, output: GeneratedReplies) -> list[AttendedTurn]:
        """The turns that were read for the best reply, and the attention of its tokens, the end included, to their
        tokens.

        Of a flat model this is the mean over its heads and layers, so that a row sums to less than one: the rest is
        attention to the reply itself.
        """
        weights = self._force(output.encoded, output.best, Need(weights=True))
        assert weights is not None
        turns = output.encoded.turns
        by_turn = weights.unflatten(1, (len(turns), -1))
        return [AttendedTurn(self.tokenizer.pieces(turn), by_turn[:, n, : len(turn)]) for n, turn in enumerate(turns)]

    def chat(
        self, turns: Sequence[str], options: Any = None, *, first: int = 0, emit: Emit | None = None
    ) -> ChatAnswer:
        for piece in self.stream("\t".join(turns), options, first=first):
            if isinstance(piece, GeneratedReplies):
                output = piece
            elif emit is not None:
                emit(piece)
        return self.chat_answer(output)

    def chat_answer(self, output: GeneratedReplies, recording: Recording | None = None) -> ChatAnswer:
        """The best reply, and the mean attention of its tokens to the words of all turns."""
        encoded, reader = output.encoded, self.reader
        # without the token that ends a turn
        tokens = [
            [WordWeight(*each) for each in zip(turn.pieces[:-1], turn.weights.mean(0).tolist(), strict=False)]
            for turn in self.attended(output)
        ]
        notes = []
        if encoded.num_dropped:
            count = plural(encoded.num_dropped, "turn")
            notes.append(f"left out: the first {count} of the conversation; the model reads {reader.turns}")
        if encoded.num_cut:
            notes.append(f"of {plural(encoded.num_cut, 'turn')} only the last {reader.words} tokens are read")
        words = ((),) * encoded.num_dropped + tuple(joined_words(tokens))
        return ChatAnswer(output.best.text, words, notes=tuple(notes))

    def label(self, recording: Recording, example: str, output: GeneratedReplies) -> Recording:
        """Rows are the tokens of the reply, columns those of all turns: a map over words, and one over turns."""
        queries = self.tokenizer.pieces(output.best.with_eos or [output.best.eos])
        turns = [self.tokenizer.pieces(turn) for turn in output.encoded.turns]
        about = {"text": example, "said": output.best.text, "queries": "reply", "keys": "dialogue"}
        labelled = label_dialogue(recording, queries, turns)
        return replace(labelled, about={**recording.about, **about})

    def draw_figure(self, recording: Recording, example: str, output: GeneratedReplies, path: Path) -> Path:
        """The map over words; a page has the others too."""
        return draw_recording(recording, path, what="map", layer=0)

    # Services

    def notes(self, output: GeneratedReplies) -> dict[CountedNote, int]:
        turns, words = self.reader.turns, self.reader.words
        read = "that the model reads; only the last of them were read"
        after = f"cut off after {words + 1} tokens"
        encoded = output.encoded
        return {
            UNKNOWN_TOKENS: encoded.num_unknown,
            CountedNote("dialogue", f"had more than the {plural(turns, 'turn')} {read}"): encoded.num_dropped > 0,
            CountedNote("turn", f"had more than the {words} tokens {read}"): encoded.num_cut,
            CountedNote("reply", f"was {after}", f"were {after}", "replies"): sum(
                not reply.finished for reply in output.hypotheses
            ),
        }

    def about(self) -> dict[str, object]:
        return {"vocabulary": len(self.tokenizer), "turns": self.reader.turns, "words": self.reader.words}

    def option_maxima(self, limits: Limits) -> dict[str, int]:
        return {"beam": limits.beam}
