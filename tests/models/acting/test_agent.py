"""Memories of agents: one step at a time equals all at once, and an episode never sees another."""

import pytest
import torch
from tests.for_each import for_each
from torch import Tensor

from regard.attn.catalogue import MECHANISMS
from regard.models.acting.agent import GTRXL, MESSAGE, NO_MEMORY, Agent, AgentInputs
from regard.models.acting.attention_memory import GRUGate, memory_heads
from regard.models.acting.memory import CELLS
from regard.models.acting.message_memory import discretise_regularise
from regard.models.acting.places_memory import FeatureMap

B, T, OBSERVATION, ACTIONS, WIDTH, WINDOW, BITS = 3, 11, 5, 7, 8, 4, 3


def can_be_memory(name: str) -> bool:
    try:
        memory_heads(name, WIDTH, WINDOW)
    except ValueError:
        return False
    return True


READS = [name for name in MECHANISMS if can_be_memory(name)]
MEMORIES = [NO_MEMORY, *CELLS, GTRXL, MESSAGE, *READS]
every_memory = for_each("name", MEMORIES)


def agent(name: str) -> Agent:
    torch.manual_seed(0)
    model = Agent((OBSERVATION,), ACTIONS, memory=name, width=WIDTH, window=WINDOW, layers=2, heads=2, bits=BITS)
    # an untrained policy is so flat that no difference would show
    torch.nn.init.normal_(model.policy.logits.weight, std=0.3)
    return model


def inputs(steps: int = T, bits: int = BITS) -> AgentInputs:
    """Episodes that begin at other steps in every game; messages with noise, or discrete ones of 0 bits of it."""
    torch.manual_seed(1)
    episodes = (torch.rand(B, steps) < 0.25).long().cumsum(1)
    last = torch.randint(-1, ACTIONS, (B, steps))
    observations, rewards = torch.randn(B, steps, OBSERVATION), torch.randn(B, steps)
    return AgentInputs(observations, last, rewards, episodes, torch.randn(B, steps, bits), torch.randn(B, steps))


def cut(given: AgentInputs, steps: slice) -> AgentInputs:
    return AgentInputs(*(t[:, steps] for t in given))


@torch.no_grad()
def act(model: Agent, given: AgentInputs, first: int, last: int, memory: object) -> tuple[Tensor, object]:
    """Logits of steps that are taken one by one, each with a look ahead that must leave no trace."""
    acting = model.memory.begin_acting(memory, last - first)  # type: ignore[arg-type]
    rows = []
    for t in range(first, last):
        x = model.embed(cut(given, slice(t, t + 1)))[:, 0]
        acting.read(x + 1.0, given.episodes[:, t])
        rows.append(model.act(acting, cut(given, slice(t, t + 1))).policy)
        acting.advance()
    acting.read(torch.ones(B, WIDTH), given.episodes[:, last - 1])
    return torch.cat(rows, 1), acting.state()


@for_each(("name", "bits"), [*((name, BITS) for name in MEMORIES), (MESSAGE, 0)])
def test_acting_step_by_step_equals_learning_on_the_sequence(name: str, bits: int) -> None:
    model, given = agent(name), inputs(bits=bits)
    memory: object = model.memory.init_state(B)
    for first, last in ((0, 2), (2, 7), (7, T)):
        stepped, after = act(model, given, first, last, memory)
        whole = model(cut(given, slice(first, last)), memory)
        torch.testing.assert_close(whole.policy, stepped, rtol=0, atol=1e-6)
        memory = after
    # a memory of one game among several is that of the game alone
    rows = torch.tensor([2, 0])
    chosen = model.memory.init_state(B).select(rows)
    assert torch.equal(chosen.episodes, model.memory.init_state(2).episodes)


@every_memory
def test_an_episode_sees_its_own_past_alone(name: str) -> None:
    model, given = agent(name), inputs()
    given = given._replace(episodes=torch.tensor([[0] * 5 + [1] * 6] * B), observations=given.observations.clone())
    given.observations.requires_grad_()
    policy = model(given, model.memory.init_state(B)).policy
    (gradient,) = torch.autograd.grad(policy[:, 8].square().sum(), given.observations)
    reached = gradient.abs().sum((0, 2)) > 0
    assert not reached[:5].any(), "an earlier episode"
    assert not reached[9:].any(), "the future"
    assert reached[8]
    assert bool(reached[5:8].any()) == (name != NO_MEMORY)


