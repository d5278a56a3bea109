"""Strings of the formats image, audio, story, passage and dialogue, for the process of schemathesis."""

import base64
import io
from typing import Any

import numpy as np
import schemathesis
from hypothesis import strategies as st
from PIL import Image

from regard.data.audio.wav import Sound, wav_bytes


def encoded(width: int, height: int, colour: int, kind: str, prefix: bool) -> str:
    file = io.BytesIO()
    Image.new("RGB", (width, height), (colour, 255 - colour, 7)).save(file, kind)
    written = base64.b64encode(file.getvalue()).decode()
    return f"data:image/{kind.lower()};base64,{written}" if prefix else written


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: dict[str, Any]) -> None:
    """Leaves forms to test_form_body.py: a form cannot hold an empty list or null, and schemathesis leaves them out."""
    for verbs in raw_schema["paths"].values():
        for operation in verbs.values():
            operation.get("requestBody", {}).get("content", {}).pop("multipart/form-data", None)


sizes = st.integers(1, 40)
images = st.builds(encoded, sizes, sizes, st.integers(0, 255), st.sampled_from(["PNG", "JPEG"]), st.booleans())
schemathesis.openapi.format("image", images)


def spoken(samples: int, rate: int, prefix: bool) -> str:
    content = base64.b64encode(wav_bytes(Sound(np.zeros(samples, np.float32), rate))).decode()
    return f"data:audio/wav;base64,{content}" if prefix else content


sounds = st.builds(spoken, st.integers(1000, 2000), st.sampled_from([8000, 16000]), st.booleans())
schemathesis.openapi.format("audio", sounds)

words = st.sampled_from(["Al", "Bo", "went", "to", "a", "b", "sah", "ねこ"])
sentences = st.lists(words, min_size=1, max_size=4).map(" ".join)
stories = st.builds(
    lambda told, asked, end: end.join([*(f"{each}." for each in told), f"{asked}?"]),
    st.lists(sentences, min_size=1, max_size=4),
    sentences,
    st.sampled_from([" ", "\n"]),
)
schemathesis.openapi.format("story", stories)
schemathesis.openapi.format("passage", st.builds("{}.\n{}?".format, sentences, sentences))
schemathesis.openapi.format("dialogue", st.lists(sentences, min_size=2, max_size=4, unique=True).map("\n".join))
