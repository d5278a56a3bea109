"""The names of surveys of attention, and where regard has each: rows of docs/surveys.md, from survey_names.toml."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import regard
from regard.cli.mechanism_docs import page
from regard.models import MODELS

DOCS = Path(__file__).parent


class SurveyName(NamedTuple):
    """A name of a survey; `places` are those that regard has."""

    group: str
    name: str
    places: list[str]  # in Markdown
    note: str


class Survey(NamedTuple):
    title: str
    source: str
    least: int  # names that regard must have
    names: list[SurveyName]

    @property
    def count(self) -> int:
        return sum(bool(each.places) for each in self.names)


def _link(place: str, gate_pages: dict[str, str]) -> str | None:
    """A place in Markdown, None if it is a model that regard does not have; raises for any other that is not there."""
    kind, _, name = place.partition(":")
    if kind == "model":
        return f"[`{name}`](reference/models.md)" if name in MODELS else None
    if kind == "mechanism":
        return f"[`{name}`]({page(name).removeprefix('docs/')})"
    if kind == "gate":
        return f"[`{name}`](gates/{gate_pages[name]})"
    if kind == "class":
        module, _, member = name.partition(".")
        getattr(getattr(regard, module), member)
        return f"`regard.{name}`"
    if kind == "page" and (DOCS / name).exists():
        title = (DOCS / name).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        return "this page" if name == "surveys.md" else f"[{title}]({name})"
    raise ValueError(f"survey_names.toml names {place!r}, which is not there; correct it")


def surveys(gate_pages: dict[str, str]) -> list[Survey]:
    content = tomllib.loads((DOCS / "survey_names.toml").read_text(encoding="utf-8"))
    return [
        Survey(each["title"], each["source"], each["least"], [_name(row, gate_pages) for row in each["names"]])
        for each in content["surveys"]
    ]


def _name(row: list[str], gate_pages: dict[str, str]) -> SurveyName:
    group, name, where, note = row
    links = [_link(place, gate_pages) for place in where.split()]
    if None in links and not note:
        raise ValueError(f"survey_names.toml has a model that regard has not, and no note, at {name!r}; say why")
    # the note of a model that is there would say why it is not
    is_answered = any(place.startswith("model:") for place in where.split()) and note.startswith("no ")
    return SurveyName(group, name, [link for link in links if link], "" if is_answered and any(links) else note)


def lines(gate_pages: dict[str, str]) -> Iterator[str]:
    for survey in surveys(gate_pages):
        yield from (f"## {survey.title}", "", survey.source, "")
        yield from (f"{survey.count} of {len(survey.names)} names are here.", "")
        yield from ("| kind | name | in regard | note |", "|---|---|---|---|")
        for each in survey.names:
            cells = each.group, each.name, ", ".join(each.places) or "not here", each.note
            yield f"| {' | '.join(cells)} |".replace("  ", " ")
        yield ""