@pytest.mark.parametrize("name", [*CELLS, GTRXL, MESSAGE, "additive"])
def test_every_parameter_learns(name: str) -> None:
    model, given = agent(name), inputs()
    output = model(given, model.memory.init_state(B))
    (output.policy.square().sum() + output.values.sum()).backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_the_window_ends_the_past() -> None:
    model, given = agent("additive"), inputs()
    given = given._replace(episodes=torch.zeros(B, T, dtype=torch.int64))
    given.observations.requires_grad_()
    policy = model(given, model.memory.init_state(B)).policy
    (gradient,) = torch.autograd.grad(policy[:, 9].square().sum(), given.observations)
    assert (gradient.abs().sum((0, 2)) > 0).tolist() == [False] * 5 + [True] * 5 + [False]


def test_the_gate_is_that_of_gtrxl() -> None:
    """Parisotto et al. 2020, section 3.2, with the matrices one by one."""
    torch.manual_seed(2)
    gate, x, y = GRUGate(WIDTH), torch.randn(4, WIDTH), torch.randn(4, WIDTH)
    w_r, w_z, w_g = gate.of_output.weight.chunk(3)
    u_r, u_z = gate.of_input.weight.chunk(2)
    u_g = gate.of_reset.weight
    r = torch.sigmoid(y @ w_r.T + x @ u_r.T)
    z = torch.sigmoid(y @ w_z.T + x @ u_z.T - 2.0)
    h = torch.tanh(y @ w_g.T + (r * x) @ u_g.T)
    torch.testing.assert_close(gate(x, y), (1 - z) * x + z * h)


def test_bad_sizes_and_names() -> None:
    with pytest.raises(ValueError, match=r"^width must split evenly over heads: 6 over 4 leaves 2; try width=4$"):
        Agent((2,), 2, memory=GTRXL, width=6)
    with pytest.raises(ValueError, match=r"^unknown memory 'aditive'; did you mean 'additive'\? known are: none, lstm"):
        Agent((2,), 2, memory="aditive")
    with pytest.raises(ValueError) as error:  # noqa: PT011
        Agent((2,), 2, memory="gumbel")
    assert str(error.value) == (
        "memory='gumbel' samples the steps that it reads, so it would not learn from those that it played with; "
        "try memory='straight-through'"
    )
    with pytest.raises(ValueError) as error:  # noqa: PT011
        Agent((2,), 2, memory="hard")
    assert str(error.value) == (
        "memory='hard' cannot read past steps: it is trained by REINFORCE, to which the samples of so many heads are "
        "noise; try memory='additive'"
    )
    for name in ("forgetting", "selective"):
        with pytest.raises(ValueError) as error:  # noqa: PT011
            Agent((2,), 2, memory=name, width=WIDTH)
        assert str(error.value) == (
            f"memory={name!r} sums over all steps before, those of other episodes and those behind the window too; "
            "try memory='additive'"
        )
    assert {"dot", "additive", "general", "sparsemax", "multi-head", "rotary", "t5", "transformer-xl"} <= set(READS)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("places", ["soft", "hard"])
def test_places_step_by_step_equal_those_of_the_segment(cell: str, places: str) -> None:
    """Hard reads take the places that were drawn when the steps were played."""
    torch.manual_seed(0)
    model = Agent((10, 15), ACTIONS, memory=cell, width=WIDTH, places=places, channels=4)
    torch.nn.init.normal_(model.policy.logits.weight, std=0.3)
    given = inputs()._replace(observations=torch.rand(B, T, 10, 15))
    state = model.memory.init_state(B)
    acting = model.memory.begin_acting(state, T)
    noise = -torch.empty(T, B, 6).exponential_().log()
    with torch.no_grad():
        steps = []
        for t in range(T):
            model.act(acting, cut(given, slice(0, 1)), noise[t])
            steps.append(model.act(acting, cut(given, slice(t, t + 1)), noise[t]))
            acting.advance()
        place_read = [step.place_read for step in steps if step.place_read is not None]
        drawn = torch.cat([each.place for each in place_read], 1)
        whole = model(given, state, drawn if places == "hard" else None)
    for name in ("policy", "values"):
        stepped = torch.cat([getattr(step, name) for step in steps], 1)
        torch.testing.assert_close(getattr(whole, name), stepped, rtol=0, atol=1e-6)
    log_prob = torch.cat([each.log_prob for each in place_read], 1)
    torch.testing.assert_close(whole.place_read.log_prob, log_prob, rtol=0, atol=1e-6)
    torch.testing.assert_close(whole.place_read.weights.sum(-1), torch.ones(B, T))
    assert len(drawn.unique()) > (1 if places == "hard" else 0)


