"""The scripted model: an Anthropic-compatible Messages API on loopback that plays scripts.

Replies are a pure function of the request. Real coding agents run against it without network, key or cost, in tests and
demos.

Must never depend on a crib.
"""
