"""Writes the lists of the documentation from the catalogues and the pages: python docs/tables.py [--check].

A list is between `<!-- NAME -->` and `<!-- end of NAME -->` (in mkdocs.yml `# NAME`). Mechanisms and gates come from
their catalogues and pages, models from MODELS, tasks from TASKS, the reference from the public names. A guide ends with
its entry, a comment with one fact per line:

    section   the section of the index and of the navigation; `order` sorts within it, the last if it is missing
    title     the name of the page in both, and `summary`, the sentence behind it in the index
    task      for the guide of a task, the row of the table of tasks; cells are separated by |
    application   rows of the table of applications

So does a page of mechanisms or gates without a catalogue name: its `group`, and `names`, the words in their place.
"""

import argparse
import functools
import inspect
import json
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import regard
from regard.attn import catalogue as mechanisms
from regard.gates import catalogue as gates
from regard.models import MODELS
from regard.tasks.registry import TASKS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SECTIONS = ("Translation", "Texts", "Speech", "Agents", "Images", "Attention")
ENTRY = re.compile(r"^<!-- entry\n(?P<facts>.*?)^-->\n?\Z", re.MULTILINE | re.DOTALL)
NAMES = re.compile(r"^Catalogue names?: (?P<names>.+)$", re.MULTILINE)


class Entry(NamedTuple):
    """A page in the index and in the navigation."""

    path: str
    section: str
    title: str
    summary: str = ""
    order: int = 1000
    task: str = ""
    applications: tuple[str, ...] = ()


# pages that other programs write, and therefore hold no entry
WRITTEN = (
    Entry("translation.md", "Translation", "Translation results", "quality, speed, resume and scaling, measured."),
    Entry("vision.md", "Images", "Vision results", "accuracy, captions and samples, measured."),
    Entry(
        "surveys.md",
        "Attention",
        "Names of the surveys",
        "what surveys of attention name, and where it is here.",
        order=10,
    ),
    Entry("recorded-models.md", "Attention", "Recorded models", order=120),
    Entry("models-on-regard.md", "Attention", "transformers' models on regard", order=130),
    Entry(
        "claims.md",
        "Attention",
        "Claims about attention",
        "long dependencies, time, positions, heads, hard and sparse attention, tested by small experiments.",
    ),
)


def from_docs(text: str, folder: Path) -> str:
    """Text of a page in this folder, with links that lead from docs."""

    def link(target: re.Match[str]) -> str:
        return f"]({os.path.relpath(folder / target[1], DOCS)}"

    return re.sub(r"\]\((?!https?:)([^)#]+)", link, text)


def entry_facts(path: Path) -> list[tuple[str, str]]:
    """The names and values of the entry at the end of a page."""
    comment = ENTRY.search(path.read_text(encoding="utf-8"))
    if comment is None:
        raise ValueError(f"{path} has no entry; end it with the lines of docs/tables.py between <!-- entry and -->")
    lines = from_docs(comment["facts"], path.parent).splitlines()
    return [(name, value) for name, _, value in (line.partition(": ") for line in lines)]


def entry(path: Path) -> Entry:
    """The entry of a guide."""
    facts = entry_facts(path)
    single = dict(facts)
    return Entry(
        path.relative_to(DOCS).as_posix(),
        single["section"],
        single["title"],
        single["summary"],
        int(single.get("order", 1000)),
        single.get("task", ""),
        tuple(value for name, value in facts if name == "application"),
    )


@functools.cache
def entries() -> list[Entry]:
    """All entries, in the order of the index."""
    known = [*map(entry, sorted((DOCS / "guides").glob("*.md"))), *WRITTEN]
    return sorted(known, key=lambda each: (SECTIONS.index(each.section), each.order))


class CataloguePage(NamedTuple):
    """A page of docs/mechanisms or docs/gates."""

    file: str
    title: str
    group: str
    names: list[str]  # in the catalogue
    words: str = ""  # in the place of names

    @property
    def stem(self) -> str:
        return self.file.removesuffix(".md")


def catalogue_pages(folder: str, groups: Mapping[str, Mapping[str, object]]) -> list[CataloguePage]:
    """The pages in the order of the catalogue, then those without a catalogue name."""
    kinds = {name: kind for kind, group in groups.items() for name in group}
    places = {name: place for place, name in enumerate(kinds)}
    pages = []
    for path in sorted((DOCS / folder).glob("*.md")):
        if path.stem == "index":
            continue
        text = path.read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        if line := NAMES.search(text):
            names = re.findall(r"`([\w-]+)`", line["names"])
            pages.append(CataloguePage(path.name, title, kinds[names[0]], names))
        else:
            facts = dict(entry_facts(path))
            pages.append(CataloguePage(path.name, title, facts["group"], [], facts["names"]))
    return sorted(pages, key=lambda page: places[page.names[0]] if page.names else len(places))


