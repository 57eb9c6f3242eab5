"""Ranked search over tools: words and synonyms, the index of a server's tools, and searching a principal's tools."""
