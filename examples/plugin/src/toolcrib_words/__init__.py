"""Counts words: an example of a Toolcrib plugin. The module `tools` has its tools, the manifest its capabilities."""
