"""The parser: what is not typed is what is given, every mistake is one sentence, a model has options of its own."""

from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given, strategies as st
from tests.for_each import for_each

from regard.cli.parsing.help import field_docs
from regard.cli.parsing.option import options_of
from regard.cli.parsing.option_names import with_cli_option_names
from regard.cli.parsing.parser import parse, positionals, unchecked_values
from regard.common.options.fields import flag, left_open, option, positional


@dataclass(frozen=True)
class Recurrent:
    """A recurrent model."""

    width: int | None = left_open()
    """The width of embeddings."""
    layers: int = 1
    """Layers of the encoder."""
    cell: Literal["gru", "lstm"] = "gru"
    """The recurrent cell."""


@dataclass(frozen=True)
class Attentive:
    """A model that only attends."""

    width: int | None = left_open()
    """The width of embeddings."""
    layers: int = 3
    """Layers of the encoder."""
    heads: int | None = left_open("twice the layers")
    """Heads of every attention."""
    depths: tuple[int, ...] | None = None
    """Blocks per stage."""


@dataclass(frozen=True)
class Learning:
    """What is learned."""

    models: ClassVar[dict[str, type]] = {"recurrent": Recurrent, "attentive": Attentive}

    data: Literal["dates", "reverse"] | None = None
    """Embedded data."""
    train: tuple[Path, ...] = ()
    """Files."""
    model: Recurrent | Attentive = field(default_factory=Recurrent)
    """Which model."""
    seed: int = 0
    """The seed."""

    @classmethod
    def default_for_help(cls, name: str) -> str:
        return {"width": "64 for dates, 256 for files", "steps": "1600 for dates"}.get(name, "")


@dataclass(frozen=True)
class Training:
    """How it is learned."""

    steps: int | None = None
    """Updates."""
    lr: float = 1e-3
    """The learning rate."""
    clip: float | None = 1.0
    """The longest gradient."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Decay rates."""
    tensorboard: bool = False
    """Write for TensorBoard."""
    log_every: int = 50
    """Steps between lines."""


@dataclass(frozen=True)
class Train:
    """Train a model.

    The run folder holds everything.
    """

    out: Path | None = None
    """A new folder."""
    learning: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Translating:
    """Translate text."""

    run: Path = positional()
    """The folder of a training."""
    text: tuple[str, ...] = positional(())
    """Lines to translate."""
    json: bool = flag()
    """Print JSON."""
    beam: int | None = left_open(5)
    """Hypotheses."""
    layers: tuple[str, ...] = ()
    """Modules."""
    coverage: float | None = left_open("as trained")
    """The penalty."""
    seed: int | None = None
    """The seed."""


@dataclass(frozen=True)
class Listing:
    """Names, one per line."""

    what: Literal["data", "gates"] | None = positional(None, called="list")
    """Which of them."""


@dataclass(frozen=True, kw_only=True)
class Compare(Train):
    """Compare several widths."""

    width: str = option(MISSING, metavar="N,N,...")
    """Widths."""


SECTIONS: dict[str, type] = {"learning": Learning, "training": Training}


def train(*args: str, **defaults: Any) -> Train:
    return parse(Train, "regard train", args, sections=SECTIONS, defaults=defaults)


def test_only_what_is_typed_or_given_is_in_a_section() -> None:
    assert train() == Train()
    typed = train("--lr", "2", "--train", "a", "b", "--seed=3", lr=5.0, betas=(0.5, 0.6), data="dates")
    assert typed.learning == {"train": (Path("a"), Path("b")), "seed": 3, "data": "dates"}
    assert typed.training == {"lr": 2.0, "betas": (0.5, 0.6)}


def test_none_and_negative_numbers_are_values() -> None:
    assert train("--clip", "None", "--lr", "-1", "--data=None").training == {"clip": None, "lr": -1.0}
    assert train("--data=None").learning == {"data": None}


def test_names_with_underscores_and_several_values() -> None:
    assert train("--log_every", "3", "--betas", "0", "1").training == {"log_every": 3, "betas": (0.0, 1.0)}
    assert train("--tensorboard", "True").training == {"tensorboard": True}


def test_words_by_their_place() -> None:
    typed = parse(Translating, "regard translate", ["--json", "run", "--beam", "3", "a b", "-", "--layers", "x", "y"])
    assert typed == Translating(Path("run"), ("a b", "-"), json=True, beam=3, layers=("x", "y"))
    assert parse(Translating, "x", ["run", "--layers", "x", "--", "--json"]).text == ("--json",)
    assert parse(Translating, "x", ["run", "-- two words", "-5"]).text == ("-- two words", "-5")
    assert parse(Listing, "regard list", []).what is None
    assert parse(Listing, "regard list", ["data"]).what == "data"


