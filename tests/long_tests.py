"""The mark of slow tests: `make test-all` runs them, `make test` skips them visibly."""

import os

import pytest

takes_long = pytest.mark.skipif(not os.environ.get("TOOLCRIB_TEST_ALL"), reason="takes long: make test-all")
