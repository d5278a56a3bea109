"""`--attention` and `--positions`: every mechanism of the catalogue in the models of five tasks, by its name."""

import pytest
import torch
from tests.for_each import for_each
from torch import nn

import regard
from regard.attn import catalogue
from regard.layers.position_choices import POSITIONS
from regard.layers.query_pooling import POSITIONAL
from regard.models.language_model import LanguageModel
from regard.tasks.registry import TASKS

# models that attend, and the options that choose how
MODELS: dict[tuple[str, str], tuple[str, ...]] = {
    ("language-model", "gpt2"): ("attention", "positions"),
    ("masked-lm", "bert"): ("attention", "positions"),
    ("translate", "transformer"): ("attention", "positions"),
    ("translate", "seq2seq"): ("attention",),
    ("classify-text", "self-attentive"): ("attention",),
    ("classify-text", "hierarchical"): ("attention",),
    ("tag", "transformer"): ("attention", "positions"),
    ("tag", "recurrent"): ("attention",),
}
ENCODES_POSITIONS = "encodes positions, beside any attention of the heads"
NO_QUERY = "a learned query has no position among the keys"
SELECTS_BY_INDEX = "it selects blocks of keys by their index in a cache, which the hypotheses of a beam share"
MORE_THAN_HEADS = "more than one equation"
NEW = (
    *("relu", "relu-squared", "softpick", "stick-breaking", "selective", "soft-cap", "qk-norm", "output-gate", "sink"),
    *("talking-heads", "differential", "latent", "moba", "nsa", "gat", "gatv2"),
    *("kerple", "kerple-power", "fire", "cope", "forgetting"),
)
# positions that are no mechanisms
ROTATIONS = ("rotary-partial", "rotary-proportional")
# positions beside an attention that needs some of its own
POSITIONS_OF = {"latent": "rotary"}
# why a model does not take a mechanism as --attention; all others of the catalogue it takes
REFUSED: dict[tuple[str, str], dict[str, str]] = {
    **{
        key: {
            **{name: ENCODES_POSITIONS for name in POSITIONS if name in regard.MECHANISMS},
            **dict.fromkeys(("moba", "nsa"), SELECTS_BY_INDEX),
            **dict.fromkeys(("gat", "gatv2"), MORE_THAN_HEADS),
            **dict.fromkeys(("selective", "latent") if key[0] == "translate" else (), "is for models of one text"),
        }
        for key in MODELS
        if "positions" in MODELS[key]
    },
    ("translate", "seq2seq"): {"selective": "Selective needs all queries together, but a decoder has one at a time"},
    **{key: dict.fromkeys(POSITIONAL, NO_QUERY) for key in MODELS if key[0] == "classify-text"},
    ("tag", "recurrent"): {},
}


def sketch(task: str, model: str, **options: object) -> nn.Module:
    """The model of a task with these options, without values."""
    with torch.device("meta"):
        return TASKS[task].of(model=model, **options).load().sketch()


@for_each("name", [*NEW, *ROTATIONS])
def test_a_new_mechanism_is_taken_or_refused_with_a_reason(name: str) -> None:
    for (task, model), options in MODELS.items():
        reason = REFUSED[task, model].get(name, "")
        choice = {"attention": name}
        if name in POSITIONS_OF and "positions" in options:
            choice["positions"] = POSITIONS_OF[name]
        if reason:
            with pytest.raises(ValueError, match=reason):
                sketch(task, model, **choice)
        elif name not in ROTATIONS:
            assert isinstance(sketch(task, model, **choice), nn.Module), (task, model)
        if "positions" in options and name in POSITIONS:
            assert isinstance(sketch(task, model, positions=name), nn.Module), (task, model)


def test_every_mechanism_of_heads_and_distances_is_new_or_old() -> None:
    """A mechanism that is added there must be added to NEW."""
    old = {
        "multi-head",
        "grouped",
        "multi-query",
        "window",
        "local-m",
        "alibi",
        "t5",
        "shaw",
        "transformer-xl",
        "rotary",
    }
    assert {*catalogue.GROUPS["heads"], *catalogue.GROUPS["distance from the query"]} - old <= set(NEW)


