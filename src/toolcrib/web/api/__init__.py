"""REST API under `/api`, one module or package per resource."""
