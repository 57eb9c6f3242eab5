"""Matches the first words of shell commands in conditions, if they can be determined.

A command that a shell may split, substitute or redirect does not have "first words": `ls; rm x` begins with `ls` and
runs `rm`. Such a command never matches a prefix. Pure. Must never match a command that runs more than its first words
name.
"""

import re
import shlex
from functools import lru_cache

from toolcrib.model.json import Json, is_array

LONGEST_COMMAND = 4_096
_CONTROL = re.compile(r"[;&|<>`$(){}\n\r\0!#\\]")
"""Characters that a shell may interpret, quoted or not: quoting rules differ between shells."""
_ASSIGNMENT = re.compile(r"\w+=")


def words_of(command: Json) -> tuple[str, ...] | None:
    """Return the words of a command, or None if a shell may split it or it is not a command."""
    if is_array(command):
        words = [each for each in command if isinstance(each, str)]
        return tuple(words) if words and len(words) == len(command) and len(words) <= LONGEST_COMMAND else None
    if not isinstance(command, str) or len(command) > LONGEST_COMMAND or _CONTROL.search(command):
        return None
    return _words(command)


@lru_cache(maxsize=1024)
def _words(command: str) -> tuple[str, ...] | None:
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    return tuple(words) if words and not _ASSIGNMENT.match(words[0]) else None


def begins_with(command: Json, prefix: str) -> bool | None:
    """Return whether a command begins with the words of `prefix`, or None if that is undetermined.

    A command with all words of the prefix in other places (`sudo rm`, `/bin/rm`, `git -C x push`) is undetermined too.
    """
    wanted, words = words_of(prefix), words_of(command)
    if wanted is None or words is None:
        return None
    if words[: len(wanted)] == wanted:
        return True
    program = wanted[0].rpartition("/")[2]
    named = any(word.rpartition("/")[2] == program for word in words) and set(wanted[1:]) <= set(words)
    return None if named else False
