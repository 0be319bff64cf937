"""MkDocs hook: list every page of docs/decisions in the navigation, so that adding a decision is adding a file."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Append a section Decisions to the section `Explanation`."""
    docs = Path(config.docs_dir)
    pages = [page.relative_to(docs).as_posix() for page in sorted((docs / "decisions").glob("*.md"))]
    section = next(entry["Explanation"] for entry in config.nav or [] if "Explanation" in entry)
    if pages:
        section.append({"Decisions": pages})
    return config
