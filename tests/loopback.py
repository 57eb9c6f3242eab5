"""What HTTP clients of tests have in common: they speak to this machine, in the clear."""

import ssl
from typing import Final

PLAIN: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""As `verify` of a client that never uses TLS: by itself each one would load all authorities of the machine."""
