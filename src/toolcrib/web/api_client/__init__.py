"""The Python client of the REST API, used by the CLI and by tests."""
