"""Messages to systemd, which a socket of the test receives."""

import os
import socket
import sys
from pathlib import Path

import pytest
from tests.serve.conftest import Gated, running_models
from tests.serve.http.test_h11_timeouts import until

from regard.inference.limits import Limits
from regard.serve import systemd
from regard.serve.reloading import ReloadResult
from regard.serve.served_model import ServedModel

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd is of Linux")


def test_it_tells_systemd_what_it_does(gated: Gated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as at:
        at.bind(str(tmp_path / "notify"))
        at.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setenv("WATCHDOG_USEC", "1000000")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        models = [ServedModel(gated, Limits())]
        with running_models(models, reload=lambda served, tokens: ReloadResult(served, tokens)) as (_, server):
            assert at.recv(100) == b"READY=1"
            until(lambda: at.recv(100) == b"WATCHDOG=1")
            server.request_reload()
            until(lambda: at.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC="))
            until(lambda: at.recv(100) == b"READY=1")
        until(lambda: at.recv(100) == b"STOPPING=1")


def test_without_systemd_nothing_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    systemd.notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "none"))
    systemd.notify("READY=1")
    name = f"regard-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as at:
        at.bind(f"\0{name}")
        at.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        systemd.notify("READY=1")
        assert at.recv(100) == b"READY=1"


def test_the_time_of_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    for given, seconds in (("", None), ("x", None), ("0", None), ("30000000", 30.0)):
        monkeypatch.setenv("WATCHDOG_USEC", given)
        assert systemd.watchdog_seconds() == seconds
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert systemd.watchdog_seconds() is None
