"""Text of ``--help``: a config's everyday keys by topic, and with ``--help.all`` the others after them."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jsonargparse

ALL = "--help.all"


class Formatter(argparse.RawDescriptionHelpFormatter, jsonargparse.DefaultHelpFormatter):
    """Leaves the lines of a job's description as they are: commands stand among them."""


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
