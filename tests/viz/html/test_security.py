"""The name in a Host header, and whether it is this machine."""

from tests.for_each import for_each

from regard.viz.html.security import host_name, names_this_machine


@for_each(
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


@for_each(
    ("header", "is_own"),
    [
        ("localhost:80", True),
        ("[::1]:80", True),
        ("10.1.2.3:80", True),
        ("Box.example:80", True),
        ("evil.example", False),
        ("10.1.2.3.evil.example", False),
        ("", False),
    ],
)
def test_names_of_this_machine(header: str, is_own: bool) -> None:
    assert names_this_machine(header, "box.Example") == is_own
