"""Settings for HTTP clients in tests, which reach this machine without TLS."""

import ssl
from typing import Final

PLAIN: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""`verify` for clients without TLS. By default, every client loads all certificate authorities of the machine."""

NO_KEYRING: Final = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
"""Variables for all tested processes: the extra `keyring` is installed, but tests must not touch the system's."""
