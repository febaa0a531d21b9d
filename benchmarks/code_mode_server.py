"""A small shop as an MCP server: customers, orders, products, tickets and mails, with seeded data."""

from __future__ import annotations

import random
from typing import Any, Final

from mcp.server import MCPServer

server: Final = MCPServer("shop")
_rng: Final = random.Random(5)
_CITIES: Final = ("Oslo", "Turin", "Lagos", "Quito", "Kyoto")
_STATES: Final = ("open", "paid", "shipped", "returned")
PRODUCTS: Final = {
    f"P{n:02}": {
        "sku": f"P{n:02}",
        "name": f"Part {n}",
        "price": _rng.randrange(5, 200),
        "stock": _rng.randrange(0, 40),
        "weight_kg": _rng.randrange(1, 9),
    }
    for n in range(30)
}
CUSTOMERS: Final = {
    f"C{n:02}": {
        "id": f"C{n:02}",
        "name": f"Customer {n}",
        "city": _CITIES[n % 5],
        "email": f"c{n}@example.com",
        "credit": _rng.randrange(0, 900),
        "note": "Prefers mail. " * 6,
    }
    for n in range(40)
}
ORDERS: Final[dict[str, dict[str, Any]]] = {}
for _n in range(200):
    _items = [{"sku": sku, "quantity": _rng.randrange(1, 5)} for sku in _rng.sample(sorted(PRODUCTS), 3)]
    ORDERS[f"O{_n:03}"] = {
        "id": f"O{_n:03}",
        "customer": f"C{_n % 40:02}",
        "status": _rng.choice(_STATES),
        "items": _items,
        "days_old": _rng.randrange(90),
        "address": f"{_n} Long Street, Building {_n % 7}, Floor {_n % 9}",
        "history": ["created", "checked", "packed"],
    }
TICKETS: Final = [
    {
        "id": f"T{n}",
        "customer": f"C{n % 40:02}",
        "topic": _rng.choice(["late", "broken", "wrong"]),
        "text": "It is about an order. " * 5,
    }
    for n in range(60)
]


@server.tool()
def list_customers(city: str) -> list[dict[str, Any]]:
    """List the customers in a city."""
    return [customer for customer in CUSTOMERS.values() if customer["city"] == city]


@server.tool()
def list_orders(customer: str) -> list[dict[str, Any]]:
    """List the orders of a customer with their items."""
    return [order for order in ORDERS.values() if order["customer"] == customer]


@server.tool()
def get_order(order: str) -> dict[str, Any]:
    """Get an order by its id."""
    return ORDERS[order]


@server.tool()
def get_product(sku: str) -> dict[str, Any]:
    """Get the price, stock and weight of a product."""
    return PRODUCTS[sku]


@server.tool()
def get_customer(customer: str) -> dict[str, Any]:
    """Get a customer by id."""
    return CUSTOMERS[customer]


@server.tool()
def list_tickets(topic: str) -> list[dict[str, Any]]:
    """List the support tickets about a topic: late, broken or wrong."""
    return [ticket for ticket in TICKETS if ticket["topic"] == topic]


@server.tool()
def set_order_status(order: str, status: str) -> dict[str, Any]:
    """Change the status of an order."""
    return {"order": order, "status": status}


@server.tool()
def send_mail(to: str, subject: str) -> dict[str, Any]:
    """Send a mail to a customer."""
    return {"to": to, "sent": True}


if __name__ == "__main__":
    server.run("stdio")
