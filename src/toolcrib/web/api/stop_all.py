"""`/api/stop-all`: stops everything immediately."""

from toolcrib.web.api.status import stop_routes as routes

__all__ = ["routes"]
