"""All tool sources in one immutable snapshot, with the names their tools are exposed under.

Sources implement `model.sources.ToolSource`. Must never decide who may use what.
"""
