"""Signing in to remote servers with OAuth 2.1: once by a person, then by renewing what that gave.

`signing_in` is the part with a person, `Bearer` the one without. Above: the links, and the commands and routes that
start a sign-in. Below: `web`, `tokens`. It must never act for a server with what belongs to another one.
"""

from toolcrib.connect.oauth.bearer import Bearer
from toolcrib.connect.oauth.signin import SIGN_IN_SECONDS, SignIn, Target, signing_in

__all__ = ["SIGN_IN_SECONDS", "Bearer", "SignIn", "Target", "signing_in"]
