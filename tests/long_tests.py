"""What takes too long for every run: `make test-all` does it too, `make test` says that it was left out."""

import os

import pytest

takes_long = pytest.mark.skipif(not os.environ.get("TOOLCRIB_TEST_ALL"), reason="takes long: make test-all")
