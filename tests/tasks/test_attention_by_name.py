"""`--attention` and `--positions`: every mechanism of the catalogue in the models of five tasks, by its name."""

import pytest
import torch
from tests.for_each import for_each
from torch import nn

import regard
from regard.layers.position_choices import POSITIONS
from regard.layers.query_pooling import POSITIONAL
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
# why a model does not take a mechanism as --attention; all others of the catalogue it takes
REFUSED: dict[tuple[str, str], dict[str, str]] = {
    **{
        key: {
            **{name: ENCODES_POSITIONS for name in POSITIONS if name in regard.MECHANISMS},
            "selective": "take a model without cross-attention" if key[0] == "translate" else "",
        }
        for key in MODELS
        if "positions" in MODELS[key]
    },
    ("translate", "seq2seq"): {"selective": "Selective needs all queries together, but a decoder has one at a time"},
    **{key: dict.fromkeys(POSITIONAL, NO_QUERY) for key in MODELS if key[0] == "classify-text"},
    ("tag", "recurrent"): {},
}
NEW = (
    *("relu", "relu-squared", "softpick", "stick-breaking", "selective"),
    *("kerple", "kerple-power", "fire", "cope", "forgetting"),
)


def sketch(task: str, model: str, **options: object) -> nn.Module:
    """The model of a task with these options, without values."""
    with torch.device("meta"):
        return TASKS[task].of(model=model, **options).load().sketch()


@for_each("name", NEW)
def test_a_new_mechanism_is_taken_or_refused_with_a_reason(name: str) -> None:
    for (task, model), options in MODELS.items():
        reason = REFUSED[task, model].get(name, "")
        if reason:
            with pytest.raises(ValueError, match=reason):
                sketch(task, model, attention=name)
        else:
            assert isinstance(sketch(task, model, attention=name), nn.Module), (task, model)
        if "positions" in options and name in POSITIONS:
            assert isinstance(sketch(task, model, positions=name), nn.Module), (task, model)


@for_each("name", [*NEW, "scaled-dot"])
def test_it_trains_and_continues_a_text(name: str) -> None:
    """A GPT-2 of the options of language-model: a gradient for every weight, and a step equal to the whole text."""
    choice = "positions" if name in POSITIONS else "attention"
    torch.manual_seed(0)
    options = TASKS["language-model"].of(**{choice: name}, width=8, heads=2, layers=1, segment=11)
    model = options.model.build(13, 11)
    for key, parameter in model.named_parameters():
        if "norm" not in key:
            nn.init.normal_(parameter, std=0.4)
    tokens = torch.randint(13, (2, 11), generator=torch.Generator().manual_seed(1))
    states = model.hidden_states(tokens).states
    model.token_loss(states.flatten(0, 1), tokens.flatten())[0].backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    with torch.no_grad():
        state = model.init_state(tokens[:, :-1])
        logits = model.step(tokens[:, -1:], state).logits
        torch.testing.assert_close(torch.as_tensor(logits[:, 0]), model(tokens)[:, -1], rtol=1e-4, atol=1e-5)
