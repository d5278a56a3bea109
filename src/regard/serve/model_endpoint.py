"""ModelEndpoint: the parts that all endpoints of a model share: its name and step, its facts and limits, its page."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.inference.endpoint import PageSpec
from regard.inference.limits import Limits
from regard.inference.predictor import Predictor


@dataclass(frozen=True)
class InputsRequest:
    """The inputs of a request, texts or files, the options that they are answered with, and whether to give the
    attention behind their answers."""

    inputs: Sequence[Any]
    options: Any = None
    attention: bool = False

    @property
    def count(self) -> int:
        return len(self.inputs)

    @property
    def is_streamed(self) -> bool:
        return getattr(self.options, "stream", False)


class ModelEndpoint(ABC):
    """A predictor behind HTTP; `run` and `step` name its weights."""

    name: str
    task: str = ""  # where its name is another
    unit: str
    view: str  # the scripts of its page, which draw answers and send requests
    form: str
    unpack: Any = None

    def __init__(self, predictor: Predictor[Any, Any], limits: Limits, *, run: str, step: int) -> None:
        self.predictor, self.limits, self.run, self.step = predictor, limits, run, step

    @property
    @abstractmethod
    def title(self) -> str:
        """The title of its page."""

    @property
    def page(self) -> PageSpec:
        data = {"task": self.name, "title": self.title, **self.page_data(), "shown": {}}
        return PageSpec(self.title, self.view, self.form, data)

    def page_data(self) -> Mapping[str, object]:
        """Values that the scripts of the page read."""
        return {}

    def model_info(self) -> dict[str, object]:
        limits = {**self.input_limits(), "body": self.limits.body, "seconds": self.limits.seconds}
        return {"task": self.task or self.name, "run": self.run, "step": self.step, **self.facts(), "limits": limits}

    @abstractmethod
    def facts(self) -> Mapping[str, object]:
        """Facts about the model."""

    @abstractmethod
    def input_limits(self) -> Mapping[str, object]:
        """The limits of the inputs of a request."""

    @property
    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.predictor.model.parameters())
