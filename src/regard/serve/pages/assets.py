"""The files of the pages: that of a task, with the same drawing that regard.viz writes into files; the index of
models; and the documentation of the API, drawn by Swagger UI."""

import html
from collections.abc import Mapping
from importlib import resources

import fastapi_swagger

from regard.inference.endpoint import PageSpec
from regard.viz.html.page import asset, json_block

_HTML, _SCRIPT, _STYLE = "text/html; charset=utf-8", "text/javascript; charset=utf-8", "text/css; charset=utf-8"

# scripts before that of the form, which calls their functions
_SHARED_FORMS = ("form", "answer_cards", "history", "file_answers")


def files(page: PageSpec, *, is_listed: bool = False) -> dict[str, tuple[bytes, str]]:
    """The page of a task, with a link to the index of models if that lists it: path -> content and its type."""
    script = "".join(asset(name) for name in ("html/page.js", f"{page.view}.js"))
    script += "".join(_asset(f"{name}.js") for name in (*_SHARED_FORMS, page.form))
    script = f'"use strict";\n(() => {{\n{script}}})();\n'
    back = '<nav><a href="../">All models</a></nav>' if is_listed else ""
    written = _asset("page.html").format(title=html.escape(page.title), back=back, data=json_block(page.data))
    return {"/": (written.encode(), _HTML), "/page.js": (script.encode(), _SCRIPT), "/page.css": (_style(), _STYLE)}


def index_files(titles: Mapping[str, str]) -> dict[str, tuple[bytes, str]]:
    """The index of models: name -> title of its page."""
    items = [f'<li><a href="{name}/">{name}</a> {html.escape(title)}</li>' for name, title in titles.items()]
    written = _asset("index.html").format(items="\n".join(items))
    return {"/": (written.encode(), _HTML), "/page.css": (_style(), _STYLE)}


def documentation_files(title: str) -> dict[str, tuple[bytes, str]]:
    """The documentation of the API; fastapi_swagger holds the files of Swagger UI."""
    swagger = resources.files(fastapi_swagger).joinpath("resources")
    return {
        "/docs": (_asset("documentation.html").format(title=html.escape(title)).encode(), _HTML),
        "/docs/documentation.css": (_asset("documentation.css").encode(), _STYLE),
        "/docs/documentation.js": (_asset("documentation.js").encode(), _SCRIPT),
        "/docs/swagger-ui-bundle.js": (swagger.joinpath("swagger-ui-bundle.js").read_bytes(), _SCRIPT),
        "/docs/swagger-ui.css": (swagger.joinpath("swagger-ui.css").read_bytes(), _STYLE),
    }


def _style() -> bytes:
    return (asset("html/page.css") + _asset("serve.css")).encode()


def _asset(name: str) -> str:
    return resources.files("regard.serve.pages").joinpath(name).read_text(encoding="utf-8")
