"""Configuration of an object store client, picklable and never showing a secret."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal

from arraystore.errors import StorageError
from arraystore.storage.credentials import CredentialProvider, SecretCredentials
from arraystore.storage.secret import Secret
from arraystore.storage.settings import StorageSettings

__all__ = ["ObstoreConfig", "build_store"]


@dataclass(frozen=True, slots=True)
class ObstoreConfig:
    """Configuration of a storage on S3, Google Cloud Storage, Azure or a web server."""

    kind: Literal["s3", "gcs", "azure", "http"]
    """Provider."""
    bucket: str
    """Bucket or container; of a web server, its URL."""
    prefix: str
    """Prefix of all keys in the bucket, without leading and trailing slash; may be empty."""
    location: str
    """URL of the storage, without secrets."""
    options: tuple[tuple[str, str | bool], ...] = ()
    """Client settings that are not secret."""
    secret_options: tuple[tuple[str, Secret], ...] = ()
    """Client settings that are, or may be, secret."""
    credentials: SecretCredentials | None = None
    """Fixed credentials, or the first ones of `get_credentials`."""
    get_credentials: Callable[[], Any] | None = None
    """Callable that returns credentials."""
    headers: tuple[tuple[str, Secret], ...] = ()
    """Headers to send with every request."""
    metadata: tuple[tuple[str, Secret], ...] = ()
    """Metadata of the user to write with every object."""
    allow_http: bool = False
    """True if the endpoint may be unencrypted."""
    pickle_credentials: bool = False
    """True if pickles may contain the secrets."""
    settings: StorageSettings = field(default_factory=StorageSettings)
    """Timeouts, retries and concurrency."""

    def __reduce__(self) -> tuple[Any, ...]:
        if not self.pickle_credentials and (self.secret_options or self.headers or self.metadata or self.credentials):
            raise StorageError(
                f"pickle_credentials=True was not passed when the storage on {self.location} was created, so its "
                "credentials do not go to other processes: pass it to send them along, or create the storage with "
                "get_credentials or from_env=True, so that each process finds its own"
            )
        revealed = {
            "secret_options": [(name, secret.reveal()) for name, secret in self.secret_options],
            "headers": [(name, secret.reveal()) for name, secret in self.headers],
            "metadata": [(name, secret.reveal()) for name, secret in self.metadata],
            "credentials": None if self.credentials is None else self.credentials.reveal(),
        }
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in revealed}
        return (_with_secrets, (plain, revealed))


def _with_secrets(plain: dict[str, Any], revealed: dict[str, Any]) -> ObstoreConfig:
    credentials = revealed["credentials"]
    return replace(
        ObstoreConfig(**plain),
        secret_options=tuple((name, Secret(value)) for name, value in revealed["secret_options"]),
        headers=tuple((name, Secret(value)) for name, value in revealed["headers"]),
        metadata=tuple((name, Secret(value)) for name, value in revealed["metadata"]),
        credentials=None if credentials is None else SecretCredentials.wrap(credentials),
    )


def build_store(config: ObstoreConfig, module: Any, *, retries: bool) -> Any:
    """Build a store of the native module; raises `StorageError` if it rejects the configuration.

    With `retries` the store repeats failed requests by itself, which hides them from whoever sends.
    """
    classes = {"s3": "S3Store", "gcs": "GCSStore", "azure": "AzureStore"}
    options: dict[str, Any] = dict(config.options)
    options.update((name, secret.reveal()) for name, secret in config.secret_options)
    arguments: dict[str, Any] = {
        "config": options,
        "client_options": _client_options(config),
        "retry_config": _retry_config(config.settings, retries),
    }
    if config.get_credentials is not None or config.credentials is not None:
        credentials = config.credentials
        arguments["credential_provider"] = CredentialProvider(
            config.get_credentials, None if credentials is None else credentials.reveal()
        )
    try:
        if config.kind == "http":
            del arguments["config"]
            return module._store.HTTPStore(config.bucket, **arguments)
        return getattr(module._store, classes[config.kind])(config.bucket, **arguments)
    except Exception as error:  # noqa: BLE001 - the client's own error repeats the options, secrets included
        raise StorageError(
            f"{config.location}: the client rejects this configuration ({type(error).__name__}); check the names "
            f"and values of {sorted(options)} and of the credentials"
        ) from None


def _client_options(config: ObstoreConfig) -> dict[str, Any]:
    timeouts = config.settings.timeouts
    options: dict[str, Any] = {
        "allow_http": config.allow_http,
        "connect_timeout": timedelta(seconds=timeouts.connect),
        "timeout": timedelta(seconds=timeouts.request),
    }
    if timeouts.read is not None:
        options["read_timeout"] = timedelta(seconds=timeouts.read)
    if config.headers:
        options["default_headers"] = {name: secret.reveal() for name, secret in config.headers}
    return options


def _retry_config(settings: StorageSettings, enabled: bool) -> dict[str, Any]:
    retries = settings.retries
    return {
        "max_retries": retries.max_tries - 1 if enabled else 0,
        "retry_timeout": timedelta(seconds=retries.total),
        "backoff": {
            "init_backoff": timedelta(seconds=retries.initial_backoff),
            "max_backoff": timedelta(seconds=retries.max_backoff),
            "base": 2,
        },
    }
