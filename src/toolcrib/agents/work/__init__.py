"""Background work: an agent does a task in a git worktree, on a branch of its own, while its caller continues.

`git` manages worktrees, `work` the tasks.
"""
