"""Storage of an Icechunk repository from a URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from arraystore._runtime.extras import how_to_install
from arraystore.errors import InvalidInputError

if TYPE_CHECKING:
    import icechunk

_STRINGS = {"region", "endpoint_url"}
_FLAGS = {"allow_http", "anonymous", "force_path_style"}


def icechunk_storage(url: str) -> icechunk.Storage:
    """Create the icechunk storage of a URL or path; raises `InvalidInputError` for an invalid URL.

    URLs are ``s3://bucket/prefix``, ``gs://bucket/prefix`` and ``az://account/container/prefix``; those of S3 may set
    ``region``, ``endpoint_url``, ``allow_http``, ``anonymous`` and ``force_path_style`` in the query.  Credentials come
    from the environment.
    """
    try:
        import icechunk
    except ImportError as error:
        raise InvalidInputError(how_to_install("import-icechunk", "icechunk", "icechunk")) from error
    if "://" not in url:
        return icechunk.local_filesystem_storage(url)
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise InvalidInputError("the URL contains credentials: URLs end up in logs, so set them in the environment")
    options, path = _options(parts.query), unquote(parts.path).strip("/")
    if parts.scheme == "file":
        return icechunk.local_filesystem_storage(unquote(parts.path))
    if parts.scheme == "s3":
        options.setdefault("from_env", not options.get("anonymous"))
        return icechunk.s3_storage(bucket=parts.netloc, prefix=path, **options)
    if options:
        raise InvalidInputError(f"a {parts.scheme} URL takes no options: remove {sorted(options)}")
    if parts.scheme in ("gs", "gcs"):
        return icechunk.gcs_storage(bucket=parts.netloc, prefix=path, from_env=True)
    if parts.scheme in ("az", "azure"):
        container, _, prefix = path.partition("/")
        return icechunk.azure_storage(account=parts.netloc, container=container, prefix=prefix, from_env=True)
    raise InvalidInputError(
        f"{parts.scheme}:// is not a valid location of an Icechunk repository: use s3, gs, az or a path"
    )


def _options(query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _STRINGS | _FLAGS:
            raise InvalidInputError(f"the query of the URL sets {name!r}, and may only set {sorted(_STRINGS | _FLAGS)}")
        options[name] = value if name in _STRINGS else value.lower() in ("true", "1", "yes", "")
    return options
