"""Python tools for the orders and payments of the ticket shop. The demo copies this file to `tools/`."""

import json
from pathlib import Path
from typing import Annotated, Any

from toolcrib import Inject, InvalidRequest, tool

FILE = Path(__file__).parents[2] / "kestrel" / "data" / "orders.json"


class Orders:
    """The order database, injected so that tests can replace it."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> list[dict[str, Any]]:
        """Return all orders with their payments."""
        return json.loads(self._file.read_text(encoding="utf-8"))

    def write(self, orders: list[dict[str, Any]]) -> None:
        """Store all orders."""
        self._file.write_text(json.dumps(orders, indent=2, ensure_ascii=False), encoding="utf-8")


def open_orders() -> Orders:
    """Return the orders, opened once for all calls."""
    return Orders(FILE)


providers = {Orders: open_orders}


@tool(read_only=True)
def find_orders(
    passenger: Annotated[str, "A name, or a part of one."], *, orders: Annotated[Orders, Inject]
) -> list[dict[str, Any]]:
    """Find orders by who travels. Use it before you say anything about an order. Gives the newest first."""
    wanted = passenger.lower()
    found = [order for order in orders.read() if wanted in str(order["passenger"]).lower()]
    return [{key: value for key, value in order.items() if key != "payments"} for order in reversed(found)]


@tool(read_only=True)
def list_payments(
    order: Annotated[str, "Its number, such as K-2291."], *, orders: Annotated[Orders, Inject]
) -> list[dict[str, Any]]:
    """List what was paid for an order, in the order it came in."""
    for each in orders.read():
        if each["order"] == order:
            return list(each["payments"])
    raise InvalidRequest("request.invalid", f"Order {order} does not exist.", "Find it by the passenger's name.")


@tool(destructive=True)
def refund(
    payment: Annotated[str, "Its number, such as P-7731."],
    amount: Annotated[float, "In euros, at most what was paid."],
    reason: Annotated[str, "What the customer reads on the statement."],
    *,
    orders: Annotated[Orders, Inject],
) -> str:
    """Give a payment back to the card it came from. Money leaves the account at once."""
    kept = orders.read()
    for each in (each for order in kept for each in order["payments"]):
        if each["payment"] == payment:
            if each["state"] == "refunded" or not 0 < amount <= each["amount"]:
                raise InvalidRequest("request.invalid", f"{payment} cannot be refunded with {amount:.2f} €.")
            each |= {"state": "refunded", "refund": amount, "reason": reason}
            orders.write(kept)
            return f"{payment}: {amount:.2f} € go back to the card ending in {each['card']}."
    raise InvalidRequest("request.invalid", f"Payment {payment} does not exist.", "List the payments of the order.")
