"""The files of a task's page: HTML, one script, one style; the same drawing that regard.viz writes into files."""

import html
from importlib import resources

from regard.inference.endpoint import PageSpec
from regard.viz.html.page import asset, json_block


def files(page: PageSpec) -> dict[str, tuple[bytes, str]]:
    """Path -> content and its type."""
    script = "".join(asset(name) for name in ("html/page.js", f"{page.view}.js"))
    script += "".join(_asset(f"{name}.js") for name in ("form", page.form))
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    style = asset("html/page.css") + _asset("serve.css")
    written = _asset("page.html").format(title=html.escape(page.title), data=json_block(page.data))
    return {
        "/": (written.encode(), "text/html; charset=utf-8"),
        "/page.js": (script.encode(), "text/javascript; charset=utf-8"),
        "/page.css": (style.encode(), "text/css; charset=utf-8"),
    }


def _asset(name: str) -> str:
    return resources.files("regard.serve.pages").joinpath(name).read_text(encoding="utf-8")
