"""Who may see and use what, and why.

Above: the gate asks `decide` for every listing and every call. Below: `model` alone. Nothing here does I/O, reads a
clock or raises: the answer to a question it cannot place is no.
"""