def test_an_attention_of_all_heads_is_not_that_of_one() -> None:
    with pytest.raises(ValueError, match="attention='sink' is made of all heads of a layer: name it alone"):
        sketch("language-model", "gpt2", attention="dot,sink,dot,dot")
    with pytest.raises(ValueError, match="attention='latent' rotates a part of its keys .* give positions='rotary'"):
        sketch("language-model", "gpt2", attention="latent", positions="learned")


# names that a GPT-2 takes, as attention or as positions
OF_GPT2 = [
    name
    for name in (*NEW, *ROTATIONS, "scaled-dot")
    if name in POSITIONS or REFUSED["language-model", "gpt2"].get(name) not in (SELECTS_BY_INDEX, MORE_THAN_HEADS)
]


def gpt2(name: str) -> LanguageModel:
    """The model of `language-model` with this attention, or these positions."""
    choice = {"positions": name} if name in POSITIONS else {"attention": name, "positions": POSITIONS_OF.get(name)}
    torch.manual_seed(0)
    return (
        TASKS["language-model"].of(**choice, width=16, heads=2, layers=2, segment=13, dropout=0.0).model.build(13, 13)
    )


@for_each("name", OF_GPT2)
def test_it_learns_a_text_and_is_built_again(name: str) -> None:
    """Some steps lower the loss, and weights of a checkpoint fit the model that the same options build."""
    model, tokens = gpt2(name), torch.randint(13, (2, 12), generator=torch.Generator().manual_seed(1))
    optimizer, losses = torch.optim.AdamW(model.parameters(), 0.02), []
    for _ in range(8):
        states = model.hidden_states(tokens[:, :-1]).states
        loss, _ = model.token_loss(states.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    again = gpt2(name)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(tokens), model(tokens))


@for_each("name", OF_GPT2)
def test_it_trains_and_continues_a_text(name: str) -> None:
    """A gradient for every weight, and steps equal to the whole text, also of hypotheses that part and of prompts of
    different lengths."""
    model = gpt2(name)
    for key, parameter in model.named_parameters():
        if "norm" not in key:
            nn.init.normal_(parameter, std=0.4)
    tokens = torch.randint(13, (2, 11), generator=torch.Generator().manual_seed(1))
    states = model.hidden_states(tokens).states
    model.token_loss(states.flatten(0, 1), tokens.flatten())[0].backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    with torch.no_grad():
        lengths = [9, 6]
        state = model.init_state(tokens[:, :9], torch.tensor(lengths)).reorder(torch.zeros(2, 2, dtype=torch.long))
        texts = [[tokens[b, :n]] * 2 for b, n in enumerate(lengths)]
        for new in torch.tensor([[[3, 5], [7, 2]], [[1, 8], [4, 4]]]):  # "b n"
            texts = [[torch.cat([texts[b][n], new[b, n : n + 1]]) for n in range(2)] for b in range(2)]
            step = model.step(new, state)
            want = torch.stack([torch.stack([model(text.unsqueeze(0))[0, -1] for text in row]) for row in texts])
            torch.testing.assert_close(step.logits, want, rtol=1e-4, atol=1e-4)
            state, texts = step.state.reorder(torch.tensor([[1, 0], [1, 1]])), [texts[0][::-1], [texts[1][1]] * 2]


@torch.no_grad()
def test_blocks_by_index_are_refused_to_hypotheses() -> None:
    """A stack that is built with such a mask decodes one text, and says why it decodes no others."""
    model = gpt2("scaled-dot").eval()
    model.stack.layers[0].attention.attention = regard.Attention(mask=regard.masks.TopBlocks(2, 2))
    tokens = torch.randint(13, (1, 11))
    step = model.step(tokens[:, -1:], model.init_state(tokens[:, :-1]))
    torch.testing.assert_close(step.logits[:, 0], model(tokens)[:, -1])
    state = model.init_state(tokens).reorder(torch.zeros(1, 2, dtype=torch.long))
    with pytest.raises(
        ValueError, match=r"TopBlocks\(2, 2\) selects blocks of keys by their index in the cache, which"
    ):
        model.step(torch.tensor([[1, 2]]), state)
