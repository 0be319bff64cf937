"""The page as one file: its modules in one script, in the order in which they import each other."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from graphlib import TopologicalSorter
from typing import Any

from arraystore.ui.assets import page_assets

__all__ = ["bundled_page", "bundled_script", "json_in_markup"]

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([a-z]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async function|function|const|class) (\w+))", re.MULTILINE)
_ENTRY = "app.js"


def bundled_script() -> str:
    """Return all modules as one script, each a function that returns what it exports."""
    sources = {name: asset.data.decode() for name, asset in page_assets().items() if name.endswith(".js")}
    imports = {name: {found[2] for found in _IMPORT.finditer(text)} for name, text in sources.items()}
    order = [name for name in TopologicalSorter(imports).static_order() if name in sources]
    parts = [f"  modules[{json.dumps(name)}] = (() => {{\n{_as_function(sources[name])}\n  }})();" for name in order]
    return '(() => {\n  "use strict";\n  const modules = {};\n' + "\n".join(parts) + "\n})();\n"


def _as_function(text: str) -> str:
    names = [found[1] for found in _EXPORT.finditer(text)]
    body = _IMPORT.sub(lambda found: f"const {{{found[1]}}} = modules[{json.dumps(found[2])}];\n", text)
    return f"{_EXPORT.sub('', body)}return {{ {', '.join(names)} }};"


def bundled_page(report: dict[str, Any], title: str) -> str:
    """Return the page with views in it, which needs no server and sends no request."""
    assets = page_assets()
    script, style = bundled_script(), assets["app.css"].data.decode()
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; base-uri 'none'"
    icon = base64.b64encode(assets["icon.svg"].data).decode()
    head = "\n".join(
        [
            f'<meta http-equiv="Content-Security-Policy" content="{policy}; form-action \'none\'">',
            f"<title>{_escaped(title)}</title>",
            f'<link rel="icon" href="data:image/svg+xml;base64,{icon}" type="image/svg+xml">',
            f"<style>{style}</style>",
        ]
    )
    page = assets["index.html"].data.decode()
    start, end = page.index("<title>"), page.index("</head>")
    scripts = (
        f'<script type="application/json" id="report">{json_in_markup(report)}</script>\n<script>{script}</script>\n'
    )
    body = page[end:].replace("</body>", f"{scripts}</body>")
    return f"{page[:start]}{head}\n{body}"


def json_in_markup(value: dict[str, Any]) -> str:
    """Return JSON that no text in it can end early."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
