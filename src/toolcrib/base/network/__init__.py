"""The network: which addresses may be contacted, how connections are opened, and the shared HTTP client."""
