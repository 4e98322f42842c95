"""Text of ``--help``: a config's everyday keys by topic, and with ``--help.all`` the others after them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import jsonargparse

ALL = "--help.all"


class Formatter(argparse.RawDescriptionHelpFormatter, jsonargparse.DefaultHelpFormatter):
    """Leaves the lines of a job's description as they are: commands stand among them."""


def show_help(kind: type, description: str, words: Sequence[str]) -> NoReturn:
    """Print the help that the options ask for, and exit.

    Args:
        kind: the config of the job.
        description: of the job.
        words: such as ``--help``, ``--help.all`` and ``--retrievers.help``.
    """
    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    usage = "%(prog)s --config FILE.yaml [--KEY VALUE ...]"
    parser = _Parser(description=description, usage=usage, formatter_class=Formatter, default_env=False)
    parser.everyday, parser.shows_all = getattr(kind, "EVERYDAY", {}), ALL in words
    parser.add_argument(ALL, action="help", help="Show all keys, not only those of every day, and exit.")
    parser.add_argument("--config", help="YAML file with any of the keys")
    parser.add_argument(
        "--print_config", action="store_true", help="Print all keys with their values, and exit."
    )
    parser.add_class_arguments(kind, fail_untyped=True)
    parser.parse_args(list(words))
    raise SystemExit(0)


class _Parser(jsonargparse.ArgumentParser):
    """A parser whose help has the everyday keys only, unless all are asked for."""

    everyday: Mapping[str, Sequence[str]] = {}
    shows_all = False

    def format_help(self, *arguments: Any) -> str:
        """Return the help."""
        groups = self._action_groups
        self._action_groups = help_groups(self, self.everyday, show_all=self.shows_all)
        try:
            return super().format_help(*arguments)
        finally:
            self._action_groups = groups


def help_groups(parser: Any, everyday: Mapping[str, Sequence[str]], *, show_all: bool) -> list[Any]:
    """Return groups of a parser's arguments in the order of its help.

    Args:
        parser: with one group for each config, after those for positional arguments and for options.
        everyday: title -> keys; without any, all keys are everyday ones.
        show_all: whether the other keys are shown too.
    """
    _positional, options, *configs = parser._action_groups
    if not everyday:
        return [options, *configs]
    actions = {action.dest: action for group in configs for action in group._group_actions}
    # some keys have a help of their own
    names = {
        title: [name for key in keys for name in (f"{key}.help", key)] for title, keys in everyday.items()
    }
    shown = [_group(parser, title, map(actions.pop, filter(actions.get, of))) for title, of in names.items()]
    if show_all:
        for group in configs:
            others = [action for action in group._group_actions if action.dest in actions]
            shown.append(_group(parser, group.title, others))
    return [options, *shown]


def _group(parser: Any, title: str, actions: Iterable[Any]) -> Any:
    group = argparse._ArgumentGroup(parser, title)
    group._group_actions = list(actions)
    return group
