"""The body of a request about one text or several."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, TypeVar, get_type_hints

from regard.inference.limits import Limits
from regard.serve.errors import RequestError
from regard.serve.http.body_models import Field, SingleOrList, limited, with_fields

# a character that is no white space, for Python: schemas count the separators U+001C to U+001F and U+0085 as visible
_VISIBLE = r"[^\s\x1c-\x1f\x85]"


class TextBody(SingleOrList):
    """One text, or several."""

    pair: ClassVar[tuple[str, str]] = ("text", "texts")
    reads_empty: ClassVar[bool] = False  # whether a text may be empty, as the prompt of a language model

    text: Annotated[str, Field(default_factory=str, description="One text.")]
    texts: Annotated[
        list[str], Field(default_factory=list, min_length=1, description="Several texts at once, instead of text.")
    ]

    def checked(self, limits: Limits) -> list[tuple[str, str]]:
        """The texts with their names; RequestError for one that is empty, too long, or holds half a character."""
        named = self.named()
        for name, text in named:
            if not self.reads_empty and not text.strip():
                raise RequestError(422, f"{name} is empty; give at least one word")
            if len(text) > limits.characters:
                raise RequestError(
                    422,
                    f"{name} must have at most {limits.characters} characters, got {len(text)}; "
                    "send it sentence by sentence",
                )
            half = next((n for n, c in enumerate(text, 1) if "\ud800" <= c <= "\udfff"), 0)
            if half:
                raise RequestError(
                    422, f"{name} holds half a character (a lone surrogate) at position {half}; send it whole"
                )
        return named


Body = TypeVar("Body", bound=TextBody)


def limited_texts(
    model: type[Body], limits: Limits, text_schema: Mapping[str, str] = MappingProxyType({}), **constraints: Any
) -> type[Body]:
    """The model with the limits of its texts in /openapi.json, what else the schema says about them, such as a pattern,
    and more constraints on other fields.
    """
    visible = {} if model.reads_empty or text_schema else {"pattern": _VISIBLE}
    length = Field(json_schema_extra={"maxLength": limits.characters, **visible, **text_schema})
    texts = get_type_hints(model, include_extras=True)["texts"]
    several = Annotated[list[Annotated[str, length]], *texts.__metadata__, Field(max_length=limits.texts)]
    return limited(with_fields(model, {"texts": several}), text=length, **constraints)
