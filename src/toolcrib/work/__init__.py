"""Work in the background: an agent does a task in a git worktree, on a branch of its own, while its giver goes on.

`git` makes worktrees, `work` has the tasks. Above: `host`, the crew tools. Below: the sessions, the store.
"""

from toolcrib.work.git import Git
from toolcrib.work.work import NewTask, Work

__all__ = ["Git", "NewTask", "Work"]
