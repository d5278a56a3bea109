"""The options of the task agent and of its model.  No torch here: a command line reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from regard.common.input_kind import InputKind
from regard.common.options.checks import CheckedOptions, check_even_heads, check_owner
from regard.common.options.fields import at_least, bounded, inner_share, left_open, random_seed
from regard.common.suggestions import known
from regard.tasks.base import Budget, ModelOptions, TaskConfig

if TYPE_CHECKING:
    from regard.data.environments.base import EnvironmentSpec

# begins the name of an environment of gymnasium
GYM = "gym:"
ENVIRONMENT_NAMES = ("pairs", "repeat", "tmaze", "target", "message", "arm")
# the longest window that is taken unasked
_WINDOW = 64
# the memories whose state chooses places of a picture
_ATTENDS_TO_PLACES = ("lstm", "gru")
# the memories that read no window of moves
_WITHOUT_WINDOW = ("none", *_ATTENDS_TO_PLACES)
# values of open fields in most games
_MOST = {"segment": 32, "discount": 0.99}
# the options of each environment
_OWNERS = {
    "pairs": ("pairs",),
    "repeat": ("back",),
    "tmaze": ("length",),
    "target": ("distractors",),
    "message": ("facts",),
    "arm": ("objects",),
}
# the memories that are taken unasked; elsewhere gtrxl
_MEMORIES = {"message": "message", "arm": "none"}
# the memory that learns from recorded episodes
_DECISION = "decision-transformer"
# sizes of games and numbers of episodes that memory and patience allow
_LARGEST_GAME, _MOST_EPISODES = 1000, 100_000
# the memories whose window is not chosen
_FIXED_WINDOW = (*_WITHOUT_WINDOW, _DECISION)
# the options of a training by PPO
_OF_PPO = ["segment", "passes", "minibatches", "discount", "trace", "ratio", "entropy"]
# the memories of players who see nothing of each other
_BETWEEN_PLAYERS = ("message", "none")


@dataclass(frozen=True)
class AgentOptions(ModelOptions):
    """A policy and a value with a memory of the episode."""

    model_class: ClassVar[str] = "regard.models.acting.agent:Agent"
    read_by_task: ClassVar[tuple[str, ...]] = ("memory", "window", "places", "noise")

    memory: str = left_open("gtrxl; message with --env message, none with --env arm")
    """The memory: none, lstm, gru, gtrxl, a mechanism, such as additive, that reads the last moves of the episode,
    message: attention to a few bits that each move sends; or decision-transformer, which learns from recorded episodes
    to obtain the return that it is asked for."""
    width: int = at_least(1, 64)
    """The width of states."""
    window: int | None = left_open(f"all moves of the longest episode before its last, {_WINDOW} at most", minimum=1)
    """Earlier moves that attention reads."""
    layers: int = at_least(1, 2)
    """Layers of gtrxl and decision-transformer."""
    heads: int = at_least(1, 4)
    """Heads of gtrxl and decision-transformer."""
    places: Literal["none", "soft", "hard"] = left_open("soft for pictures with lstm or gru, otherwise none")
    """How a picture is read: as a whole, by soft attention to its places, or at one place that is drawn."""
    channels: int = at_least(1, 32)
    """Features per place."""
    bits: int = at_least(1, 16)
    """Bits of a message."""
    noise: float = at_least(0, 1.0)
    """The standard deviation of the noise on messages in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory in ("gtrxl", _DECISION):
            check_even_heads(self.width, self.heads)

    def build(self, environment: EnvironmentSpec) -> Any:
        # numpy
        from regard.data.environments.base import ObjectEnvironment

        return super().build(
            environment.observation,
            environment.num_actions,
            policy="gaussian" if environment.continuous else "categorical",
            feedback=environment.players == 1,
            objects=environment.objects if isinstance(environment, ObjectEnvironment) else None,
        )


@dataclass(frozen=True)
class EvaluateAgent(CheckedOptions):
    """Options of `regard evaluate` for agents."""

    episodes: int = at_least(1, 500)
    """Episodes to play; none of them was trained on."""


@dataclass(frozen=True)
class PredictAgent(CheckedOptions):
    """Options of `regard predict` and `regard watch` for agents."""

    wanted: float | None = left_open("the greatest return", example=1)
    """The return that an agent with the memory decision-transformer is asked for."""


