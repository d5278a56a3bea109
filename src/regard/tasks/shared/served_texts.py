"""ServedTextPredictor: a predictor of texts whose endpoint is a TextEndpoint."""

from typing import TypeVar

from regard.inference.endpoint import Endpoint
from regard.inference.limits import Limits
from regard.inference.text_predictor import TextPredictor

Output = TypeVar("Output")


class ServedTextPredictor(TextPredictor[Output]):
    """A predictor of texts behind HTTP."""

    def endpoint(self, limits: Limits, *, run: str, step: int) -> Endpoint:
        # pydantic, which this module needs, is installed with the extra "serve"
        from regard.serve.text_endpoint import TextEndpoint

        return TextEndpoint(self, limits, run=run, step=step)
