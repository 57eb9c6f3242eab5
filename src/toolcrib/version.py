"""The version of Toolcrib, in one place: read by the build, the CLI and the endpoint."""

__version__ = "0.1.0"
