"""`/api/resume-all`: resumes after `/api/stop-all`."""

from toolcrib.web.api.status import resume_routes as routes

__all__ = ["routes"]