MECHANISM_PAGES = functools.partial(catalogue_pages, "mechanisms", mechanisms.GROUPS)
GATE_PAGES = functools.partial(catalogue_pages, "gates", gates.GROUPS)


def row(*cells: str) -> str:
    return re.sub(r"  +", " ", f"| {' | '.join(cells)} |")


def page_rows(pages: list[CataloguePage], head: str) -> Iterator[str]:
    yield from (row(head, "names", "page"), "|---|---|---|")
    group = None
    for page in pages:
        names = ", ".join(f"`{name}`" for name in page.names) or page.words
        yield row(page.group if page.group != group else "", names, f"[{page.title}]({page.file})")
        group = page.group


def guides() -> Iterator[str]:
    for section in SECTIONS:
        yield from (f"## {section}", "")
        for each in entries():
            if each.section == section and each.summary:
                line = f"- [{each.title}]({each.path}): {each.summary}"
                yield from textwrap.wrap(line, 140, subsequent_indent="  ", break_long_words=False)
        yield ""


def navigation() -> Iterator[str]:
    for section in SECTIONS:
        yield f"  - {section}:"
        yield from (f"      - {each.title}: {each.path}" for each in entries() if each.section == section)
    for title, pages in (("Mechanisms", MECHANISM_PAGES()), ("Gates", GATE_PAGES())):
        folder = title.lower()
        yield from (f"  - {title}:", f"      - {folder}/index.md")
        yield from (f"      - {page.title}: {folder}/{page.file}" for page in pages)


def tasks() -> Iterator[str]:
    yield from (row("task", "models", "embedded data; your own files", "scores", "ends after"), "|---|---|---|---|---|")
    by_task = {each.task.partition(" | ")[0]: each for each in entries() if each.task}
    for name in TASKS:
        if name not in by_task:
            raise ValueError(f"no guide has the entry `task: {name} | models | data | scores | ends after`; add it")
        _, *cells = by_task[name].task.split(" | ")
        yield row(f"[{name}]({by_task[name].path})", *cells)


def applications() -> Iterator[str]:
    yield from (row("application", "command", "attention that can be seen", "guide and results"), "|---|---|---|---|")
    yield from (row(line) for each in entries() for line in each.applications)


def models() -> Iterator[str]:
    yield from (row("name", "class", "model"), "|---|---|---|")
    for name, model in MODELS.items():
        first = " ".join((inspect.getdoc(model) or "").split("\n\n")[0].split()).replace("|", "\\|")
        yield row(f"`{name}`", f"`regard.models.{model.__name__}`", first)


def reference(*spaces: str) -> Callable[[], Iterator[str]]:
    """The names of namespaces, each by the path that the documentation writes."""

    def lines() -> Iterator[str]:
        public = regard._paths()
        for space in spaces:
            module = getattr(regard, space)
            for name in sorted(getattr(module, "__all__", dir(module)), key=str.lower):
                if name[0] != "_":
                    yield from (f"::: {public[name]}", "")

    return lines


# {kind: (its purpose, its namespace, words behind its members)}
KINDS = {
    "score": ("compares a query with a key", "scores", ""),
    "bias": ("adds a preference for positions", "biases", ", or a tensor"),
    "mask": ("hides keys from queries", "masks", ", combined by `&` `\\|` `~`"),
    "normalizer": ("turns scores into weights", "normalizers", ""),
    "read": ("combines or selects values by weight", "reads", ""),
    "layer": ("provides queries, keys and values", "layers", ""),
    "position": ("encodes positions", "positions", ""),
    "gate": ("weights a feature map", "gates", ": [gates](../gates/index.md)"),
}


def namespaces() -> Iterator[str]:
    """The members of every kind; names that the root has, too, come first."""
    yield from (row("kind", "purpose", "namespace", "members"), "|---|---|---|---|")
    for kind, (purpose, space, words) in KINDS.items():
        module = getattr(regard, space)
        names = [name for name in getattr(module, "__all__", dir(module)) if name[0] != "_"]
        members = sorted(names, key=lambda name: (name not in regard.__all__, name.lower()))
        listed = " ".join(f"`{name}`" for name in members if name.lower() != kind)
        yield row(kind, purpose, f"`regard.{space}`", listed + words)


