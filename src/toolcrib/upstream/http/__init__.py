"""HTTP transports to upstreams: Streamable HTTP in both eras, and the older HTTP+SSE transport."""
