"""The version of Toolcrib, used by the build, the CLI and the endpoint."""

__version__ = "0.1.0"
