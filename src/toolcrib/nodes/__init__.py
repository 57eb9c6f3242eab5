"""Nodes: several cribs that share one PostgreSQL database and behave as one crib.

`membership` is the list of the nodes and this node's lease. A crib on SQLite is the only node of its database.

Invariant: a node whose lease has ended must not act for the cluster.
"""
