"""Transcripts that Claude Code keeps of its sessions: `<config dir>/projects/<directory>/<session id>.jsonl`.

Read only. The directory's name is the working directory with every character but letters and digits written as `-`.
"""

import re
from pathlib import Path

_NOT_ALPHANUMERIC = re.compile(r"[^A-Za-z0-9]")


def transcript_folder(config_dir: Path, cwd: str) -> Path:
    """Where the agent keeps the sessions of a working directory."""
    return config_dir / "projects" / _NOT_ALPHANUMERIC.sub("-", cwd)


def count_transcripts(config_dir: Path, cwd: str) -> int:
    """How many sessions of this working directory the agent has kept; none if it never ran there."""
    return sum(1 for _ in transcript_folder(config_dir, cwd).glob("*.jsonl"))
