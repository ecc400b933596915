"""Command lines as ordered flags: laying the user's over ours, so that no flag is given twice and the user's wins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_FLAG = re.compile(r"^--?[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag with its values, as written. `key` is its name without dashes; empty for positional arguments."""

    key: str
    tokens: tuple[str, ...]

    @property
    def value(self) -> str:
        """The single value, whether written `--flag=value` or `--flag value`; empty for a bare flag."""
        _, equals, inline = self.tokens[0].partition("=")
        return inline if equals and self.key else " ".join(self.tokens[1:] if self.key else self.tokens)


def parse_flags(arguments: Iterable[str], aliases: Mapping[str, str] | None = None) -> list[Flag]:
    """Split a command line into flags. `--a_b`, `--a-b=1`, `--no-a-b` and an alias of it have the same key.

    A token that begins with a dash and a letter starts a flag; what follows up to the next belongs to it. Tokens before the first
    flag are positional.
    """
    result: list[Flag] = []
    for token in arguments:
        if _FLAG.match(token):
            result.append(Flag(_key(token, aliases or {}), (token,)))
        elif result and result[-1].key:
            result[-1] = Flag(result[-1].key, (*result[-1].tokens, token))
        else:
            result.append(Flag("", (token,)))
    return result


def overlay(base: Sequence[Flag], *layers: Sequence[Flag]) -> list[Flag]:
    """The flags of all layers in order, where a later layer replaces every flag of the same key. Inside a layer repeats stay."""
    result: list[Flag] = []
    stack = (base, *layers)
    for index, layer in enumerate(stack):
        replaced = {flag.key for later in stack[index + 1 :] for flag in later if flag.key}
        result += [flag for flag in layer if flag.key not in replaced]
    return result


def tokens(flags: Iterable[Flag]) -> list[str]:
    """The command line of the flags."""
    return [token for flag in flags for token in flag.tokens]


def _key(token: str, aliases: Mapping[str, str]) -> str:
    name = token.partition("=")[0].lstrip("-").replace("_", "-").partition(".")[0]
    name = aliases.get(name, name)
    return name.removeprefix("no-")