def survey_names() -> Iterator[str]:
    import survey_names

    return survey_names.lines({name: page.file for page in GATE_PAGES() for name in page.names})


# the work per pair of query and key, of projected queries and keys of width d
COSTS = {
    "unnormalized": "d products",
    "location": "one number of a table of positions",
    "performer": "none: φ(k) vᵀ is summed once",
    "uniform": "none",
    "linear": "none: φ(k) vᵀ is summed once",
    "additive": "d tanh",
    "concat": "d tanh",
    "cosine": "d products, and the norms once",
}
WIDTH = 64  # of the parameters in the table of scores


def scores() -> Iterator[str]:
    """The alignment functions side by side; times are those of a claim, for the scores that it measures."""
    from regard.cli.mechanism_docs import distinctive_term, learned_names

    claim = json.loads((ROOT / "benchmarks/results/claims/learned-scores.json").read_text(encoding="utf-8"))
    times = {point["series"]: point["values"] for point in claim["points"] if point["panel"] == "time"}
    yield from (row("name", "formula", "learned", f"parameters, d = {WIDTH}", "work per pair", "ms"), "|---" * 6 + "|")
    for name in mechanisms.GROUPS["score"]:
        module = regard.mechanism(name, WIDTH)
        learned = ", ".join(f"`{part}`" for part in learned_names(module)) or "nothing"
        count = sum(weight.numel() for weight in module.parameters())
        measured = f"{sum(times[name]) / len(times[name]):.1f}" if name in times else "–"
        formula = distinctive_term(module).formula.replace("|", "\\|").removesuffix(".")
        yield row(f"`{name}`", formula, learned, f"{count:,}", COSTS.get(name, "d products"), measured)


class Result(NamedTuple):
    """A row of the results on the first page: a number of a page of results, which a command wrote."""

    page: str
    case: str  # the first cells of its row there
    cell: int
    sentence: str
    command: str


RESULTS = (
    Result(
        "models-on-regard.md",
        "| equal |",
        2,
        "classes of transformers compute on regard what they compute with eager attention, of 815 that can choose",
        "python -m benchmarks.zoo.interface_sweep",
    ),
    Result(
        "recorded-models.md",
        "| exact |",
        2,
        "classes of transformers whose every attention weight is recorded exactly, of 1,077",
        "python -m benchmarks.zoo.recorder_sweep",
    ),
    Result(
        "speed.md",
        "| Additive (32,50,50,256) forward |",
        4,
        "additive attention, against the tensor of all pairs",
        "make bench",
    ),
    Result(
        "speed.md",
        "| Dot (1,8,2048,64) +backward | regard.attention(Dot) : SDPA, plain",
        4,
        "a dot product, against torch's own call",
        "make bench",
    ),
    Result(
        "decoding.md",
        "| Transformer 3+3, width 256, 6,000 words, 20 tokens: beam 5, batch 64 | regard : CTranslate2 float32",
        4,
        "beam search of a translator, against CTranslate2 on a CPU",
        "python -m benchmarks translation",
    ),
    Result(
        "translation.md",
        "| transformer |",
        3,
        "from English to German, Multi30k, after an hour on one CPU thread",
        "python -m benchmarks.experiments multi30k --data FOLDER",
    ),
    Result(
        "vision.md",
        "| MNIST, ConvNet with SimAM |",
        3,
        "of MNIST recognised, after eight minutes on a CPU",
        "python -m benchmarks.experiments mnist --data FOLDER",
    ),
)


def results() -> Iterator[str]:
    """The rows of RESULTS, with the numbers of their pages."""
    yield from (row("measured", "what", "command, and all numbers"), "|---" * 3 + "|")
    for each in RESULTS:
        lines = (DOCS / each.page).read_text(encoding="utf-8").splitlines()
        cells = next(line for line in lines if line.startswith(each.case)).split("|")
        number = re.sub(r" [\[(].*| of [\d,]+ (?:pairs|test images).*", "", cells[each.cell].strip())
        yield row(number, each.sentence, f"[`{each.command}`]({each.page})")


def devices() -> Iterator[str]:
    """The GPUs that have results."""
    sys.path.append(str(ROOT))
    from benchmarks.gpu.report import devices

    return devices()