@for_each(
    ("args", "words"),
    [
        (["run", "text"], ["run", "text"]),
        (["--json", "run"], ["run"]),
        (["--beam", "3", "run", "--top", "3", "text"], ["run", "text"]),
        (["--top=3", "run", "--layers", "a", "b"], ["run"]),
        (["--help", "run"], ["run"]),
        (["--unknown", "--json", "run", "--", "--x"], ["run", "--x"]),
        ([], []),
    ],
)
def test_positionals_are_found_before_options_are_known(args: list[str], words: list[str]) -> None:
    assert positionals([Translating], args) == words


@for_each(
    ("args", "value"),
    [
        (["--train", "a", "--out", "b", "--out=c"], "b"),
        (["--train", "a", "b", "--out=c"], "c"),
        (["--depths", "1", "2", "--unknown", "x", "--out", "d"], "d"),
        (["--out"], None),
        (["--", "--out", "d"], None),
        ([], None),
    ],
)
def test_one_value_is_read_before_the_options_are_known(args: list[str], value: str | None) -> None:
    assert unchecked_values(Train, args, sections=SECTIONS).get("--out") == value


def test_a_model_is_chosen_with_its_options() -> None:
    assert train("--layers", "2").learning == {"model": Recurrent(layers=2)}
    assert train("--heads", "2", "--model", "attentive").learning == {"model": Attentive(heads=2)}
    assert train("--model", "attentive", "--depths", "1", "2").learning == {"model": Attentive(depths=(1, 2))}


def test_defaults_of_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    attentive = {"name": "attentive", "heads": 2, "layers": 5}
    assert train(model=attentive).learning == {"model": Attentive(heads=2, layers=5)}
    assert train("--layers", "1", model=attentive).learning == {"model": Attentive(heads=2, layers=1)}
    # of the options of another model, those that both models have are kept
    capsys.readouterr()
    assert train("--model", "recurrent", model=attentive).learning == {"model": Recurrent(layers=5)}
    assert capsys.readouterr().err == "regard: heads of the file belongs to model attentive and is left out\n"
    assert train("--model", "recurrent", model={**attentive, "heads": None}).learning == {"model": Recurrent(layers=5)}
    assert capsys.readouterr().err == ""
    # without a name it is for the model that is chosen
    assert train("--model", "attentive", model={"heads": 3}).learning == {"model": Attentive(heads=3)}
    with pytest.raises(ValueError, match="--heads 3 belongs to --model attentive, not to recurrent; leave it out or"):
        train(model={"heads": 3})


def test_an_own_option_hides_that_of_a_section() -> None:
    def compare(*args: str) -> Compare:
        given = {"model": {"width": 3, "layers": 2}}
        return parse(Compare, "regard compare", args, sections=SECTIONS, defaults=given)

    typed = compare("--width", "3,5", "--seed", "1")
    assert typed.width == "3,5"
    assert typed.learning == {"seed": 1, "model": Recurrent(layers=2)}
    with pytest.raises(ValueError, match="^--width is missing: regard compare --width N,N,...; regard compare --help"):
        compare()


@dataclass(frozen=True)
class Needy:
    """A section whose fields have no default."""

    models: ClassVar[dict[str, type]] = {"recurrent": Recurrent}

    data: str
    """Where from."""
    model: Recurrent
    """Which model."""


def test_what_a_section_requires() -> None:
    @dataclass(frozen=True)
    class Options:
        needy: dict[str, Any]

    sections: dict[str, type] = {"needy": Needy}
    for typed in (
        parse(Options, "x", ["--data", "d"], sections=sections),
        parse(Options, "x", [], sections=sections, defaults={"data": "d"}),
    ):
        assert typed.needy == {"data": "d", "model": Recurrent()}
    with pytest.raises(ValueError, match="^--data is missing: x --data NAME; x --help lists the options$"):
        parse(Options, "x", [], sections=sections)


