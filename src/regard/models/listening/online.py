"""Writes while it listens: a ListenAttendSpell with an encoder of one direction and hard monotonic attention.

    state = start_listening(model)
    tokens, state = listen(model, frames, state)                      as often as sound comes in
    tokens, state = listen(model, frames, state, is_last=True)        the rest, up to the end of the sentence

A step of the decoder moves on over the states that are there. Where it stops at one, its token is written; where it
passes the last one, it is taken back and waits for more sound. The tokens are those of greedy search over the whole.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attn import stepwise
from regard.attn.kv_cache import KVCache
from regard.attn.mechanisms.monotonic import Monotonic
from regard.decoding.protocol import Step
from regard.layers.rnn.decoder_base import AttentionDecoder, RecurrentState
from regard.layers.rnn.pyramid import PyramidState
from regard.models.listening.listen_attend_spell import ListenAttendSpell


@dataclass(frozen=True)
class HeardToken:
    """A token, and the state of the encoder at which the attention stopped for it; None if it stopped nowhere."""

    token: int
    position: int | None


@dataclass(frozen=True, eq=False)
class ListeningState:
    """The states of encoder and decoder inside one sentence."""

    encoder: PyramidState
    decoder: RecurrentState | None  # None before the first state of the encoder
    token: int  # the last one
    is_over: bool  # whether the sentence has ended
    count: int  # tokens that were written


def start_listening(model: ListenAttendSpell, bos: int) -> ListeningState:
    """The state before the first frame."""
    decoder = model.decoder
    if not isinstance(decoder, AttentionDecoder) or not isinstance(decoder.attention, Monotonic):
        raise ValueError(
            "a model that writes while it listens needs monotonic attention, and this one attends to the whole sound; "
            "train it with online=True"
        )
    return ListeningState(model.encoder.start(), None, bos, False, 0)


@torch.no_grad()
def listen(
    model: ListenAttendSpell,
    frames: Tensor,
    state: ListeningState,
    *,
    eos: int,
    limit: int,
    forbidden: Sequence[int] = (),
    is_last: bool = False,
) -> tuple[list[HeardToken], ListeningState]:  # "s m"
    """The tokens that these frames complete; no more than `limit` in a sentence, its end included."""
    states, encoder = model.encoder.advance(frames.unsqueeze(0), state.encoder, is_last)
    decoder = _append_states(model, state.decoder, states)
    state = replace(state, encoder=encoder, decoder=decoder)
    tokens: list[HeardToken] = []
    while decoder is not None and not state.is_over:
        step = model.step(torch.tensor([[state.token]], device=frames.device), decoder, weights=True)
        position = _stop(step)
        if position is None and not is_last:
            break
        logits = step.logits[0, 0].index_fill(0, torch.tensor(forbidden, device=frames.device), -math.inf)
        token = int(logits.argmax())
        count = state.count + 1
        assert isinstance(step.state, RecurrentState)
        decoder = step.state
        state = replace(state, decoder=decoder, token=token, count=count, is_over=token == eos or count >= limit)
        tokens += [] if token == eos else [HeardToken(token, position)]
    return tokens, state


def _append_states(model: ListenAttendSpell, decoder: RecurrentState | None, states: Tensor) -> RecurrentState | None:
    """The state of the decoder with these further states to attend to, "1 t k"."""
    if not states.shape[1]:
        return decoder
    lengths = torch.tensor([states.shape[1]], device=states.device)
    if decoder is None:
        return model.decoder.init_state(model.encoded(states), lengths)
    assert isinstance(model.decoder, AttentionDecoder)
    assert decoder.memory is not None
    more = stepwise.project_kv(model.decoder.attention, states)
    keys = torch.cat([decoder.memory.keys, more.keys], 1)
    memory = KVCache(keys, torch.cat([decoder.memory.values, more.values], 1))
    alignment = F.pad(decoder.attention_state, (0, states.shape[1]), value=-math.inf)
    return replace(decoder, memory=memory, lengths=decoder.lengths + lengths, attention_state=alignment)


def _stop(step: Step) -> int | None:
    """The state at which a step stopped: the last one with any weight."""
    assert step.weights is not None
    attended = step.weights[0, 0].nonzero()
    return int(attended[-1]) if len(attended) else None
