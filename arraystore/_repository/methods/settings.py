"""Methods of `Repository` for what it keeps about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arraystore._context.config import RepositoryConfig
from arraystore._repository.base import RepositoryBase
from arraystore._runtime import lazy_module, run
from arraystore.storage.protocol import Storage

if TYPE_CHECKING:
    from arraystore._log.status import FeatureFlag, RepoStatus
    from arraystore._repository import settings
else:
    settings = lazy_module("arraystore._repository.settings")


class SettingMethods(RepositoryBase):
    """Reading and changing settings."""

    # -- configuration --------------------------------------------------------------------------------------

    @staticmethod
    def fetch_config(storage: Storage) -> RepositoryConfig | None:
        """Return the configuration that a repository keeps; None if there is no repository."""
        return run(settings.fetch_config(storage))

    @staticmethod
    async def fetch_config_async(storage: Storage) -> RepositoryConfig | None:
        """Asynchronous twin of `fetch_config`."""
        return await settings.fetch_config(storage)

    def save_config(self, config: RepositoryConfig | None = None) -> None:
        """Save a configuration in the repository, for everyone who opens it from now on.

        Parameters
        ----------
        config
            The configuration; by default the one that this object was opened with.
        """
        run(self.save_config_async(config))

    async def save_config_async(self, config: RepositoryConfig | None = None) -> None:
        """Asynchronous twin of `save_config`."""
        await settings.save_config(self._context, self.config if config is None else config)

    # -- metadata -------------------------------------------------------------------------------------------

    def get_metadata(self) -> dict[str, Any]:
        """Return the metadata of the repository: JSON values by name."""
        return run(self.get_metadata_async())

    async def get_metadata_async(self) -> dict[str, Any]:
        """Asynchronous twin of `get_metadata`."""
        return await settings.get_metadata(self._context)

    @property
    def metadata(self) -> dict[str, Any]:
        """Metadata of the repository."""
        return self.get_metadata()

    def set_metadata(self, metadata: dict[str, Any]) -> None:
        """Replace the metadata of the repository.

        Raises
        ------
        InvalidInputError
            If it cannot be stored.
        ReadOnlyError
            If the repository is read-only.
        """
        run(self.set_metadata_async(metadata))

    async def set_metadata_async(self, metadata: dict[str, Any]) -> None:
        """Asynchronous twin of `set_metadata`."""
        await settings.set_metadata(self._context, metadata)

    def update_metadata(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Set some of the metadata of the repository, and return all of it."""
        return run(self.update_metadata_async(metadata))

    async def update_metadata_async(self, metadata: dict[str, Any]) -> dict[str, Any]:
        """Asynchronous twin of `update_metadata`."""
        return await settings.update_metadata(self._context, metadata)

    # -- retention ------------------------------------------------------------------------------------------

    def get_retention(self) -> str | None:
        """Return the retention policy that `maintain` expires snapshots by; None if there is none."""
        return run(self.get_retention_async())

    async def get_retention_async(self) -> str | None:
        """Asynchronous twin of `get_retention`."""
        return await settings.get_retention(self._context)

    def set_retention(self, policy: str | None) -> None:
        """Save a retention policy in the repository.

        Parameters
        ----------
        policy
            ``"all for 2 days, daily for 30 days, weekly for a year"``, for instance; None for none.

        Raises
        ------
        InvalidInputError
            If it is not a valid policy.
        """
        run(self.set_retention_async(policy))

    async def set_retention_async(self, policy: str | None) -> None:
        """Asynchronous twin of `set_retention`."""
        await settings.set_retention(self._context, policy)

    # -- status ---------------------------------------------------------------------------------------------

    def get_status(self) -> RepoStatus:
        """Return whether the repository may be changed."""
        return run(self.get_status_async())

    async def get_status_async(self) -> RepoStatus:
        """Asynchronous twin of `get_status`."""
        return await settings.get_status(self._context)

    @property
    def status(self) -> RepoStatus:
        """Tell whether the repository may be changed."""
        return self.get_status()

    def set_status(self, status: RepoStatus) -> None:
        """Make the repository read-only, or writable again.

        Read-only applies to every commit from the time that this returns, those of sessions that are open included.

        Parameters
        ----------
        status
            Its availability, and the reason to give in errors.
        """
        run(self.set_status_async(status))

    async def set_status_async(self, status: RepoStatus) -> None:
        """Asynchronous twin of `set_status`."""
        await settings.set_status(self._context, status)

    # -- flags ----------------------------------------------------------------------------------------------

    def feature_flags(self) -> list[FeatureFlag]:
        """Return the operations that can be switched off, and whether they are."""
        return run(self.feature_flags_async())

    async def feature_flags_async(self) -> list[FeatureFlag]:
        """Asynchronous twin of `feature_flags`."""
        return await settings.feature_flags(self._context)

    def enabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the operations that are allowed."""
        return [flag for flag in self.feature_flags() if flag.enabled]

    def disabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the operations that are switched off."""
        return [flag for flag in self.feature_flags() if not flag.enabled]

    def set_feature_flag(self, name: str, setting: bool | None) -> None:
        """Allow an operation, switch it off, or leave it at its default.

        Parameters
        ----------
        name
            Of the operation: one of those that `feature_flags` lists.
        setting
            Whether it is allowed; None for the default.
        """
        run(self.set_feature_flag_async(name, setting))

    async def set_feature_flag_async(self, name: str, setting: bool | None) -> None:
        """Asynchronous twin of `set_feature_flag`."""
        await settings.set_feature_flag(self._context, name, setting)
