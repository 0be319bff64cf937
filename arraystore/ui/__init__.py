"""A page to look at a repository: history, hierarchy, chunk maps, previews, differences and storage.

``arraystore ui URL`` serves it on this machine; `export_report` writes the same views into one file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arraystore._runtime import lazy_names

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "arraystore.ui.conflict_link": "conflict_link",
            "arraystore.ui.export": "ExportedReport export_report",
            "arraystore.ui.server.run": "serve",
        },
    )
else:  # the reference pages take what stands under a plain TYPE_CHECKING for no part of the module
    from arraystore.ui.conflict_link import conflict_link
    from arraystore.ui.export import ExportedReport, export_report
    from arraystore.ui.server.run import serve

__all__ = ["ExportedReport", "conflict_link", "export_report", "serve"]
