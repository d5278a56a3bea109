"""One HTML file that needs nothing else: no network, no other file, no font, no library.

The style is page.css beside this file, the script page.js and that of the view, such as alignments.js. They are allowed
by their hashes in the page's Content-Security-Policy, which forbids everything else; so what stands in the data can
never run. The data is JSON in a block that the browser does not execute.
"""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources

# < could end the block, the others are written alike so that no reader has to wonder
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def block(data: object) -> str:
    """The data as JSON that may stand inside a script element: ASCII alone, without a < in it."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


def asset(name: str) -> str:
    """A script or style of this package, by its path, such as "html/page.css"."""
    return resources.files("regard.viz").joinpath(name).read_text(encoding="utf-8")


def allowed(text: str) -> str:
    """The text as the policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def policy(script: str, style: str, *sources: str) -> str:
    """All that a page may reach: these scripts and styles, what `sources` allow, and nothing else."""
    told = ("default-src 'none'", f"script-src {script}", f"style-src {style}", *sources)
    return "; ".join((*told, "base-uri 'none'", "form-action 'none'"))


def document(title: str, view: str, data: object, words: str) -> str:
    """The page: `data` is what the script named `view` draws, `words` the same as text for a reader without scripts."""
    return sheet(title, asset("html/page.css"), joined("html/page", view), data, f"<pre>{html.escape(words)}</pre>")


def joined(*scripts: str) -> str:
    """Scripts by name as one, whose names nobody else sees."""
    return '"use strict";\n(() => {\n' + "\n".join(asset(f"{name}.js") for name in scripts) + "})();\n"


def sheet(
    title: str,
    style: str,
    script: str,
    data: object,
    words: str,
    *,
    main: str = "",
    sources: Sequence[str] = ("img-src data:",),
    held: str = "",
) -> str:
    """The file: what the script draws into, and all that it may reach, which is what `sources` allow and nothing else.

    `words` is markup for a reader without scripts, `main` are attributes of the element that is drawn into, and `held`
    is markup behind the script.
    """
    reach = policy(allowed(script), allowed(style), *sources)
    # A hash is over the text between the tags to the last line feed: nothing may be added around it.
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{reach}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<main id="page"{main}></main>
<noscript>{words}</noscript>
<script type="application/json" id="data">{block(data)}</script>
<script>{script}</script>
{held}</body>
</html>
"""