# pages of mechanisms that the claim about new mechanisms ranks: the name there, the variant, and the place of it
RANKED = {
    "qk-norm": ("QK-norm", "", "beside"),
    "output-gate": ("output gate", " with a gate per head", "beside"),
    "null": ("sink", " with a sink per head", "beside"),
    "softpick": ("softpick", "", "beside"),
    "relu": ("ReLU", " with p = 1", "beside"),
    "selective": ("selective", "", "beside"),
    "stick-breaking": ("stick-breaking", "", "in the place of"),
    "forgetting": ("forgetting", "", "in the place of"),
    "cope": ("CoPE", "", "in the place of"),
    "fire": ("FIRE", "", "in the place of"),
    "alibi": ("ALiBi", "", "in the place of"),
}


def ranked(name: str, variant: str, where: str) -> Callable[[], Iterator[str]]:
    """The loss of a mechanism beside that of softmax with rotary positions, from the results of the claim."""

    def lines() -> Iterator[str]:
        claim = json.loads((ROOT / "benchmarks/results/claims/new-mechanisms.json").read_text(encoding="utf-8"))
        values = next(p["values"] for p in claim["points"] if (p["panel"], p["x"]) == ("difference", name))
        mean, torch_version = sum(values) / len(values), claim["about"]["versions"]["torch"].partition("+")[0]
        more = "lower" if mean < 0 else "higher"
        spread = f"{min(values):+.3f} to {max(values):+.3f} over {claim['seeds']} seeds"
        link = "[claim and command](../claims.md#which-of-the-new-mechanisms-helps-at-this-size)"
        yield from textwrap.wrap(
            f"Measured{variant}: {where} rotary positions, a small language model has a loss after "
            f"{claim['settings']['steps']} steps that is {abs(mean):.3f} nats per character {more} than with plain "
            f"softmax and rotary positions ({spread}; torch {torch_version}, {claim['about']['date']}; {link}).",
            140,
            break_long_words=False,
            break_on_hyphens=False,
        )

    return lines


# {file: {list: its lines}}
LISTS: dict[str, dict[str, Callable[[], Iterator[str]]]] = {
    "mkdocs.yml": {"pages": navigation},
    "docs/index.md": {"results": results, "guides": guides},
    "docs/gpu.md": {"devices": devices},
    "docs/surveys.md": {"surveys": survey_names},
    "docs/applications.md": {"applications": applications, "tasks": tasks},
    "docs/guides/choose.md": {"kinds": namespaces},
    "docs/mechanisms/index.md": {
        "mechanisms": lambda: page_rows(MECHANISM_PAGES(), "term"),
        "scores": scores,
    },
    "docs/gates/index.md": {"gates": lambda: page_rows(GATE_PAGES(), "weights over")},
    "docs/reference/models.md": {"models": models},
    "docs/reference/attention.md": {"layers": reference("layers")},
    "docs/reference/gates.md": {"gates": reference("gates")},
    "docs/reference/terms.md": {
        "terms": reference("scores", "biases", "masks", "normalizers", "reads", "positions"),
    },
    **{f"docs/mechanisms/{page}.md": {"measured": ranked(*words)} for page, words in RANKED.items()},
}


def written(file: str, text: str) -> str:
    """The text of a file with its lists."""
    for name, lines in LISTS[file].items():
        opening, closing = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if file.endswith(".yml"):
            opening, closing = f"  # {name}, written by docs/tables.py", f"  # end of {name}"
        before, found, rest = text.partition(f"{opening}\n")
        _, ended, after = rest.partition(f"{closing}\n")
        if not found or not ended:
            raise ValueError(f"{file} has no lines {opening!r} and {closing!r}; add them where its list is to be")
        text = f"{before}{opening}\n" + "\n".join(lines()).rstrip("\n") + f"\n{closing}\n{after}"
    return text


def stale() -> dict[Path, str]:
    """{file: its new text} of the files whose lists differ from the catalogues."""
    texts = {ROOT / file: written(file, (ROOT / file).read_text(encoding="utf-8")) for file in LISTS}
    return {path: text for path, text in texts.items() if path.read_text(encoding="utf-8") != text}


def main() -> int:
    parser = argparse.ArgumentParser(description="Writes the lists of the documentation from catalogues and pages.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a list is stale")
    check = parser.parse_args().check
    files = stale()
    for path, text in files.items():
        print(f"{'stale' if check else 'written'}: {path.relative_to(ROOT)}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return int(check and bool(files))


if __name__ == "__main__":
    sys.exit(main())
