"""Installed plugins: discovery, manifests, and loading of granted packages.

`manifest` and `discover` inspect an installed package without running its code; `packages` loads it once granted.
"""
