"""Laws of the package: light to import, names that are found, documentation of itself, installs without a compiler."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections import Counter
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import pytest
from tests import oldest
from tests.for_each import for_each

import regard

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = sorted((ROOT / "src").rglob("*.py"))

# The calls that `import regard` may make beside those of `import torch`; half of them are made now.
IMPORT_CALLS = 25_000
# Too heavy to bring along unasked.
HEAVY = ["matplotlib", "scipy", "rich", "tokenizers", "transformers", "keras", "torch._dynamo", "triton"]


def python(code: str, *arguments: object, cwd: Path | None = None, **environment: str) -> str:
    """What a fresh interpreter prints when it runs the code."""
    ran = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_import_is_quick_and_light() -> None:
    """By the calls that it makes, which do not depend on the machine, and the modules that it imports."""
    code = (
        "import sys, torch; sys.path.insert(0, sys.argv[1]); from tests.work import calls_of; had = set(sys.modules); "
        "print(calls_of(lambda: __import__('regard').attention), *sorted(set(sys.modules) - had))"
    )
    calls, *imported = python(code, ROOT).split()
    assert int(calls) <= IMPORT_CALLS, f"import regard makes {calls} calls beside torch's; the law is {IMPORT_CALLS:,}"
    assert not set(imported).intersection(HEAVY), "import these where they are used, inside the function"


def test_nothing_is_loaded_before_a_name_is_used() -> None:
    assert python("import sys, regard; print('torch' in sys.modules, 'numpy' in sys.modules)") == "False False"
    # also where a room of that name was imported first
    assert python("import regard.attn.layer, regard; print(callable(regard.attention))") == "True"


def test_version_is_one() -> None:
    assert regard.__version__ == PROJECT["version"]


def test_every_requirement_of_users_has_a_lower_bound() -> None:
    """`make test-oldest` tests these versions; oldest.lower_bounds raises if a requirement has none."""
    assert oldest.lower_bounds()["torch"] == "2.6"


def test_the_citation_is_of_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {regard.__version__}\n" in citation
    assert f"\nrepository-code: {PROJECT['urls']['Repository']}\n" in citation


def test_changelog_speaks_of_this_version() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert {"Unreleased", PROJECT["version"]}.intersection(headings)


@for_each("path", regard._paths().values())
def test_public_names_are_documented(path: str) -> None:
    thing = attrgetter(path.removeprefix("regard."))(regard)
    # A constant takes its docstring from its type; it is documented where it is written, or it is not.
    if callable(thing):
        assert thing.__doc__, f"{path} has no docstring"


def test_the_root_has_at_most_eighty_names() -> None:
    assert len(regard.__all__) == len(set(regard.__all__)) <= 80


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")


def test_namespaces_have_all_terms_of_their_kind() -> None:
    """Every public term of attn/terms, also those that the root has."""
    from regard.attn.terms.learnable import Learnable

    defined = {
        name
        for path in (ROOT / "src/regard/attn/terms").rglob("*.py")
        for name in getattr(import_module(_module_name(path)), "__all__", ())
    }
    spaces = [regard.biases, regard.masks, regard.normalizers, regard.positions, regard.reads, regard.scores]
    members = [name for space in spaces for name in dir(space) if not name.startswith("_")]
    assert sorted(members) == sorted(defined)
    terms = {
        name
        for name in regard.__all__
        if getattr(getattr(regard, name), "__module__", "").startswith("regard.attn.terms.")
    }
    assert terms - {Learnable.__name__} <= defined


@for_each("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_files_are_read_in_one_sitting(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 500, f"{path.name} has {lines} lines: it holds two ideas"


@pytest.fixture(scope="module")
def modules() -> dict[Path, ast.Module]:
    return {path.relative_to(ROOT / "src/regard"): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}


def test_class_names_are_unique(modules: dict[Path, ast.Module]) -> None:
    places: dict[str, list[str]] = {}
    for path, tree in modules.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(str(path))
    assert not {name: files for name, files in places.items() if len(files) > 1}


def test_no_docstring_is_a_question(modules: dict[Path, ast.Module]) -> None:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    documented = [(path, node) for path, tree in modules.items() for node in ast.walk(tree) if isinstance(node, kinds)]
    asked = [
        f"{path}: {text.splitlines()[0]}"
        for path, node in documented
        if (text := ast.get_docstring(node)) and text.splitlines()[0].rstrip().endswith("?")
    ]
    assert not asked


def test_every_module_says_what_it_contains(modules: dict[Path, ast.Module]) -> None:
    assert not [str(path) for path, tree in modules.items() if not ast.get_docstring(tree)]


def test_no_folder_holds_more_than_twenty_modules() -> None:
    folders = Counter(path.parent for path in SOURCES if path.name != "__init__.py")
    assert max(folders.values()) <= 20, folders.most_common(3)


def test_numbers_are_doubled_where_every_machine_can() -> None:
    """The output of a model is on its device, and that of a Mac has no float64: first to the CPU, then to float64."""
    paths = [path for path in SOURCES if path.is_relative_to(ROOT / "src/regard/tasks")]
    doubled = [
        (path.name, line.strip()) for path in paths for line in path.read_text().splitlines() if ".double()" in line
    ]
    assert doubled
    assert not [(name, line) for name, line in doubled if not re.search(r"\.cpu\(\)\.double\(\)", line)]


def copy_sources(tree: Path) -> Path:
    """A folder with the files that a wheel is built from."""
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tree / "src", ignore=ignored)
    for name in [
        "pyproject.toml",
        "setup.py",
        "MANIFEST.in",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "constraints.txt",
    ]:
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, tree / name)
    return tree


def test_builds_without_a_compiler(tmp_path: Path) -> None:
    tree, out = copy_sources(tmp_path / "tree"), tmp_path / "out"
    out.mkdir()
    python(
        # setuptools overwrites sys.argv, hence the name.
        "import sys; out = sys.argv[1]; from setuptools.build_meta import *; build_wheel(out); build_sdist(out)",
        out,
        cwd=tree,
        PATH="",
    )

    with zipfile.ZipFile(out / f"regard-{regard.__version__}-py3-none-any.whl") as wheel:
        carried = wheel.namelist()
        metadata = wheel.read(f"regard-{regard.__version__}.dist-info/METADATA").decode()
        wheel.extractall(tmp_path / "installed")
    assert "regard/py.typed" in carried
    assert not [name for name in carried if name.endswith((".so", ".dll", ".dylib", ".c", ".h"))]
    # the page on PyPI has no other files to link to
    assert not re.findall(r"\]\((?!https://|#).*?\)", metadata.split("```")[0])

    with tarfile.open(next(out.glob("*.tar.gz"))) as archive:
        shipped = {Path(name).name for name in archive.getnames()}
    assert {path.name for path in (tree / "src").rglob("*.[ch]")} <= shipped
    assert not [name for name in shipped if name.startswith("test_")]

    place = python("import regard; print(regard.__file__)", PYTHONPATH=str(tmp_path / "installed"))
    assert Path(place).is_relative_to(tmp_path)


def test_a_compiler_that_fails_is_not_passed_over(tmp_path: Path) -> None:
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(tmp_path)]
    for setting, sentence in {
        "CC": "error: the C compiler failed on the native kernels: .*; REGARD_NATIVE=none builds regard without",
        "REGARD_NATIVE": "REGARD_NATIVE must be required, unchecked or none, or not be set, got '/bin/false'",
    }.items():
        environment = {**os.environ, setting: "/bin/false"}
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 1
        assert re.search(sentence, ran.stderr)


def test_the_packages_of_the_page_are_those_of_the_linter() -> None:
    (contract,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [[package.strip(" ()") for package in layer.split("|")] for layer in contract["layers"]]
    page = (ROOT / "docs/built.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|.*\| ?([^|]*) \|$", page, re.MULTILINE)
    assert [re.findall(r"`(\w+)`", packages) for packages, _ in rows] == layers[1:]  # the first is __main__
    for packages, parts in rows:
        folders = [ROOT / "src/regard" / package for package in re.findall(r"`(\w+)`", packages)]
        for name in re.findall(r"`(\w+)`", parts):
            assert any((folder / name).is_dir() or (folder / f"{name}.py").exists() for folder in folders), name


# --decoder names a run of language-model, which is loaded as a user loads it
LOADS_RUNS = {"respond/decoder.py": {"loading", "registry"}}


def test_tasks_do_not_import_each_other(modules: dict[Path, ast.Module]) -> None:
    """Parts that several tasks use are in tasks/shared, which knows no task."""
    folders = {path.parent.name for path in (ROOT / "src/regard/tasks").glob("*/options.py")}
    offenders = []
    for path, tree in modules.items():
        top, _, place = path.as_posix().partition("/")
        folder = place.partition("/")[0]
        if top != "tasks" or folder not in {*folders, "shared"}:
            continue
        imports = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        imports += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        parts = {name.split(".")[2] for name in imports if name.startswith("regard.tasks.")}
        allowed = {folder, "base", "shared"} | LOADS_RUNS.get(place, set())
        offenders += [f"{place} imports regard.tasks.{part}" for part in sorted(parts - allowed)]
    assert not offenders


def test_the_files_that_the_page_names_exist() -> None:
    page = (ROOT / "docs/built.md").read_text(encoding="utf-8")
    named = [
        name
        for block in re.findall(r"```text\n(.*?)```", page, re.DOTALL)
        for name in re.findall(r"\S+/\w+\.py", block)
    ]
    assert len(named) > 15
    assert not [name for name in named if not (ROOT / "src/regard" / name).exists()]


def test_the_files_that_a_readme_of_a_package_names_exist() -> None:
    missing = []
    for page in (ROOT / "src").rglob("README.md"):
        names = re.findall(r"`([\w/]+\.(?:py|h)|\w+/)`", page.read_text(encoding="utf-8"))
        assert len(names) > 5, page
        missing += [
            f"{page}: {name}" for name in names if not any(page.parent.rglob(name)) and not (ROOT / name).exists()
        ]
    assert not missing


def test_the_hops_of_the_journeys_are_counted() -> None:
    page = (ROOT / "docs/built.md").read_text(encoding="utf-8")
    journeys = re.findall(
        r"^\*\*A (\w+)\.\*\* .*?(\d+) hops, (\d+) files\.\n\n```text\n(.*?)```", page, re.MULTILINE | re.DOTALL
    )
    assert [name for name, *_ in journeys] == ["call", "training", "recording"]
    for name, hops, files, block in journeys:
        columns = [re.split(r" {2,}", line.strip(), maxsplit=1) for line in block.splitlines()]
        functions = [each for first, _ in columns for each in re.split(" -> |, ", re.sub(r"\(.*?\)", "", first))]
        assert len(functions) == int(hops), name
        assert len({path for _, rest in columns for path in re.findall(r"[\w/]+\.py", rest)}) == int(files), name
        for first, rest in columns:
            text = "".join((ROOT / "src/regard" / path).read_text() for path in re.findall(r"[\w/]+\.py", rest))
            for function in re.split(" -> |, ", re.sub(r"\(.*?\)", "", first)):
                method = function.rpartition(".")[2]
                assert f"def {method}(" in text or f"class {method}" in text, f"{name}: {function} is not in {rest}"
