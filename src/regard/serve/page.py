"""The files of a task's page: HTML, one script, one style; the same drawing that regard.view writes into files."""

import html
from importlib import resources

from regard.serve.served import Face
from regard.view.page import block


def files(face: Face) -> dict[str, tuple[bytes, str]]:
    """Path -> content and its type."""
    script = "".join(_asset("view", name) for name in ("page.js", f"{face.view}.js"))
    script = f'"use strict";\n(() => {{\n{script}{_asset("serve", f"{face.form}.js")}}})();\n'
    style = _asset("view", "page.css") + _asset("serve", "serve.css")
    written = _asset("serve", "page.html").format(title=html.escape(face.title), data=block(face.data))
    return {
        "/": (written.encode(), "text/html; charset=utf-8"),
        "/page.js": (script.encode(), "text/javascript; charset=utf-8"),
        "/page.css": (style.encode(), "text/css; charset=utf-8"),
    }


def _asset(room: str, name: str) -> str:
    return resources.files(f"regard.{room}").joinpath(name).read_text(encoding="utf-8")
