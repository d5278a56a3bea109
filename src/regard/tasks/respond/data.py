"""Dialogues as tokens: the turns before a reply, the reply, and batches of both."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.common.wording import shortened
from regard.data.dialogues import Dialogue
from regard.data.text.special_tokens import SpecialTokens
from regard.data.text.text_tokenizer import TextTokenizer
from regard.models.responding.responder import History, is_predicted
from regard.tasks.shared.dialogue_data import DialogueFingerprint
from regard.training.protocol import TensorBatch


@dataclass(frozen=True, kw_only=True)
class ReplyFacts(DialogueFingerprint):
    """Fingerprints of the dialogues of a run, and how often each token occurs in the replies that it trains on."""

    counts: list[int]

    def __post_init__(self) -> None:
        if wrong := [count for count in self.counts if not 0 <= count < 2**53]:
            raise ValueError(f"counts must be whole numbers from 0 to 2⁵³, got {shortened(str(wrong[0]), 20)}")


class EncodedTurns(NamedTuple):
    """The turns before a reply as the model reads them, the oldest first, and counts for notes."""

    # BOS ends a turn of the other speaker and EOS one of the replying speaker; a turn without words has neither
    turns: tuple[tuple[int, ...], ...]
    num_dropped: int = 0  # turns before those that the model reads
    num_cut: int = 0  # turns that are longer than the model reads
    num_unknown: int = 0

    @property
    def speakers(self) -> list[int]:
        """0 gives the reply, 1 is the other one."""
        return [(len(self.turns) - n) % 2 for n in range(len(self.turns))]


class EncodedReply(NamedTuple):
    """The turns before a reply, and its tokens: with the end, unless it is longer than the model writes."""

    history: EncodedTurns
    tokens: tuple[int, ...]
    is_cut: bool
    dialogue: int  # its number
    turn: int  # the number of the reply in its dialogue

    def with_turns(self, most: int) -> "EncodedReply":
        """The same with the last turns of its history alone, unless these have no words."""
        last = self.history.turns[-most:]
        return self._replace(history=self.history._replace(turns=last)) if any(last) else self


class DialogueReader:
    """Turns of a dialogue to tokens: the last `turns` of them, and of each the last `words` tokens."""

    def __init__(self, tokenizer: TextTokenizer, turns: int, words: int) -> None:
        self.tokenizer, self.turns, self.words = tokenizer, turns, words

    def parse(self, text: str) -> Dialogue:
        """The turns of a dialogue, separated by tabs or line breaks; empty ones at the end are none, as in files."""
        turns = [turn.strip() for turn in text.replace("\n", "\t").split("\t")]
        while turns and not turns[-1]:
            turns.pop()
        if not turns:
            raise ValueError(
                f"a dialogue must be its turns so far, separated by tabs, got {shortened(text)}; give one turn with "
                "words at least"
            )
        return tuple(turns)

    def read(self, dialogue: Dialogue) -> EncodedTurns:
        """The turns before the next one."""
        return self.history(self.tokenizer.encode(dialogue))

    def history(self, encoded: Sequence[Sequence[int]]) -> EncodedTurns:
        """The same of turns that are tokens already."""
        kept, special = encoded[-self.turns :], self.tokenizer.special
        unk, ends = special.unk, [special.bos if (len(kept) - n) % 2 else special.eos for n in range(len(kept))]
        return EncodedTurns(
            tuple((*ids[-self.words :], end) if ids else () for ids, end in zip(kept, ends, strict=True)),
            len(encoded) - len(kept),
            sum(len(ids) > self.words for ids in kept),
            0 if unk is None else sum(list(ids).count(unk) for ids in kept),
        )

    def replies(self, dialogues: Sequence[Dialogue], which: str, turns: int | None = None) -> list[EncodedReply]:
        """All replies of dialogues, "all" or those of the "second" speaker; at most `turns` before each are read.

        An empty turn is no reply, nor is one without words in the turns before it that the model reads.
        """
        most = self.turns if turns is None else min(turns, self.turns)
        reader, eos = DialogueReader(self.tokenizer, most, self.words), self.tokenizer.special.eos
        replies = []
        for number, dialogue in enumerate(dialogues):
            encoded = self.tokenizer.encode(dialogue)
            for n in range(1, len(dialogue), 1 if which == "all" else 2):
                history = reader.history(encoded[:n])
                if encoded[n] and any(history.turns):
                    is_cut = len(encoded[n]) > self.words
                    tokens = tuple(encoded[n][: self.words]) if is_cut else (*encoded[n], eos)
                    replies.append(EncodedReply(history, tokens, is_cut, number, n))
        return replies


class PlannedReplies(NamedTuple):
    """The replies of a batch, a random number in [0, 1) for each, and the most turns before them that are read."""

    rows: NDArray[np.int64]  # "n"
    draws: NDArray[np.float64]  # "n"
    turns: int


# the share of passes that are for the last reply of a dialogue, whose history has all others
_LAST = 0.75


def first_reply(reply: EncodedReply, draw: float) -> int:
    """The place of a reply in the history of the last one, or behind it: mostly that, each of the others as often."""
    num_others = len(reply.history.turns) // 2
    return 1 + 2 * min(int(draw / (1 - _LAST) * num_others), num_others)


def whole_dialogues(replies: Sequence[EncodedReply], dialogues: Sequence[Dialogue]) -> list[EncodedReply] | None:
    """The last reply of every dialogue, in whose history all other replies stand with all turns before them.

    None if a reply is read with other turns than those that stand before it there: cut, dropped or empty ones. These
    are the replies of the second speaker.
    """
    last = {reply.dialogue: reply for reply in replies}
    counts = Counter(reply.dialogue for reply in replies)
    for number, reply in last.items():
        history = reply.history
        is_whole = not (reply.is_cut or history.num_cut or history.num_dropped) and all(history.turns)
        if not is_whole or counts[number] != len(dialogues[number]) // 2:
            return None
    return list(last.values())


def history_batch(histories: Sequence[EncodedTurns], special: SpecialTokens) -> History:
    """The tensors of the turns before several replies; dialogues with fewer turns have absent ones before them."""
    most = max(len(history.turns) for history in histories)
    words = max(len(turn) for history in histories for turn in history.turns)
    tokens = np.full((len(histories), most, words), special.pad, np.int64)
    lengths, speakers = (np.zeros((len(histories), most), np.int64) for _ in range(2))
    for row, history in enumerate(histories):
        first = most - len(history.turns)
        speakers[row, first:] = history.speakers
        for n, turn in enumerate(history.turns, first):
            tokens[row, n, : len(turn)] = turn
            lengths[row, n] = len(turn)
    return History(*map(torch.from_numpy, (tokens, lengths, speakers)))


@dataclass(frozen=True, eq=False)
class ReplyBatch(TensorBatch):
    """Replies and the turns before them."""

    history: History
    target: Tensor  # "b t+1", between BOS and the end, padded
    lengths: Tensor  # "b", of the predicted tokens
    first: Tensor  # "b", the turns of the history before those whose replies are learned with the target

    @staticmethod
    def of(
        replies: Sequence[EncodedReply], special: SpecialTokens, firsts: Sequence[int] | None = None
    ) -> "ReplyBatch":
        """`firsts` are places in the history from which on replies are learned, too; None: the target alone is."""
        lengths = np.array([len(reply.tokens) for reply in replies], np.int64)
        target = np.full((len(replies), 1 + int(lengths.max())), special.pad, np.int64)
        target[:, 0] = special.bos
        for row, reply in enumerate(replies):
            target[row, 1 : 1 + len(reply.tokens)] = reply.tokens
        history = history_batch([reply.history for reply in replies], special)
        counts = [len(reply.history.turns) for reply in replies]
        most = max(counts)
        first = [most - count + n for count, n in zip(counts, counts if firsts is None else firsts, strict=True)]
        return ReplyBatch(history, torch.from_numpy(target), torch.from_numpy(lengths), torch.tensor(first))

    @property
    def is_token(self) -> Tensor:  # bool "b t"
        """The predicted tokens that are no padding."""
        return is_predicted(self.target, self.lengths)

    @property
    def num_replied(self) -> int:
        """The tokens that are learned, in the history, too."""
        turns = torch.arange(self.history.lengths.shape[1], device=self.target.device)
        is_learned = (self.history.speakers == 0) & (turns >= self.first.unsqueeze(-1))
        return int(self.lengths.sum()) + int(self.history.lengths[is_learned].sum())


def token_lengths(replies: Sequence[EncodedReply]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # "n", "n"
    """The number of tokens before each reply, and of the reply."""
    before = [sum(map(len, reply.history.turns)) for reply in replies]
    return np.array(before, np.int64), np.array([len(reply.tokens) for reply in replies], np.int64)