@for_each(
    ("words", "sentence"),
    {
        "--widht 3": "unknown option --widht; did you mean --width? regard train --help lists the options",
        "--log_evry 3": "unknown option --log_evry; did you mean --log-every? regard train --help lists the",
        "-v": "unknown option -v; regard train --help lists the options",
        "--lr 1 --lr=2": "--lr is given twice; give it once",
        "--log-every 1 --log_every=2": "--log-every is given twice; give it once",
        "--steps abc": "--steps must be a whole number, got 'abc'; write it in digits, such as 10",
        "--steps=1e3": "--steps must be a whole number, got '1e3'; write it in digits, such as 1000",
        "--steps 1e30": "--steps must be a whole number, got '1e30'; write it in digits, such as 10",
        "--tensorboard": "--tensorboard needs True or False behind it; write --tensorboard True",
        "--steps inf": "--steps must be a whole number, got 'inf'; write it in digits, such as 10",
        "--lr --steps 3": "--lr needs a number behind it; a value that begins with a dash is typed --lr=-…",
        "--out -x": "--out needs a value behind it; a value that begins with a dash is typed --out=-…",
        "--train -- a": "--train needs a value behind it; a value that begins with a dash is typed --train",
        "--betas 0.9": "--betas needs 2 values, each a number, got 1; give 2",
        "--betas 0.9 x": "--betas must be a number, got 'x'; write it in digits, such as 10",
        "--tensorboard maybe": "--tensorboard must be True or False, got 'maybe'; write one of them",
        "--depths 1 x --model attentive": "--depths must be a whole number, got 'x'; write it in",
        "to": "regard train takes no words beside its options, got 1; give 'to' behind an option; --help lists",
        "--data datse": "unknown --data 'datse'; did you mean 'dates'? known are: dates, reverse",
        "--model recurent": "unknown --model 'recurent'; did you mean 'recurrent'? known are: recurrent, att",
        "--depths 1 2": "--depths 1 2 belongs to --model attentive, not to recurrent; leave it out or choose",
        "--model attentive --cell gru": "--cell gru belongs to --model recurrent, not to attentive; leave",
    }.items(),
)
def test_mistakes_are_one_sentence(words: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=".") as caught:
        train(*words.split())
    assert str(caught.value).startswith(sentence)


@for_each(
    ("options", "args", "sentence"),
    [
        (Translating, ["--beam", "3"], "RUN is missing: regard x RUN; regard x --help lists the options"),
        (Translating, ["run", "--json=True"], "--json stands alone, got --json=True; leave the value out"),
        (Listing, ["dta"], "unknown list 'dta'; did you mean 'data'? known are: data, gates"),
        (Listing, ["data", "gates"], "regard x takes 1 word beside its options, got 2; quote a text that has spaces"),
    ],
)
def test_mistakes_by_place(options: Any, args: list[str], sentence: str) -> None:
    with pytest.raises(ValueError, match=".") as caught:
        parse(options, "regard x", args)
    assert str(caught.value) == sentence


values = st.fixed_dictionaries(
    {},
    optional={
        "steps": st.none() | st.integers(),
        "lr": st.floats(allow_nan=False),
        "clip": st.none() | st.floats(allow_nan=False),
        "betas": st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)),
        "tensorboard": st.booleans(),
        "log_every": st.integers(),
    },
)


@given(values, st.data())
def test_values_survive_the_command_line(chosen: dict[str, Any], data: st.DataObject) -> None:
    args = []
    for name, value in data.draw(st.permutations(list(chosen.items()))):
        several = value if isinstance(value, tuple) else (value,)
        args += [f"--{name.replace('_', '-')}", *map(str, several)]
    assert train(*args).training == chosen


@given(st.text(), st.lists(st.text()))
def test_any_text_survives_behind_equals_and_dashes(value: str, words: list[str]) -> None:
    @dataclass(frozen=True)
    class Options:
        words: tuple[str, ...] = positional(())
        name: str = ""

    assert parse(Options, "x", [f"--name={value}", "--", *words]) == Options(tuple(words), value)


def help_of(capsys: pytest.CaptureFixture[str], options: Any, *args: str, **defaults: Any) -> str:
    sections = SECTIONS if issubclass(options, Train) else {}
    with pytest.raises(SystemExit) as stop:
        parse(options, "regard x", [*args, "--help"], sections=sections, defaults=defaults)
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("options", [Train, Translating, Listing, Compare])
def test_help_has_every_option(options: Any, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys, options)
    assert text.startswith("usage: regard x [-h] [OPTIONS]")
    assert "None" not in text.replace("FLOAT|None", "")
    sections = SECTIONS if issubclass(options, Train) else {}
    for each in options_of(options, sections):
        assert f"  {each.metavar(None) if each.positional else each.flag}" in text


