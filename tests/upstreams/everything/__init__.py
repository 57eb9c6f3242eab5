"""The SDK's server that has everything the conformance suite asks for: `python -m upstreams.everything stdio|http`."""
