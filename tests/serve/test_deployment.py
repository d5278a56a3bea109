"""The Dockerfile, whose lines run in an environment that has the requirements of its extras and nothing else, and the
unit of systemd."""

import configparser
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from importlib.metadata import distribution
from pathlib import Path

import httpx
import pytest
from tests.licences import extras, packages
from tests.test_house import ROOT, copy_sources

UNIT = ROOT / "deploy" / "regard.service"


def instructions(name: str) -> list[str]:
    """The arguments of every instruction of this name in the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    return re.findall(rf"^{name} (.*)$", text, re.MULTILINE)


def environment(folder: Path, requirements: list[str]) -> dict[str, str]:
    """A virtual environment with pip, setuptools and these requirements, as links to the installed packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    installed = Path(sysconfig.get_paths()["purelib"])
    (site,) = (folder / "lib").glob("python*/site-packages")
    for name in packages(requirements, extras()) | {"pip", "setuptools"}:
        tops = {file.parts[0] for file in distribution(name).files or ()} - {"..", "__pycache__"}
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(installed / top)
    pip = folder / "bin" / "pip"
    pip.write_text(f"#!{folder}/bin/python\nimport sys\nfrom pip._internal.cli.main import main\nsys.exit(main())\n")
    pip.chmod(0o755)
    # no network, and no compiler; build isolation would download setuptools
    options = {"NO_INDEX": "1", "NO_BUILD_ISOLATION": "0", "NO_COMPILE": "1", "DISABLE_PIP_VERSION_CHECK": "1"}
    given = {f"PIP_{name}": value for name, value in options.items()}
    return {"PATH": f"{folder}/bin:{os.defpath}", "HOME": str(folder), "CC": "/bin/false", **given}


@pytest.mark.whole
@pytest.mark.skipif(sys.platform == "win32", reason="the lines are those of a POSIX shell")
def test_the_lines_of_the_dockerfile(run: Path, tmp_path: Path) -> None:
    copied, wheels = instructions("COPY")
    assert (copied, wheels) == (". source", "--from=build /app/wheels wheels")
    build, install = instructions("RUN")
    (wanted,) = re.findall(r"\[(.*)\]\"$", install)
    app = tmp_path / "app"
    copy_sources(app / "source")
    clean = environment(tmp_path / "environment", [f"regard[{wanted}]"])
    for line in (build, install):
        done = subprocess.run(["/bin/sh", "-c", line], cwd=app, env=clean, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    shutil.copytree(run, app / "runs" / "model")
    entry, command = (json.loads(instructions(name)[0]) for name in ("ENTRYPOINT", "CMD"))
    started = shutil.which(entry[0], path=clean["PATH"])
    assert started is not None
    with subprocess.Popen(
        [started, *entry[1:], *command, "--port", "0"], cwd=app, env=clean, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    ) as service:  # fmt: skip
        line = service.stdout.readline()
        assert line.startswith("runs/model is served at http://0.0.0.0:"), service.communicate()
        address = f"http://127.0.0.1:{line.split(':')[2].split(' ')[0]}"
        answer = httpx.post(f"{address}/v1/translate", json={"text": "a b c"}, timeout=60)
        assert answer.status_code == 200
        assert httpx.get(f"{address}/docs/swagger-ui.css", timeout=60).status_code == 200
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0


def test_what_docker_copies_is_what_a_wheel_needs(tmp_path: Path) -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert kept == {path.name for path in copy_sources(tmp_path / "tree").iterdir()}


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_passes_systemd(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8")
    (program,) = re.findall(r"^ExecStart=(\S+)", text, re.MULTILINE)
    assert program == "/opt/regard/bin/regard"
    # a program that exists, which verify asks for
    there = tmp_path / "regard.service"
    there.write_text(text.replace(program, "/bin/sh"))
    verified = subprocess.run(["systemd-analyze", "verify", there], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    # 10 is a service without any protection, given in tenths
    judged = ["systemd-analyze", "security", "--offline=true", "--threshold=20", UNIT]
    assert subprocess.run(judged, capture_output=True, check=False).returncode == 0


def test_the_unit_and_the_image_start_the_service() -> None:
    """Their commands are such that `regard serve` understands."""
    from regard.cli.parsing.parser import parse
    from regard.cli.verbs.serve import ServeOptions

    (unit,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    options = parse(ServeOptions, "regard serve", unit.split()[2:])
    assert options.token_file == Path("${CREDENTIALS_DIRECTORY}/token")
    image = [word for name in ("ENTRYPOINT", "CMD") for word in json.loads(instructions(name)[0])]
    assert image[:2] == ["regard", "serve"]
    assert parse(ServeOptions, "regard serve", image[2:]).host == "0.0.0.0"


def test_the_image_has_pinned_versions_and_a_health_check() -> None:
    _, install = instructions("RUN")
    assert "--constraint wheels/constraints.txt" in install
    (check,) = instructions("HEALTHCHECK")
    assert "http://127.0.0.1:8080/health/live" in json.loads(check.partition("CMD ")[2])[2]
    for image in instructions("FROM"):
        assert image.startswith("python:${PYTHON}-")
    (version,) = instructions("ARG")
    assert re.fullmatch(r"PYTHON=3\.\d+\.\d+", version)
    assert instructions("USER") == ["65534"]


def test_the_unit_limits_restarts_and_reloads() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read_string(UNIT.read_text(encoding="utf-8"))
    service = unit["Service"]
    assert (service["Type"], service["Restart"]) == ("notify", "on-failure")
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert {"MemoryMax", "TasksMax", "WatchdogSec"} <= set(service)
    assert "AF_UNIX" in service["RestrictAddressFamilies"]


def test_the_container_writes_nothing() -> None:
    yaml = pytest.importorskip("yaml")
    service = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))["services"]["regard"]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert {"mem_limit", "pids_limit"} <= set(service)
    from regard.cli.parsing.parser import parse
    from regard.cli.verbs.serve import ServeOptions

    assert parse(ServeOptions, "regard serve", service["command"]).token_file == Path("/run/secrets/token")
