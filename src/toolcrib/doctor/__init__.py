"""Diagnoses this machine. Each finding carries its evidence and its fix.

A check is a function of `Surroundings` that yields findings. `CHECKS` lists the checks that need no crib, `ASKED` those
that query one. A finding that can be repaired safely carries its repair; the caller decides whether to run it.

Must never raise for a problem it finds, and never change what it inspects.
"""
