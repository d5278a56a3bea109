"""Translating: a Translate run behind the service, text in, translations and what they looked at out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.data.text.special_tokens import UNK
from regard.decoding.search import Beam, Greedy, Search
from regard.inference.endpoint import PageSpec, Schema
from regard.inference.limits import Limits
from regard.serve.errors import RequestError
from regard.serve.http import fields
from regard.serve.translate_schema import ANSWER, BEAM, REQUEST
from regard.tasks.translate.model import places
from regard.tasks.translate.options import Translate
from regard.tasks.translate.predictor import AlignedTranslation, TranslationHypothesis, Translator
from regard.viz.text import labels


@dataclass(frozen=True)
class TranslateRequest:
    """Texts to translate, and how."""

    texts: tuple[str, ...]
    search: Search
    alignment: bool

    @property
    def count(self) -> int:
        return len(self.texts)


class TranslateEndpoint:
    """Answers of `Translator.translate`, many requests at a time; `run` is what the model is called."""

    name = "translate"
    counted = "sentences"
    unpack = None

    def __init__(self, task: Translate, interpreter: Translator, limits: Limits, *, run: str, step: int) -> None:
        self.task, self.interpreter, self.limits, self.run, self.step = task, interpreter, limits, run, step
        self.attends = task.decoder != "fixed"
        self.tokens = limits.tokens or task.max_length
        if task.positions == "learned" and self.tokens >= places(task):
            raise ValueError(
                f"tokens={self.tokens} is more than the {places(task) - 1} places that this model learned; "
                f"try tokens={task.max_length}"
            )

    @property
    def face(self) -> PageSpec:
        limits = {"characters": self.limits.characters, "texts": self.limits.texts, "pictures": self.limits.pictures}
        empty = {"title": "", "note": "", "text": ["", ""], "source": [], "target": [], "weights": ""}
        data = {"run": self.run, "attends": self.attends, "beam": self.limits.beam, "limits": limits, "shown": {}}
        return PageSpec(f"Translate with {self.run}", "alignment/page", "text_form", {**data, "alignments": [empty]})

    @property
    def schema(self) -> Schema:
        return Schema("Translate one text or several", REQUEST, ANSWER)

    def about(self) -> dict[str, object]:
        limits, vocabularies = self.limits, self.interpreter.vocabularies
        return {
            "task": self.name,
            "run": self.run,
            "step": self.step,
            "model": self.task.model,
            "attends": self.attends,
            "parameters": sum(p.numel() for p in self.interpreter.model.parameters()),
            "vocabulary": {"source": len(vocabularies.source), "target": len(vocabularies.target)},
            "limits": {
                "texts": limits.texts,
                "characters": limits.characters,
                "tokens": self.tokens,
                "beam": limits.beam,
                "pictures": limits.pictures,
                "body": limits.body,
                "seconds": limits.seconds,
            },
        }

    def read(self, body: Mapping[str, object]) -> TranslateRequest:
        fields.check(body, REQUEST["properties"])
        texts = self._texts(body)
        beam = fields.whole(body, "beam", min(BEAM, self.limits.beam), self.limits.beam)
        nbest = fields.whole(body, "nbest", 1, self.limits.beam)
        if nbest > beam:
            raise RequestError(422, f"nbest={nbest} wants more than beam={beam} finds; raise beam")
        alignment = fields.flag(body, "alignment")
        if alignment and not self.attends:
            raise RequestError(422, "alignment needs attention, and this model has none (decoder fixed); leave it out")
        if alignment and len(texts) * nbest > self.limits.pictures:
            raise RequestError(
                422,
                f"alignment is given for at most {self.limits.pictures} translations a request, "
                f"got {len(texts)} texts with nbest={nbest}; ask for fewer, or leave alignment out",
            )
        return TranslateRequest(texts, Greedy() if beam == 1 else Beam(beam, nbest), alignment)

    def _texts(self, body: Mapping[str, object]) -> tuple[str, ...]:
        named = fields.several(body, "text", "texts", self.limits.texts)
        for where, text in named:
            self._text(where, text)
        texts = [text for _, text in named]
        encoded = self.interpreter.vocabularies.source.encode(texts)
        for (where, _), ids in zip(named, encoded, strict=True):
            if len(ids) > self.tokens:
                raise RequestError(
                    422, f"{where} must have at most {self.tokens} tokens, got {len(ids)}; ask sentence by sentence"
                )
        return tuple(texts)

    def _text(self, where: str, text: str) -> None:
        if len(text) > self.limits.characters:
            most = self.limits.characters
            raise RequestError(
                422, f"{where} must have at most {most} characters, got {len(text)}; ask sentence by sentence"
            )
        half = next((n for n, c in enumerate(text, 1) if "\ud800" <= c <= "\udfff"), 0)
        if half:
            raise RequestError(422, f"{where} holds half a character (a lone surrogate) at place {half}; send it whole")

    def answer(self, asked: Sequence[TranslateRequest]) -> list[dict[str, object]]:
        said: list[list[list[TranslationHypothesis]]] = [[] for _ in asked]
        for search in dict.fromkeys(one.search for one in asked):  # in order, each once
            those = [n for n, one in enumerate(asked) if one.search == search]
            found = iter(self.interpreter.translate([text for n in those for text in asked[n].texts], search))
            for n in those:
                said[n] = [next(found) for _ in asked[n].texts]
        wanted = [
            (text, one)
            for ask, several in zip(asked, said, strict=True)
            if ask.alignment
            for text, found in zip(ask.texts, several, strict=True)
            for one in found
        ]
        looked = iter(self.interpreter.align([text for text, _ in wanted], [one for _, one in wanted]))
        return [
            {
                "answers": [
                    {
                        "source": text,
                        "unknown": self.interpreter.vocabularies.source.encode([text])[0].count(UNK),
                        "translations": [_written(one, next(looked) if ask.alignment else None) for one in found],
                    }
                    for text, found in zip(ask.texts, several, strict=True)
                ]
            }
            for ask, several in zip(asked, said, strict=True)
        ]


def _written(one: TranslationHypothesis, looked: AlignedTranslation | None) -> dict[str, object]:
    found: dict[str, object] = {
        "text": one.text,
        "score": one.score,
        "log_prob": one.log_prob,
        "finished": one.finished,
    }
    if looked is not None:
        found["alignment"] = {
            "source": [labels.shown(piece) for piece in looked.source],
            "target": [labels.shown(piece) for piece in looked.target],
            # seven places are all that float32 knows of a share, in half the letters
            "weights": looked.weights.double().round(decimals=7).tolist(),
        }
    return found
