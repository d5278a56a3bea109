"""BERT: padding is not there, packed texts are texts of their own, heads read what they should."""

import copy
import functools

import pytest
import torch
from tests.for_each import for_each
from tests.models.cases import HEADS
from torch import Tensor, nn

from regard import Documents, Lengths
from regard.layers.position_choices import POSITIONS
from regard.models import BERT, BERTClassifier, BERTMaskedLM

# sizes that share no factor: a swapped axis must fail
B, T, V = 3, 7, 19
LENGTHS = torch.tensor([4, 7, 1])
KINDS: dict[str, dict[str, object]] = {name: {"positions": name} for name in POSITIONS}
KINDS |= {f"{name} heads": {"attention": name, "layers": 1} for name in HEADS}
KINDS |= {"pre-norm": {"norm": "pre"}, "a list": {"attention": ["dot", "entmax", "additive"], "positions": "rotary"}}
every = for_each("kind", KINDS)


def built(**choices: object) -> BERT:
    sizes = {"width": 12, "heads": 3, "layers": 2, "feed": 10, "longest": 11, "dropout": 0.0}
    torch.manual_seed(1)
    model = BERT(V, **{**sizes, **choices})
    for key, p in model.named_parameters():
        if "attention.attention" not in key or ".bias." in key:
            nn.init.normal_(p, mean=1.0 if "norm" in key else 0.0, std=0.4)
    return model.double()


def texts() -> Tensor:
    return torch.randint(0, V, (B, T), generator=torch.Generator().manual_seed(2))


# angles of a rotation are in float32
close = functools.partial(torch.testing.assert_close, rtol=1e-5, atol=1e-6)


@every
@torch.no_grad()
def test_padding_is_not_there_and_a_batch_is_one_by_one(kind: str) -> None:
    model, tokens = built(**KINDS[kind]).eval(), texts()
    types = tokens % 2
    states = model(tokens, Lengths(LENGTHS), types=types)
    assert states.shape == (B, T, 12)
    noise = tokens.masked_fill(torch.arange(T) >= LENGTHS[:, None], 5)
    again = model(noise, Lengths(LENGTHS), types=types)
    for n, length in enumerate(LENGTHS.tolist()):
        close(again[n, :length], states[n, :length])
        alone = model(tokens[n : n + 1, :length], types=types[n : n + 1, :length])
        close(states[n, :length], alone[0])


@every
@torch.no_grad()
def test_packed_texts_are_texts_of_their_own(kind: str) -> None:
    model, tokens = built(**KINDS[kind]).eval(), texts()[:1]
    documents = Documents(torch.tensor([[0, 0, 0, 1, 1, 1, 1]]))
    packed = model(tokens, documents, positions=torch.tensor([[0, 1, 2, 0, 1, 2, 3]]))
    close(packed, torch.cat([model(part) for part in tokens.split([3, 4], dim=1)], 1))


def test_a_text_without_types_has_type_0() -> None:
    model, tokens = built().eval(), texts()
    assert torch.equal(model(tokens), model(tokens, types=torch.zeros_like(tokens)))
    assert not torch.allclose(model(tokens), model(tokens, types=torch.ones_like(tokens)))


@pytest.mark.parametrize("kind", ["learned", "transformer-xl", "pre-norm", "additive heads"])
def test_every_parameter_receives_a_gradient(kind: str) -> None:
    model = BERTClassifier(built(pooler=True, **KINDS[kind]), 5).double()
    # two texts of other lengths and types: every position and type is used
    tokens = torch.cat([texts(), texts()[:, :4]], 1)
    model(tokens, types=tokens % 2).square().sum().backward()
    for key, p in model.named_parameters():
        if not key.endswith("key.bias"):
            assert p.grad is not None, key
            assert p.grad.abs().max() > 1e-12, key


@torch.no_grad()
def test_the_masked_lm_head() -> None:
    model, tokens = BERTMaskedLM(built()).double().eval(), texts()
    nn.init.normal_(model.output.bias)
    x = model.encoder(tokens, Lengths(LENGTHS))
    head = model.norm(nn.functional.gelu(x @ model.transform.weight.T + model.transform.bias))
    want = head @ model.encoder.embedding.weight.T + model.output.bias
    torch.testing.assert_close(model(tokens, Lengths(LENGTHS)), want)
    chosen, targets = torch.tensor([[0, 2], [1, 5], [2, 0]]), torch.tensor([3, 1, 4])
    total, nll = model.token_loss(x[chosen[:, 0], chosen[:, 1]], targets)
    log_p = want[chosen[:, 0], chosen[:, 1]].log_softmax(-1)
    torch.testing.assert_close(nll, -log_p[torch.arange(3), targets])
    torch.testing.assert_close(total, nll.sum())
    assert model.output.weight is model.encoder.embedding.weight


@torch.no_grad()
def test_the_classifier_reads_the_first_token() -> None:
    model, tokens = BERTClassifier(built(pooler=True), 5).double().eval(), texts()
    states = model.encoder(tokens, Lengths(LENGTHS))
    pooled = torch.tanh(model.encoder.pooler.linear(states[:, 0]))
    torch.testing.assert_close(model(tokens, Lengths(LENGTHS)), model.output(pooled))


def test_state_dict_deepcopy_and_dropout() -> None:
    model, tokens = BERTMaskedLM(built()).double().eval(), texts()
    want = model(tokens)
    assert torch.equal(copy.deepcopy(model)(tokens), want)
    fresh = BERTMaskedLM(built()).double().eval()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(tokens), want)
    dropped = built(dropout=0.5)
    assert not torch.equal(dropped(tokens), dropped(tokens))


def test_what_is_wrong_is_told() -> None:
    with pytest.raises(ValueError, match="the text has 12 tokens, but BERT has 11 learned positions; shorten it to 11"):
        built()(torch.zeros(1, 12, dtype=torch.long))
    with pytest.raises(ValueError, match=r"encoder has no pooler, .*; build it with BERT\(..., pooler=True\)"):
        BERTClassifier(built(), 3)
