"""Counts words: an example of a Toolcrib plugin. Its tools are in `tools`, what it asks for in the manifest."""
