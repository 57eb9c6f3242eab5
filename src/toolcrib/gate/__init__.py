"""The gate: the only way to call a tool or read a resource, and the source of what each principal may see.

`view` holds the decisions for one principal, `gate` runs calls, and `approvals` obtains a person's approval where a
decision requires one.
`touched_paths` resolves the paths of a call, and `pins` checks upstream definitions before any principal sees them.
"""
