"""What HTTP clients of tests have in common: they speak to this machine, in the clear."""

import ssl
from typing import Final

PLAIN: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""As `verify` of a client that never uses TLS: by itself each one would load all authorities of the machine."""

NO_KEYRING: Final = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
"""For every process under test: the extra `keyring` is installed, and no test may touch the system's own keyring."""
