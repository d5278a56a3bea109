"""TextPredictor: the services of a predictor whose inputs are texts: its endpoint, and the figures of its attention."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, TypeVar

from regard.inference.endpoint import Endpoint
from regard.inference.limits import Limits
from regard.inference.predictor import Predictor
from regard.recording.recording import Recording
from regard.tasks.base import NoOptions, TaskConfig
from regard.viz.plots.figure_file import SUFFIXES
from regard.viz.show import show

Output = TypeVar("Output")


class TextPredictor(Predictor[str, Output]):
    """A predictor of texts that a TextEndpoint serves."""

    config_type: ClassVar[type[TaskConfig]]  # its name is the path
    page_title: ClassVar[str]  # {run} stands for the name of the model
    text_schema: ClassVar[Mapping[str, str]] = MappingProxyType({})  # of JSON Schema: the texts that it reads
    model_noun: ClassVar[str] = "this model"  # in sentences about a model without attention

    def read(self, argument: str) -> str:
        return argument

    # The attention behind an output

    @property
    def attends(self) -> bool:
        """Whether the model has attention."""
        return getattr(self.model, "attends", True)

    def check_attends(self, what: str) -> None:
        if not self.attends:
            raise ValueError(f"{what} needs attention, and {self.model_noun} has none; leave {what} out")

    def labelled(
        self,
        recording: Recording,
        text: str,
        said: str,
        queries: Sequence[str],
        keys: Sequence[str],
        axes: Mapping[str, str],
    ) -> Recording:
        """The recording with the names of its rows and columns, and with facts: the text, the output as `said`, and
        `axes`, which say what rows and columns are."""
        about = {**recording.about, "text": text, "said": said.replace("\t", ", "), **axes}
        return replace(recording, queries=tuple(queries), keys=tuple(keys), about=about)

    def draw(self, recording: Recording, given: str, output: Output, path: Path) -> Path:
        if path.suffix not in SUFFIXES:
            return show(recording).save(path)
        return self.draw_figure(recording, given, output, path)

    def draw_figure(self, recording: Recording, given: str, output: Output, path: Path) -> Path:
        """The attention behind one output as a figure."""
        return super().draw(recording, given, output, path)

    # Services

    @abstractmethod
    def about(self) -> dict[str, object]:
        """Facts about the model for GET /v1/model."""

    def request_options(self) -> type | None:
        """The options of a request; None: it has none."""
        options = self.config_type.Predict
        return None if options is NoOptions else options

    def option_maxima(self) -> dict[str, int]:
        """The largest values of options whose bounds depend on the run."""
        return {}

    def example(self) -> str:
        """A text that it can read."""
        return "a b c"

    def endpoint(self, limits: Limits, *, run: str, step: int) -> Endpoint:
        # pydantic, which this module needs, is installed with the extra "serve"
        from regard.serve.text_endpoint import TextEndpoint

        return TextEndpoint(
            self,
            limits,
            name=self.config_type.name,
            title=self.page_title.format(run=run),
            options=self.request_options(),
            maxima=self.option_maxima(),
            about={"run": run, "step": step, **self.about()},
            example=self.example(),
            text_schema=self.text_schema,
        )