def test_help_in_blocks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert (
        help_of(capsys, Train, "--nonsense")
        == """\
usage: regard x [-h] [OPTIONS]

Train a model.

The run folder holds everything.

options:
  -h, --help              Show this help.
  --out FOLDER            A new folder.

learning options:
  --data {dates,reverse}  Embedded data.
  --train FILE [FILE]     Files.
  --model {recurrent,attentive}
                          Which model. (default: recurrent)
  --width INT             The width of embeddings. (default: 64 for dates, 256 for files)
  --layers INT            Layers of the encoder. (default: 1 for recurrent, 3 for attentive)
  --seed INT              The seed. (default: 0)

options of --model recurrent:
  --cell {gru,lstm}       The recurrent cell. (default: gru)

options of --model attentive:
  --heads INT             Heads of every attention. (default: twice the layers)
  --depths INT [INT ...]  Blocks per stage.

training options:
  --steps INT             Updates. (default: 1600 for dates)
  --lr FLOAT              The learning rate. (default: 0.001)
  --clip FLOAT|None       The longest gradient. (default: 1.0)
  --betas FLOAT FLOAT     Decay rates. (default: 0.9 0.98)
  --tensorboard {True,False}
                          Write for TensorBoard.
  --log-every INT         Steps between lines. (default: 50)
"""
    )


def test_help_shows_the_defaults_that_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"lr": 0.5, "steps": 7, "tensorboard": True, "betas": (0.0, 0.5), "data": "dates"}
    text = help_of(capsys, Train, model={"name": "attentive", "width": 3, "heads": 2}, **given)
    for part in (
        "The learning rate. (default: 0.5)",
        "Updates. (default: 7)",
        "Write for TensorBoard. (default: yes)",
        "Decay rates. (default: 0.0 0.5)",
        "Embedded data. (default: dates)",
        "Heads of every attention. (default: 2)",
        "Which model. (default: attentive)",
    ):
        assert part in text


def test_help_is_wrapped(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (50, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert max(map(len, help_of(capsys, Compare).splitlines())) <= columns


def test_usage_has_the_words_and_what_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert help_of(capsys, Translating).startswith("usage: regard x [-h] [OPTIONS] RUN [TEXT ...]\n")
    assert help_of(capsys, Listing).startswith("usage: regard x [-h] [OPTIONS] [{data,gates}]\n")
    assert help_of(capsys, Compare).startswith("usage: regard x [-h] [OPTIONS] --width N,N,...\n")


def test_only_the_main_process_prints_help(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert help_of(capsys, Train) == ""


def test_help_behind_dashes_is_text() -> None:
    assert parse(Translating, "x", ["run", "--", "--help"]).text == ("--help",)


def test_docs_of_a_subclass() -> None:
    @dataclass(frozen=True)
    class Base:
        a: int = 1
        """The a of the base."""
        b: int = 1
        """The b of the base."""

    @dataclass(frozen=True)
    class Sub(Base):
        a: int = 2
        """The a of the subclass."""

    assert field_docs(Sub) == {"a": "The a of the subclass.", "b": "The b of the base."}


@for_each(
    ("text", "typed"),
    [
        ("lr must be positive, got 0; try lr=0.001", "--lr must be positive, got 0; try --lr 0.001"),
        ("betas must be small; try betas=(0.9, 0.98)", "--betas must be small; try --betas 0.9 0.98"),
        ("data='dates' and train=a.tsv exclude each other", "--data dates and --train a.tsv exclude each other"),
        ("heads=3 needs model='attentive', or log_every=5.", "--heads 3 needs --model attentive, or --log-every 5."),
        ("unknown cell 'x'; known are: y", "unknown --cell 'x'; known are: y"),
        ("unknown mechanism 'x'; known are: y", "unknown mechanism 'x'; known are: y"),
        ("data/seed=3 is no folder", "data/seed=3 is no folder"),
        ("there is no file /x/lr=0.1/a.tsv", "there is no file /x/lr=0.1/a.tsv"),
        ("other=3 is not an option, lr alone is a word", "other=3 is not an option, lr alone is a word"),
        ("run=3 is typed by its place", "run=3 is typed by its place"),
    ],
)
def test_errors_name_options_as_they_are_typed(text: str, typed: str) -> None:
    assert with_cli_option_names(text, [Training, Learning, Translating]) == typed


def test_an_empty_path_is_no_working_directory() -> None:
    from regard.cli.verbs.record import RecordOptions

    for words in (["m", "a", "--out", ""], ["m", "a", "--out="]):
        with pytest.raises(ValueError, match=r"^--out must be a path, got ''; name a file$"):
            parse(RecordOptions, "regard record", words)
    with pytest.raises(ValueError, match=r"^--out must be a path, got 'a\\x00b', and no path has the character NUL"):
        parse(RecordOptions, "regard record", ["m", "a", "--out", "a\0b"])
