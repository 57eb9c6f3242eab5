"""The bench's tools as clients see them. Imports nothing, so that a server starts without delay."""

Shape = dict[str, object]

ECHO_SCHEMA: Shape = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
DESCRIPTION = (
    "Looks up records of the given customer and returns the newest first. Use it when somebody asks for the state of "
    "an order, an invoice or a delivery; do not use it to change anything. Each entry has an id, a date and a status."
)
PARAMETERS = {
    "customer": "The customer's number as it stands on every letter.",
    "status": "Only records with this status; leave it out for all.",
    "limit": "How many records at most, the newest first.",
}


def many_schema() -> Shape:
    """Return one of the many tools as a client sees it."""
    customer, status, limit = (
        {"type": kind, "description": text}
        for kind, text in zip(("string", "string", "integer"), PARAMETERS.values(), strict=True)
    )
    properties = {"customer": customer, "status": {**status, "default": ""}, "limit": {**limit, "default": 10}}
    return {"type": "object", "properties": properties, "required": ["customer"]}
