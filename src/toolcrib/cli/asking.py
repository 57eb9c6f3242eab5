"""Asking a person at a terminal, one line at a time.

Above: commands that need an answer. Below: `output`. It must never take silence for a yes.
"""

import sys

import typer

from toolcrib.cli import output


def can_ask() -> bool:
    """Whether somebody is there to answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_line(question: str, default: str = "") -> str:
    """What the person types, without the white space around it; the default for an empty line."""
    output.prompt(f"{question} [{default}]:" if default else f"{question}:")
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        answer = ""
    if not answer:  # the person left
        output.note("")
        raise typer.Exit(1)
    return answer.strip() or default


def confirm(question: str) -> bool:
    """Whether the person says yes; everything else is no."""
    return ask_line(f"{question} [y/N]").lower() in ("y", "yes")
