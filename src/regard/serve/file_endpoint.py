"""FileEndpoint: a predictor of images or sounds behind HTTP: files in base64 in, outputs and their attention out."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from regard.common.cancellation import check_cancelled
from regard.inference.endpoint import Schema
from regard.serve.errors import RequestError
from regard.serve.http.body_models import AnswerModel, Field, SingleOrList, limited, with_rules
from regard.serve.http.body_rules import only_if
from regard.serve.model_endpoint import InputsRequest, ModelEndpoint
from regard.serve.rounding import settle

# the name of a file in a request, and the file
NamedFile = tuple[str, str]


class FileEndpoint(ModelEndpoint):
    """Answers of `Predictor.predict`, many requests at a time; those with attention one input at a time."""

    attention_field: ClassVar[str]  # the field of a body that asks for the attention
    summary: ClassVar[str]
    answer_type: ClassVar[type[AnswerModel]]

    @property
    @abstractmethod
    def body_type(self) -> type[SingleOrList]: ...

    @property
    def schema(self) -> Schema:
        several = self.body_type.pair[1]
        body = limited(self.body_type, **{several: Field(max_length=self.limits.texts)})
        body = with_rules(body, only_if(self.attention_field, **{several: {"maxItems": self.limits.pictures}}))
        return Schema(self.summary, body, self.answer_type)

    def page_data(self) -> Mapping[str, object]:
        return {"limits": {"body": self.limits.body}}

    def read(self, body: SingleOrList) -> InputsRequest:
        """A request whose inputs are files as they were sent, each with its name."""
        request = InputsRequest(body.named(), body, getattr(body, self.attention_field))
        if request.attention:
            self.check_attention(request.count)
        return request

    @abstractmethod
    def check_attention(self, count: int) -> None:
        """Raises if the attention of this many inputs is not given."""

    def unpack(self, request: InputsRequest) -> InputsRequest:
        """The same with inputs that are decoded, as the model reads them."""
        try:
            return replace(request, inputs=self.decode(request.inputs))
        except ValueError as error:
            raise RequestError(422, str(error)) from None

    @abstractmethod
    def decode(self, files: Sequence[NamedFile]) -> list[Any]:
        """The inputs in these files; it is quick to refuse files that are too large."""

    def answer(self, requests: Sequence[InputsRequest]) -> list[dict[str, object]]:
        inputs = [each for request in requests if not request.attention for each in request.inputs]
        outputs = iter(self.predictor.predict(inputs) if inputs else [])
        answers = []
        for request in requests:
            if request.attention:
                each = [self._attended(item, request.options) for item in request.inputs]
            else:
                each = self.settle([next(outputs) for _ in request.inputs], request.inputs, request.options)
            answers.append(each)
        return [{"answers": each} for each in answers]

    def _attended(self, item: Any, body: Any) -> dict[str, Any]:
        """One input at a time: two equal weights of a hard attention must not be told apart by their batch."""
        check_cancelled()
        output, attention = self.attended(item)
        (answer,) = self.settle([output], [item], body)
        return {**answer, **attention}

    @abstractmethod
    def attended(self, item: Any) -> tuple[Any, dict[str, Any]]:
        """The output for one input, and the attention behind it as a part of the answer."""

    def settle(self, outputs: Sequence[Any], inputs: Sequence[Any], body: Any) -> list[dict[str, Any]]:
        """The answers about outputs, as if each were alone."""
        write, margin = partial(self.write, body=body), partial(self.margin, body=body)
        return settle(outputs, inputs, self.predictor.predict, write, margin)

    @abstractmethod
    def write(self, output: Any, body: Any) -> dict[str, Any]:
        """The answer about an output, as JSON."""

    def margin(self, output: Any, body: Any) -> float:
        return self.predictor.margin(output)
