"""The command line.

`main` has the tree of commands, one module each has a group of them, `crib` finds or becomes the crib they talk to, and
`output` is the only one that prints. What a command needs it imports when it runs, so that `--help` is quick.
"""
