"""What POST /v1/translate takes and gives, as JSON Schema."""

from typing import Any

# hypotheses that are kept where nobody says how many
BEAM = 5

_TEXT = {"type": "string", "description": "What to translate."}
REQUEST: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "oneOf": [{"required": ["text"]}, {"required": ["texts"]}],
    "properties": {
        "text": _TEXT,
        "texts": {"type": "array", "items": _TEXT, "minItems": 1, "description": "Several at once, instead of text."},
        "beam": {
            "type": "integer",
            "minimum": 1,
            "default": BEAM,
            "description": "Hypotheses that are kept at every step; 1 takes the likeliest token each time.",
        },
        "nbest": {
            "type": "integer",
            "minimum": 1,
            "default": 1,
            "description": "Translations of each text, the best first; at most beam.",
        },
        "alignment": {
            "type": "boolean",
            "default": False,
            "description": "Whether to tell what each piece of a translation looked at.",
        },
    },
    "example": {"text": "en: May 5, 2017", "beam": 5, "nbest": 1, "alignment": True},
}
_PIECES = {"type": "array", "items": {"type": "string"}}
_ALIGNMENT = {
    "type": "object",
    "required": ["source", "target", "weights"],
    "description": "weights[i][j] is the share of target piece i's look that source piece j got. The last pieces are "
    "the ends of the sentences; what cannot be seen has a sign: a blank is ␣.",
    "properties": {
        "source": _PIECES,
        "target": _PIECES,
        "weights": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
    },
}
_TRANSLATION = {
    "type": "object",
    "required": ["text", "score", "log_prob", "finished"],
    "properties": {
        "text": {"type": "string"},
        "score": {"type": "number", "description": "What translations are ranked by."},
        "log_prob": {"type": "number", "description": "The natural logarithm of its probability."},
        "finished": {"type": "boolean", "description": "Whether it came to its end within the limit."},
        "alignment": _ALIGNMENT,
    },
}
ANSWER: dict[str, Any] = {
    "type": "object",
    "required": ["answers"],
    "properties": {
        "answers": {
            "type": "array",
            "description": "One for each text, in their order.",
            "items": {
                "type": "object",
                "required": ["source", "unknown", "translations"],
                "properties": {
                    "source": {"type": "string"},
                    "unknown": {"type": "integer", "description": "Tokens that are not in the vocabulary."},
                    "translations": {"type": "array", "items": _TRANSLATION, "description": "The best first."},
                },
            },
        }
    },
}
