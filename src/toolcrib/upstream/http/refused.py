"""The rejection of a request by HTTP status, for those that do not speak HTTP themselves."""

from toolcrib.base.processes.process import ServerFailed


class HttpRefused(ServerFailed):
    """A rejection by HTTP status. `retry_after` is the delay in seconds that the server requests."""

    def __init__(self, brief: str, http_status: int, retry_after: float | None) -> None:
        super().__init__("server.http_status", brief, None, ())
        self.http_status = http_status
        self.retry_after = retry_after