def test_the_value_of_a_hard_read_does_not_know_the_place() -> None:
    """Else the choice of the place would have no advantage."""
    torch.manual_seed(0)
    given = inputs()._replace(observations=torch.rand(B, T, 10, 15))
    for places, differs in (("hard", False), ("soft", True)):
        model = Agent((10, 15), ACTIONS, memory="lstm", width=WIDTH, places=places, channels=4)
        first, other = given, given._replace(observations=given.observations.flip(-1))
        state = model.memory.init_state(B)
        values = [model(cut(each, slice(0, 1)), state).values for each in (first, other)]
        assert (not torch.equal(*values)) == differs


def test_attention_to_places_is_additive_attention_of_the_state() -> None:
    """Sorokin et al. 2015: g = v · tanh(W h + U m_p), of the state before the step; soft is the mean of the places."""
    torch.manual_seed(0)
    model = Agent((10, 15), ACTIONS, memory="lstm", width=WIDTH, places="soft", channels=4)
    memory, encode = model.memory, model.encode
    assert isinstance(encode, FeatureMap)
    given = inputs(2)._replace(observations=torch.rand(B, 2, 10, 15), episodes=torch.zeros(B, 2, dtype=torch.int64))
    place_read = model(given, memory.init_state(B)).place_read
    score = memory.attention.score  # type: ignore[union-attr]
    features = encode(given.observations)[:, 1]  # "b p c"
    hidden = torch.tanh(place_read.out[:, :1] @ score.query.weight.T + features @ score.key.weight.T)
    expected = torch.softmax(hidden @ score.energy, -1)
    torch.testing.assert_close(place_read.weights[:, 1], expected)
    torch.testing.assert_close(place_read.entropy[:, 1], -(expected * expected.log()).sum(-1))
    assert features.shape == (B, 6, 4)


def test_pictures_that_have_no_places() -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        Agent((10, 12), 2, memory="lstm", places="soft")
    assert str(error.value) == ("pictures must be multiples of 5 pixels high and wide, got 10 × 12; take places='none'")


def test_messages_are_noisy_in_training_and_bits_in_play() -> None:
    """Foerster et al. 2016, 5.2: logistic(N(m, σ)) and 1{m > 0}; the gradient of the noisy ones reaches the sender."""
    torch.manual_seed(3)
    logits, noise = torch.randn(5, BITS, requires_grad=True), 2.0 * torch.randn(5, BITS)
    sent = discretise_regularise(logits, noise)
    torch.testing.assert_close(sent, 1.0 / (1.0 + (-logits - noise).exp()))
    (gradient,) = torch.autograd.grad(sent.sum(), logits)
    torch.testing.assert_close(gradient, sent * (1.0 - sent))
    assert torch.equal(discretise_regularise(logits, torch.empty(5, 0)), (logits > 0).float())
    assert not discretise_regularise(logits, torch.full((5, BITS), -torch.inf)).any()


def test_a_message_is_read_by_additive_attention_of_the_reader() -> None:
    """α = softmax(v · tanh(A x_t + B m_s)) over the steps before; the reader sees nothing else of them."""
    model, given = agent(MESSAGE), inputs(4)._replace(episodes=torch.zeros(B, 4, dtype=torch.int64))
    memory = model.memory
    x = model.embed(given)
    states, messages = x[..., :WIDTH], memory.send(x)
    score = memory.attention.score
    hidden = torch.tanh(score.query(states[:, 3:]) + score.key(messages[:, :3]))  # type: ignore[operator]
    weights = torch.softmax(hidden @ score.energy, -1)  # type: ignore[operator]
    read = (weights.unsqueeze(1) @ messages[:, :3]).squeeze(1)
    expected = torch.relu(memory.join(torch.cat([states[:, 3], read], -1)))
    out = memory(x, memory.init_state(B), given.episodes)
    torch.testing.assert_close(out[:, 3], expected)
    # the first step reads nothing
    silent = torch.cat([states[:, 0], torch.zeros(B, BITS)], -1)
    torch.testing.assert_close(out[:, 0], torch.relu(memory.join(silent)))


def test_players_do_not_see_the_last_action() -> None:
    torch.manual_seed(0)
    given = inputs()
    other = given._replace(actions=given.actions.flip(1), rewards=given.rewards + 1.0)
    for feedback in (True, False):
        model = Agent((OBSERVATION,), ACTIONS, memory=NO_MEMORY, width=WIDTH, feedback=feedback)
        outputs = [model(each, model.memory.init_state(B)).values for each in (given, other)]
        assert torch.equal(*outputs) == (not feedback)
