"""One HTML file that needs nothing else: no network, no other file, no font, no library.

Its style is page.css and its script is page.js with the script of the view, such as html/alignment.js. The page's
Content-Security-Policy allows them by their hashes and forbids everything else, so that the data can never run. The
data is JSON in a block that the browser does not execute.
"""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources

# "<" could end the block; the others are escaped for uniformity
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def json_block(data: object) -> str:
    """The data as JSON that may stand inside a script element: ASCII without "<"."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def asset(name: str) -> str:
    """A script or style of this package, by its path, such as "html/page.css"."""
    return resources.files("regard.viz").joinpath(name).read_text(encoding="utf-8")


def csp_hash(text: str) -> str:
    """The source expression by which a Content-Security-Policy allows a script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def content_security_policy(script: str, style: str, *sources: str) -> str:
    """A policy that allows these scripts and styles and the given `sources`, and nothing else."""
    directives = ("default-src 'none'", f"script-src {script}", f"style-src {style}", *sources)
    return "; ".join((*directives, "base-uri 'none'", "form-action 'none'"))


def join_scripts(*names: str) -> str:
    """Scripts by name, joined into one function scope."""
    return '"use strict";\n(() => {\n' + "\n".join(asset(f"{name}.js") for name in names) + "})();\n"


def view_document(title: str, view: str, data: object, text: str) -> str:
    """A page whose `data` the script `view` draws, with `text` for readers without scripts."""
    script = join_scripts("html/page", view)
    return document(title, asset("html/page.css"), script, data, f"<pre>{html.escape(text)}</pre>")


def document(
    title: str,
    style: str,
    script: str,
    data: object,
    noscript: str,
    *,
    attributes: str = "",
    sources: Sequence[str] = ("img-src data:",),
    body_end: str = "",
) -> str:
    """The HTML file: the script draws `data` into the main element, and its policy allows `sources` and nothing else.

    `noscript` is markup for readers without scripts, `attributes` are those of the main element, and `body_end` is
    markup after the script.
    """
    policy = content_security_policy(csp_hash(script), csp_hash(style), *sources)
    # The hash covers the text between the tags to the last line feed: nothing may be added around it.
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main id="page"{attributes}></main>
<noscript>{noscript}</noscript>
<script type="application/json" id="data">{json_block(data)}</script>
<script>{script}</script>
{body_end}</body>
</html>
"""
