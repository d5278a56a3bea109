"""The name in a Host header."""

import pytest

from regard.viz.html.security import host_name


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost", "localhost"),
        ("LOCALHOST:8080", "localhost"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]:80", "::1"),
        ("[::1]", "::1"),
        ("evil.example:80", "evil.example"),
        ("", ""),
        ("[evil]", ""),
    ],
)
def test_the_name_without_its_port(header: str, name: str) -> None:
    assert host_name(header) == name
