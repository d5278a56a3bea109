"""Models of sound: single steps equal the whole, padding changes nothing, and a listener hears what a search finds."""

from collections.abc import Callable

import pytest
import torch
from tests.for_each import for_each

from regard.attn.call import Need
from regard.data.text.special_tokens import BOS, EOS, PAD, UNK
from regard.decoding.search import Greedy, run_search
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.listening.listen_attend_spell import ListenAttendSpell
from regard.models.listening.online import HeardToken, listen, start_listening
from regard.models.listening.speech_transformer import SpeechTransformer

MELS, VOCABULARY = 7, 11
LENGTHS = torch.tensor([13, 29, 5])


def spelling(attention: str, **options: object) -> Callable[[], EncoderDecoder]:
    sizes = {"width": 6, "hidden": 10, "dropout": 0.0, "attention": attention, **options}
    return lambda: ListenAttendSpell(MELS, VOCABULARY, **sizes)  # type: ignore[arg-type]


MODELS: dict[str, Callable[[], EncoderDecoder]] = {
    name: spelling(name) for name in ("additive", "location-sensitive", "monotonic", "mocha", "multi-head")
}
MODELS |= {
    "online": spelling("monotonic", online=True, cell="lstm", pyramid=3),
    "transformer": lambda: SpeechTransformer(MELS, VOCABULARY, width=12, heads=3, layers=2, feed=10, dropout=0.0),
}
every_model = for_each("name", MODELS)


def build(name: str) -> tuple[EncoderDecoder, torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    model = MODELS[name]().eval()
    target = torch.cat([torch.full((3, 1), BOS), torch.randint(4, VOCABULARY, (3, 4))], 1)
    return model, torch.randn(3, 29, MELS), target


@every_model
def test_single_steps_equal_the_whole(name: str) -> None:
    model, x, target = build(name)
    with torch.no_grad():
        output = model.teacher_force(x, LENGTHS, target, Need(weights=True))
        state = model.init_state(x, LENGTHS)
        for t in range(5):
            step = model.step(target[:, t : t + 1], state, weights=True)
            state = step.state
            torch.testing.assert_close(step.logits[:, 0], model.logits(output.states[:, t]))
            torch.testing.assert_close(step.weights[:, 0], output.weights[:, t], check_dtype=False)


@every_model
def test_padding_changes_nothing(name: str) -> None:
    model, x, target = build(name)
    with torch.no_grad():
        together = model(x, LENGTHS, target)
        noisy = x.clone()
        noisy[0, 13:] = 99.0
        torch.testing.assert_close(model(noisy, LENGTHS, target), together)
        for n, length in enumerate(LENGTHS.tolist()):
            alone = model(x[n : n + 1, :length], LENGTHS[n : n + 1], target[n : n + 1])
            torch.testing.assert_close(alone[0], together[n])
    assert model.encoded_lengths(LENGTHS).tolist() == ([2, 4, 1] if name == "online" else [4, 8, 2])


@every_model
def test_every_parameter_learns(name: str) -> None:
    model, x, target = build(name)
    model.train()
    model(x, LENGTHS, target).square().sum().backward()
    for parameter, tensor in model.named_parameters():
        assert tensor.grad is not None, parameter
        assert tensor.grad.isfinite().all(), parameter
        # the key of softmax attention has a bias that changes nothing
        assert tensor.grad.any() or "bias" in parameter, parameter
    assert len(set(model.state_dict())) == len(model.state_dict())


# with these the attention of a random model stops at several states of the encoder
SEEDS = {"monotonic": 65, "mocha": 81}


def online(attention: str, offset: float) -> ListenAttendSpell:
    torch.manual_seed(SEEDS[attention])
    model = ListenAttendSpell(
        MELS, VOCABULARY, width=6, hidden=10, dropout=0.0, attention=attention, online=True, cell="lstm"
    ).eval()
    with torch.no_grad():
        # energies and tokens that differ much from step to step
        for parameter in model.parameters():
            parameter.mul_(4.0)
        model.decoder.attention.offset.fill_(offset)  # type: ignore[union-attr]
    return model


@pytest.mark.parametrize("attention", ["monotonic", "mocha"])
@pytest.mark.parametrize("offset", [0.5, -99.0])
@pytest.mark.parametrize("sizes", [[1] * 31, [31], [5, 0, 7, 2, 17]])
def test_a_listener_hears_what_a_search_finds(attention: str, offset: float, sizes: list[int]) -> None:
    model, x = online(attention, offset), torch.randn(31, MELS)
    lengths, forbidden = torch.tensor([31]), (PAD, BOS, UNK)
    ((right,),) = run_search(model, model.init_state(x[None], lengths), Greedy(), torch.tensor([12]), [0])
    heard: list[HeardToken] = []
    state, start = start_listening(model, BOS), 0
    for n, size in enumerate(sizes):
        frames, is_last = x[start : start + size], n == len(sizes) - 1
        tokens, state = listen(model, frames, state, eos=EOS, limit=12, forbidden=forbidden, is_last=is_last)
        start += size
        assert all(token.position is None or 4 * token.position < start for token in tokens)
        assert is_last or all(token.position is not None for token in tokens)
        heard += tokens
    assert tuple(token.token for token in heard) == right.tokens
    positions = [token.position for token in heard if token.position is not None]
    assert positions == sorted(positions)
    assert len(set(positions)) > 1 if offset == 0.5 else not positions


def test_only_monotonic_attention_listens() -> None:
    model = spelling("additive")()
    with pytest.raises(
        ValueError, match="needs monotonic attention, and this one attends to the whole sound; train it"
    ):
        start_listening(model, BOS)  # type: ignore[arg-type]
