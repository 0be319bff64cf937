"""The URL of the repository that commands work on: an argument, ``-R``, or the environment."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from arraystore.cli.failures import EXIT_STATUSES

REPOSITORY_VARIABLE = "ARRAYSTORE_REPOSITORY"

_OPTION = ("--repository", "-R")
_LOCAL = ("/", "./", "../", "~")
_HELP = f"Repository, in place of the argument URL; {REPOSITORY_VARIABLE} does the same."


RepositoryOption = Annotated[str | None, typer.Option(*_OPTION, metavar="URL", help=_HELP)]


class RepositoryCommand(TyperCommand):
    """Command on a repository: its argument ``URL`` may be given by ``-R`` or by the environment."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        options["epilog"] = options.get("epilog") or EXIT_STATUSES
        super().__init__(*arguments, **options)
        if self._place is not None:
            self.params.append(_declared())

    @property
    def _place(self) -> int | None:
        """Place of the URL among the arguments; None for a command without one."""
        names = [each.name for each in self._arguments]
        return names.index("url") if "url" in names else None

    @property
    def _arguments(self) -> list[Any]:
        return [each for each in self.params if each.param_type_name == "argument"]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments, with the URL of the option or the environment where none is given."""
        place = self._place
        if place is None:
            return super().parse_args(ctx, args)
        rest, url = _without_option(args, self._letters)
        if url is None:
            url = (ctx.find_root().obj or {}).get("repository")
        if url is None:
            found = list(self._positional(rest))
            if place >= len(found) or not _is_url(found[place]):
                url = os.environ.get(REPOSITORY_VARIABLE) or None
        if url is not None:
            rest = [url, *rest] if place == 0 else [*rest, url]
        return super().parse_args(ctx, rest)

    @property
    def _letters(self) -> set[str]:
        """Letters of options without a value, which may be joined: ``-yR URL``."""
        names = [name for each in self.params if getattr(each, "is_flag", False) for name in each.opts]
        return {name[1] for name in names if len(name) == 2}

    def _positional(self, args: Sequence[str]) -> Iterator[str]:
        """Yield the arguments that are neither options nor values of options."""
        with_value = {name for each in self.params if not getattr(each, "is_flag", True) for name in each.opts}
        rest = iter(args)
        for arg in rest:
            if arg == "--":
                yield from rest
            elif arg in with_value:
                next(rest, None)
            elif not arg.startswith("-") or arg == "-":
                yield arg


def _declared() -> Any:
    """Return the option as the help shows it; it is taken from the arguments before they are parsed."""
    app = typer.Typer(add_completion=False)
    app.command()(_with_repository)
    option: Any = next(each for each in typer.main.get_command(app).params if each.name == "repository")
    option.expose_value = False
    return option


def _with_repository(repository: RepositoryOption = None) -> None: ...


def _without_option(args: Sequence[str], letters: Collection[str]) -> tuple[list[str], str | None]:
    """Take the option out of arguments, of which `letters` stand for options without a value."""
    rest: list[str] = []
    url: str | None = None
    given = iter(args)
    for arg in given:
        name, separator, value = arg.partition("=")
        joined = ("", "") if arg == _OPTION[0] else _joined(arg, letters)
        if arg == "--":
            rest += [arg, *given]
        elif joined is not None:
            following = joined[1] or next(given, None)
            if following is None:
                return list(args), None  # the parser says what is missing
            rest += filter(None, joined[:1])
            url = _not_empty(following)
        elif separator and name == _OPTION[0]:
            url = _not_empty(value)
        else:
            rest.append(arg)
    return rest, url


def _not_empty(url: str) -> str:
    """Refuse an empty URL, as that of a variable of the shell that is not set: it would be another repository."""
    if not url:
        raise typer.BadParameter("is empty: pass the URL of a repository", param_hint="-R")
    return url


def _joined(arg: str, letters: Collection[str]) -> tuple[str, str] | None:
    """Split ``-yRvalue`` into ``-y`` and the value, either of which may be empty; None for any other argument."""
    before, found, value = arg.partition(_OPTION[1][1])
    if not found or before[:1] != "-" or before[:2] == "--" or not set(before[1:]) <= set(letters):
        return None
    return before if len(before) > 1 else "", value


def _is_url(text: str) -> bool:
    """Tell whether an argument can be nothing but a repository: names of branches and tags have no scheme."""
    return "://" in text or text.startswith(_LOCAL)
