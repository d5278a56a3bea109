"""Messages to systemd: a datagram to the socket that it names for a service of Type=notify (sd_notify(3))."""

import os
import socket
import time
from contextlib import suppress


def notify(state: str) -> None:
    """Sends a state such as "READY=1"; nothing is sent without systemd, and no failure stops a service."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address or not hasattr(socket, "AF_UNIX"):
        return
    if state == "RELOADING=1":
        state += f"\nMONOTONIC_USEC={time.monotonic_ns() // 1000}"
    if address.startswith("@"):  # a name without a file
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.settimeout(1.0)
        datagrams.sendto(state.encode(), address)


def watchdog_seconds() -> float | None:
    """The time within which systemd expects a sign of life (WatchdogSec=); None if it expects none of this process."""
    microseconds, process = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", str(os.getpid()))
    if not microseconds.isdecimal() or not int(microseconds) or process != str(os.getpid()):
        return None
    return int(microseconds) / 1e6
