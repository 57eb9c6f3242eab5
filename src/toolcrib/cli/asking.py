"""Line-based prompts at a terminal.

Must never treat a missing answer as yes.
"""

import sys

import typer

from toolcrib.cli import output


def can_ask() -> bool:
    """Return whether stdin and stderr are a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_line(question: str, default: str = "") -> str:
    """Return the typed line, stripped; the default if it is empty."""
    output.prompt(f"{question} [{default}]:" if default else f"{question}:")
    try:
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        output.note("")
        raise
    if not answer:  # end of input
        output.note("")
        raise typer.Exit(1)
    return answer.strip() or default


def confirm(question: str) -> bool:
    """Return whether the answer is yes; anything else is no."""
    return ask_line(f"{question} [y/N]").lower() in ("y", "yes")