@dataclass(frozen=True)
class AgentConfig(TaskConfig):
    """Train an agent with a memory to play a game, by proximal policy optimisation (PPO)."""

    name: ClassVar[str] = "agent"
    task_class: ClassVar[str] = "regard.tasks.agent.task:AgentTask"
    summary: ClassVar[str] = "play a game by reinforcement learning, with attention to the past of the episode"
    unit: ClassVar[str] = "moves"
    input_kind: ClassVar[InputKind] = InputKind.EPISODE
    embedded: ClassVar[str] = "pairs"
    budgets: ClassVar[dict[str, Budget]] = {
        "pairs": Budget(minutes=1.0),
        "repeat": Budget(minutes=1.0),
        "tmaze": Budget(minutes=10.0),
        "target": Budget(minutes=3.0),
        "message": Budget(minutes=2.0),
        "arm": Budget(minutes=3.0),
        "gym": Budget(minutes=5.0),
    }
    metrics: ClassVar[dict[str, bool]] = {
        "return": True,
        "gap": False,
        "success": True,
        "length": False,
        "pointing": True,
        "on target": True,
    }
    models: ClassVar[dict[str, type[ModelOptions]]] = {"agent": AgentOptions}
    varies: ClassVar[str] = "memory"
    varies_help: ClassVar[str] = "Memories, such as none,lstm,gru,additive,gtrxl; mechanisms as `regard list` has them."
    run_files: ClassVar[tuple[str, ...]] = ("environment.json",)
    vocabulary_files: ClassVar[tuple[str, ...]] = ("environment.json",)
    weight_fields: ClassVar[tuple[str, ...]] = ("env", "pairs", "back", "length", "distractors", "facts", "objects")
    training: ClassVar[dict[str, Any]] = {
        "lr": 1e-3,
        "schedule": "constant",
        "warmup": 20,
        "betas": (0.9, 0.999),
        "clip": 0.5,
        "validate_every": 160,
        "save_every": 160,
        "log_every": 32,
    }
    defaults: ClassVar[dict[str, dict[str, Any]]] = {
        "pairs": {**_MOST, "pairs": 2},
        "repeat": {**_MOST, "back": 4},
        "tmaze": {**_MOST, "length": 5},
        # an answer changes nothing about the pictures that follow
        "target": {"segment": 16, "discount": 0.0, "distractors": 3},
        "message": {**_MOST, "facts": 2},
        "arm": {**_MOST, "objects": 4},
        "gym": _MOST,
    }
    picture_suffixes: ClassVar[tuple[str, ...]] = (".png", ".svg", ".pdf", ".html")
    usage: ClassVar[str] = "watch {run}"
    Evaluate: ClassVar[type] = EvaluateAgent
    Predict: ClassVar[type] = PredictAgent

    # an agent makes its own data
    data: ClassVar[None] = None  # type: ignore[misc]
    train: ClassVar[None] = None  # type: ignore[misc]

    env: str = "pairs"
    """The game: pairs (recall the value of a key), repeat (name the symbol of some moves ago), tmaze (a cue at the
    start of a corridor, seen through a small window), target (the open side of a target among distractors, if
    there is one, in pixels), message (one player sees keys with values, another one is asked for them), arm (turn two
    joints until the hand reaches the named object); or gym:ID, an environment of gymnasium, gym:MODULE:ID if a module
    registers it."""
    pairs: int | None = left_open("2, of 4 keys", minimum=1)
    """With pairs: the number of pairs to remember."""
    back: int | None = left_open(4, minimum=1, maximum=_LARGEST_GAME)
    """With repeat: how many moves ago the symbol was shown."""
    length: int | None = left_open(5, minimum=2, maximum=_LARGEST_GAME)
    """With tmaze: the cells of the corridor."""
    distractors: int | None = left_open(3, minimum=1, maximum=_LARGEST_GAME)
    """With target: distractors in a picture."""
    facts: int | None = left_open("2, of 4 keys", minimum=1, maximum=_LARGEST_GAME)
    """With message: keys with values that the first player sees."""
    objects: int | None = left_open("4, of 9 kinds", minimum=1, maximum=_LARGEST_GAME)
    """With arm: objects to tell apart."""

    model: AgentOptions = left_open()
    """The agent."""
    batch: int = at_least(1, 64)
    """Games per batch: so many are played at the same time."""
    segment: int = left_open("32; 16 with --env target", minimum=1)
    """Moves of every game that are played, then learned from, before the next ones are played."""
    passes: int = at_least(1, 3)
    """Passes over the moves of a segment."""
    minibatches: int = at_least(1, 4)
    """Updates per pass; each learns from whole games, never from parts of them."""
    discount: float = left_open(
        "0.99; 0 with --env target, whose pictures do not depend on actions", minimum=0, maximum=1
    )
    """The weight of a reward per move that it is later, γ."""
    trace: float = bounded(0.95, minimum=0, maximum=1)
    """The decay of generalised advantages, λ: 0 trusts the values, 1 the rewards."""
    ratio: float = inner_share(0.2)
    """The largest change of an action's probability that an update is rewarded for, PPO's clip."""
    entropy: float = at_least(0, 0.01)
    """The weight of the policy's entropy."""
    recorded: int = at_least(1, 4000)
    """With the memory decision-transformer: episodes to learn from, of players who differ in skill."""
    valid_episodes: int = at_least(1, 200, maximum=_MOST_EPISODES)
    """Episodes that a validation plays."""
    seed: int = random_seed(0)
    """Determines initial weights, games, and sampled actions."""

    def __post_init__(self) -> None:
        if not self.env.startswith(GYM):
            known("env", self.env, (*ENVIRONMENT_NAMES, f"{GYM}ID"))
        super().__post_init__()
        check_owner(self, "env", _OWNERS)
        if self.segment == 1 and self.minibatches <= self.batch < 2 * self.minibatches:
            raise ValueError(
                f"segment=1 and minibatches={self.minibatches} of batch={self.batch} games leave an update of one "
                "move, whose advantage has no spread to be divided by; try segment=32"
            )
        if self.batch < self.minibatches:
            raise ValueError(
                f"minibatches={self.minibatches} divide the games, and batch={self.batch} has fewer; "
                f"try minibatches={self.batch}"
            )
        self._resolve_model()

    def _resolve_model(self) -> None:
        """Fills in the memory, the window and the places; raises if there is no such window in an episode."""
        environment = self.environment()
        memory = self.model.memory or _MEMORIES.get(self.env, "gtrxl")
        if environment.players > 1 and memory not in _BETWEEN_PLAYERS:
            raise ValueError(
                f"memory={memory!r} would give every player of env={self.env!r} what the others saw; take "
                "memory='message', or 'none'"
            )
        past = max(environment.longest - 1, 1)
        if self.model.window is not None and self.model.window > past:
            raise ValueError(
                f"window={self.model.window} is longer than an episode of {self.env}, whose last move has {past} "
                f"before it; try window={past}"
            )
        if self.model.window is not None and memory in _WITHOUT_WINDOW:
            raise ValueError(
                f"window={self.model.window} counts the moves that attention reads, and memory={memory!r} has no "
                "attention to moves; leave it out, or take memory='additive'"
            )
        if memory == _DECISION:
            self._check_recorded(environment, past)
        longest = past if memory == _DECISION else min(past, _WINDOW)
        window = None if memory in _WITHOUT_WINDOW else longest
        reads_places = len(environment.observation) == 2 and memory in _ATTENDS_TO_PLACES
        places = "soft" if reads_places else "none"
        resolved = {"memory": memory, "window": window, "places": places}
        object.__setattr__(self, "model", self.model.resolved(resolved))

    def _check_recorded(self, environment: EnvironmentSpec, past: int) -> None:
        """Raises if there is nobody to record, or if a Decision Transformer would not read whole episodes."""
        # numpy
        from regard.data.environments.base import AnsweredEnvironment

        if not isinstance(environment, AnsweredEnvironment):
            raise ValueError(
                f"memory={_DECISION!r} learns from recorded players of pairs and repeat, got env={self.env!r}; take "
                "env='pairs'"
            )
        if self.model.window not in (None, past):
            raise ValueError(
                f"window={self.model.window} is less than the {past} moves before the last one of an episode, which "
                f"memory={_DECISION!r} reads; leave it out"
            )

    @property
    def is_recorded(self) -> bool:
        """Whether the agent learns from recorded episodes."""
        return bool(self.model.memory == _DECISION)

    def ignored_options(self) -> list[str]:
        """The options, with their values, that change nothing about an agent with this memory."""
        model = self.model
        of_model = [] if model.memory in ("gtrxl", _DECISION) else ["layers", "heads"]
        of_model += [] if model.memory == "message" else ["bits", "noise"]
        of_model += ["channels"] if model.places == "none" else []
        ignored = []
        for options, names in ((model, of_model), (self, _OF_PPO if self.is_recorded else ["recorded"])):
            defaults = {item.name: item.default for item in fields(options)}
            defaults |= self.defaults[self.dataset] if options is self else {}
            typed = {name: getattr(options, name) for name in names}
            ignored += [f"--{name} {value}" for name, value in typed.items() if value != defaults[name]]
        return ignored

    @property
    def metric(self) -> str:
        return "gap" if self.is_recorded else super().metric

    def environment(self) -> EnvironmentSpec:
        """The game."""
        # numpy
        from regard.data.environments.catalogue import make_environment

        return make_environment(self.env, {name: getattr(self, name) for name in _OWNERS.get(self.env, ())})

    def variants(self, values: Sequence[str]) -> dict[str, Self]:
        """The same with each of these memories; recurrent ones attend to places of pictures, softly or as chosen."""
        chosen = None if self.model.places == "none" else self.model.places
        places = {value: chosen if value in _ATTENDS_TO_PLACES else "none" for value in values}
        windows = {value: None if value in _FIXED_WINDOW else self.model.window for value in values}
        return {value: self.with_options(memory=value, places=places[value], window=windows[value]) for value in values}

    @classmethod
    def modules(cls, options: Mapping[str, Any]) -> Sequence[str]:
        env = options.get("env")
        module = env.removeprefix(GYM).rpartition(":")[0] if isinstance(env, str) and env.startswith(GYM) else ""
        return (module,) if module else ()

    @classmethod
    def replaced(cls, option: str, value: Any, file: Mapping[str, Any]) -> Sequence[str]:
        if option == "memory" and value in _FIXED_WINDOW:
            return ("window",)
        if option != "env":
            return ()
        return (*(name for names in _OWNERS.values() for name in names), *_MOST, "memory", "window", "places")

    @property
    def dataset(self) -> str:
        return "gym" if self.env.startswith(GYM) else self.env

    @property
    def title(self) -> str:
        return f"an agent on {self.env}"
