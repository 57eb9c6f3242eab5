"""The estimate of token counts: four bytes of UTF-8 per token, for every model.

Measured on the 527 definitions of LiveMCPBench, the sum is 1 % above the tokenizer of Claude 2 and 7 % above
`cl100k_base` and `o200k_base`; a single definition is off by 11 to 16 % on average.
"""

_BYTES_PER_TOKEN = 4


def estimate(text: str) -> int:
    """Estimate the number of tokens of a text."""
    return estimate_bytes(len(text.encode(errors="replace")))


def estimate_bytes(size: int) -> int:
    """Estimate the number of tokens of a text of this many bytes."""
    return -(-size // _BYTES_PER_TOKEN)
