"""GitHub, or a GitHub Enterprise server: what agents may do there with the owner's token.

`api` speaks to it, `failures` says what an answer other than success means, `names` judges what agents write, `desk`
has what can be done. Above: built-in tools. Below: `model`, `errors`; the HTTP client is given, and judges every
address before it dials. Nothing here ever sends the token to another host.
"""

from toolcrib.github.api import Api
from toolcrib.github.desk import GitHub, Opening, ReviewEvent, State

__all__ = ["Api", "GitHub", "Opening", "ReviewEvent", "State"]
