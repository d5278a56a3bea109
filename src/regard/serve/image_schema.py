"""What POST /v1/classify, and its like, take and give, as JSON Schema."""

from typing import Any

# classes that are told where nobody says how many
TOP = 5

_IMAGE = {
    "type": "string",
    "contentEncoding": "base64",
    "description": "A PNG or JPEG file in base64; data:image/png;base64, may stand before it.",
}
REQUEST: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "oneOf": [{"required": ["image"]}, {"required": ["images"]}],
    "properties": {
        "image": _IMAGE,
        "images": {"type": "array", "items": _IMAGE, "minItems": 1, "description": "Several at once, not image."},
        "top": {
            "type": "integer",
            "minimum": 1,
            "default": TOP,
            "description": "How many classes are told, the likeliest first; there may be fewer. Not for sentences.",
        },
        "maps": {
            "type": "boolean",
            "default": False,
            "description": "Whether to tell where the model looked.",
        },
    },
    "example": {
        "image": "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg==",
        "top": 3,
        "maps": True,
    },
}
_CLASS = {
    "type": "object",
    "required": ["name", "probability"],
    "properties": {"name": {"type": "string"}, "probability": {"type": "number", "minimum": 0, "maximum": 1}},
}
_PLACE = {
    "type": "object",
    "required": ["x", "y"],
    "description": "From (0, 0), the upper left corner, to (1, 1).",
    "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
}
_MAP = {
    "type": "object",
    "required": ["name", "kind", "verified", "weights"],
    "properties": {
        "name": {"type": "string", "description": "The module that looked; if over several grids, with this one."},
        "kind": {"type": "string", "description": "gate, self, cross, alignment or glimpse."},
        "verified": {"type": "boolean", "description": "Whether this is certainly what the model used."},
        "weights": {
            "type": "array",
            "description": "weights[n][i][j]: look n, one a word or a glimpse where the model looks several times, at "
            "row i and column j of a grid that lies over the whole picture. Finer grids are averaged.",
            "items": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        },
    },
}
ANSWER: dict[str, Any] = {
    "type": "object",
    "required": ["answers"],
    "properties": {
        "answers": {
            "type": "array",
            "description": "One for each image, in their order.",
            "items": {
                "type": "object",
                "properties": {
                    "classes": {"type": "array", "items": _CLASS, "description": "The likeliest first."},
                    "path": {
                        "type": "array",
                        "items": _PLACE,
                        "description": "Of a model that glimpses: where, in order.",
                    },
                    "text": {"type": "string", "description": "What a model says that writes sentences."},
                    "words": {"type": "array", "items": {"type": "string"}, "description": "Its words, a look each."},
                    "maps": {"type": "array", "items": _MAP, "description": "There if they were asked for."},
                },
            },
        }
    },
}
