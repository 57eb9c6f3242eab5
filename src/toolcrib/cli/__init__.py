"""The command line.

`main` defines the command tree and each group has its own module. `crib` finds the running crib or starts one; only
`output` prints. Commands import lazily, so that `--help` is fast.
"""
