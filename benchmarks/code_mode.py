"""Ten tasks of several steps, by single calls and by code: turns of the model and tokens.

    python -m benchmarks.code_mode

A scripted model works through each task against a running gateway in front of a real server
(`benchmarks/code_mode_server.py`). By calls, it searches, makes one call per turn (or all independent calls of a step in
one turn) and answers. By code, it searches, runs one script and answers. Both must find the same answer. The tokens of a
turn are those of the tool list, of all messages so far, and of the reply.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import anyio
from mcp import Client

from toolcrib.code.sandbox import parse_text_result
from toolcrib.config.server_settings import ServerConfig
from toolcrib.config.settings import CodeModeConfig, GatewayConfig, ToolSearchConfig
from toolcrib.core.stubs import unwrap_result
from toolcrib.core.token_count import estimate_tokens
from toolcrib.gateway.mcp.gateway import run_gateway
from toolcrib.hub.hub import Hub
from toolcrib.storage import open_store

Call = tuple[str, dict[str, Any]]
# A step is a list of independent calls; the generator gets their results and returns the answer.
Steps = Generator[list[Call], list[Any], Any]


@dataclass(frozen=True)
class Task:
    """A task, the queries for its tools, the model's calls, and its script."""

    text: str
    query: str
    steps: Callable[[], Steps]
    code: str


def revenue_of_city() -> Steps:
    (customers,) = yield [("list_customers", {"city": "Oslo"})]
    lists = yield [("list_orders", {"customer": one["id"]}) for one in customers]
    skus = sorted(
        {item["sku"] for orders in lists for order in orders if order["status"] == "paid" for item in order["items"]}
    )
    products = yield [("get_product", {"sku": sku}) for sku in skus]
    prices = {one["sku"]: one["price"] for one in products}
    return sum(
        prices[item["sku"]] * item["quantity"]
        for orders in lists
        for order in orders
        if order["status"] == "paid"
        for item in order["items"]
    )


REVENUE: Final = """
total, prices = 0, {}
for customer in await tools.shop.list_customers(city="Oslo"):
    for order in await tools.shop.list_orders(customer=customer["id"]):
        if order["status"] == "paid":
            for item in order["items"]:
                sku = item["sku"]
                if sku not in prices:
                    prices[sku] = (await tools.shop.get_product(sku=sku))["price"]
                total += prices[sku] * item["quantity"]
total
"""


def close_old_orders() -> Steps:
    (customers,) = yield [("list_customers", {"city": "Turin"})]
    lists = yield [("list_orders", {"customer": one["id"]}) for one in customers]
    old = [order["id"] for orders in lists for order in orders if order["status"] == "open" and order["days_old"] > 30]
    yield [("set_order_status", {"order": one, "status": "cancelled"}) for one in old]
    return old


CLOSE: Final = """
old = []
for customer in await tools.shop.list_customers(city="Turin"):
    for order in await tools.shop.list_orders(customer=customer["id"]):
        if order["status"] == "open" and order["days_old"] > 30:
            await tools.shop.set_order_status(order=order["id"], status="cancelled")
            old.append(order["id"])
old
"""


def mail_ticket_owners() -> Steps:
    (tickets,) = yield [("list_tickets", {"topic": "late"})]
    ids = sorted({ticket["customer"] for ticket in tickets})
    customers = yield [("get_customer", {"customer": one}) for one in ids]
    yield [("send_mail", {"to": one["email"], "subject": "Your order is late"}) for one in customers]
    return len(ids)


MAIL: Final = """
ids = sorted({ticket["customer"] for ticket in await tools.shop.list_tickets(topic="late")})
for id in ids:
    customer = await tools.shop.get_customer(customer=id)
    await tools.shop.send_mail(to=customer["email"], subject="Your order is late")
len(ids)
"""


def best_customer(city: str) -> Steps:
    (customers,) = yield [("list_customers", {"city": city})]
    lists = yield [("list_orders", {"customer": one["id"]}) for one in customers]
    counts = {
        one["id"]: len([o for o in orders if o["status"] == "shipped"])
        for one, orders in zip(customers, lists, strict=True)
    }
    return max(sorted(counts), key=lambda id: counts[id])


BEST: Final = """
counts = {{}}
for customer in await tools.shop.list_customers(city="{city}"):
    orders = await tools.shop.list_orders(customer=customer["id"])
    counts[customer["id"]] = len([o for o in orders if o["status"] == "shipped"])
max(sorted(counts), key=lambda id: counts[id])
"""


def weights(orders: list[str]) -> Steps:
    found = yield [("get_order", {"order": one}) for one in orders]
    skus = sorted({item["sku"] for order in found for item in order["items"]})
    products = yield [("get_product", {"sku": sku}) for sku in skus]
    kilograms = {one["sku"]: one["weight_kg"] for one in products}
    return [sum(kilograms[item["sku"]] * item["quantity"] for item in order["items"]) for order in found]


WEIGHTS: Final = """
result, known = [], {{}}
for id in {orders}:
    order, weight = await tools.shop.get_order(order=id), 0
    for item in order["items"]:
        if item["sku"] not in known:
            known[item["sku"]] = (await tools.shop.get_product(sku=item["sku"]))["weight_kg"]
        weight += known[item["sku"]] * item["quantity"]
    result.append(weight)
result
"""


def missing_stock(city: str) -> Steps:
    (customers,) = yield [("list_customers", {"city": city})]
    lists = yield [("list_orders", {"customer": one["id"]}) for one in customers]
    needed: dict[str, int] = {}
    for order in (order for orders in lists for order in orders if order["status"] == "open"):
        for item in order["items"]:
            needed[item["sku"]] = needed.get(item["sku"], 0) + item["quantity"]
    products = yield [("get_product", {"sku": sku}) for sku in sorted(needed)]
    return [one["sku"] for one in products if one["stock"] < needed[one["sku"]]]


MISSING: Final = """
needed = {{}}
for customer in await tools.shop.list_customers(city="{city}"):
    for order in await tools.shop.list_orders(customer=customer["id"]):
        if order["status"] == "open":
            for item in order["items"]:
                needed[item["sku"]] = needed.get(item["sku"], 0) + item["quantity"]
[sku for sku in sorted(needed) if (await tools.shop.get_product(sku=sku))["stock"] < needed[sku]]
"""

ORDERS: Final = [f"O{number:03}" for number in range(0, 60, 6)]
TASKS: Final = (
    Task(
        "What have the customers in Oslo paid?",
        "customers of a city, their orders, product prices",
        revenue_of_city,
        REVENUE,
    ),
    Task(
        "Cancel all open orders from Turin older than 30 days.",
        "customers, orders, change the status of an order",
        close_old_orders,
        CLOSE,
    ),
    Task(
        "Mail everyone with a ticket about a late order.",
        "support tickets, customers, send mail",
        mail_ticket_owners,
        MAIL,
    ),
    *(
        Task(
            f"Which customer in {city} got the most shipments?",
            "customers of a city and their orders",
            partial(best_customer, city),
            BEST.format(city=city),
        )
        for city in ("Lagos", "Quito", "Kyoto")
    ),
    *(
        Task(
            f"How heavy are the orders {orders[0]} to {orders[-1]}?",
            "orders and weights of products",
            partial(weights, orders),
            WEIGHTS.format(orders=orders),
        )
        for orders in (ORDERS[:6], ORDERS[4:])
    ),
    *(
        Task(
            f"Which products are missing for the open orders of {city}?",
            "customers, orders, stock of products",
            partial(missing_stock, city),
            MISSING.format(city=city),
        )
        for city in ("Lagos", "Oslo")
    ),
)


class Conversation:
    """The messages of one task, and the tokens that each turn sends and receives."""

    def __init__(self, tools: str, task: str) -> None:
        self._context = estimate_tokens(tools) + estimate_tokens(task)
        self.turns = 0
        self.tokens = 0

    def add_turn(self, reply: str, results: str = "") -> None:
        """Add a reply of the model and the results that it gets."""
        self.turns += 1
        self.tokens += self._context + estimate_tokens(reply)
        self._context += estimate_tokens(reply) + estimate_tokens(results)


async def call(client: Client, name: str, arguments: dict[str, Any]) -> tuple[str, Any]:
    """Return the text of a result, and its value."""
    result = await client.call_tool(name, arguments)
    text = "\n".join(part.text for part in result.content if part.type == "text")
    assert not result.is_error, text
    structured = result.structured_content
    return text, parse_text_result(text) if structured is None else unwrap_result(structured)


async def run_by_calls(client: Client, tools: str, task: Task, *, is_parallel: bool) -> tuple[Conversation, Any]:
    """Let the scripted model make single calls."""
    conversation = Conversation(tools, task.text)
    text, _ = await call(client, "search_tools", {"query": task.query})
    conversation.add_turn(json.dumps({"query": task.query}), text)
    steps = task.steps()
    wanted = next(steps)
    while True:
        values: list[Any] = []
        replies: list[tuple[str, str]] = []
        for name, arguments in wanted:
            request = {"name": f"shop___{name}", "arguments": arguments}
            text, value = await call(client, "call_tool", request)
            values.append(value)
            replies.append((json.dumps(request), text))
        if is_parallel:
            conversation.add_turn("\n".join(reply for reply, _ in replies), "\n".join(text for _, text in replies))
        else:
            for reply, text in replies:
                conversation.add_turn(reply, text)
        try:
            wanted = steps.send(values)
        except StopIteration as finished:
            conversation.add_turn(f"The answer is {json.dumps(finished.value)}.")
            return conversation, finished.value


async def run_by_code(client: Client, tools: str, task: Task) -> tuple[Conversation, Any]:
    """Let the scripted model write one script."""
    conversation = Conversation(tools, task.text)
    text, _ = await call(client, "search_tools", {"query": task.query})
    conversation.add_turn(json.dumps({"query": task.query}), text)
    text, _ = await call(client, "run_code", {"code": task.code})
    conversation.add_turn(json.dumps({"code": task.code}), text)
    conversation.add_turn(f"The answer is {text}.")
    try:
        return conversation, json.loads(text)
    except ValueError:
        return conversation, text


async def measure() -> None:
    """Print the table."""
    shop = ServerConfig("shop", command=sys.executable, args=("-m", "benchmarks.code_mode_server"))
    config = GatewayConfig(
        servers={"shop": shop},
        tool_search=ToolSearchConfig(mode="search"),
        store="sqlite://",
        code_mode=CodeModeConfig(enabled=True),
    )
    hub = Hub(config, open_store("sqlite://"))
    async with run_gateway(hub, lambda ctx: None) as router:
        while not router.pool.servers["shop"].is_start_finished:
            await anyio.sleep(0.05)
        async with Client(router.server, cache=None) as client:
            listed = (await client.list_tools()).tools
            dumped = [tool.model_dump(by_alias=True, exclude_none=True) for tool in listed]
            with_code = json.dumps(dumped)
            without_code = json.dumps([tool for tool in dumped if tool["name"] != "run_code"])
            totals = [[0, 0], [0, 0], [0, 0]]
            print("| task | turns, tokens: one call per turn | parallel calls | code |\n|---|---|---|---|")
            for task in TASKS:
                runs = [
                    await run_by_calls(client, without_code, task, is_parallel=False),
                    await run_by_calls(client, without_code, task, is_parallel=True),
                    await run_by_code(client, with_code, task),
                ]
                assert runs[0][1] == runs[1][1] == runs[2][1], (task.text, [answer for _, answer in runs])
                cells = []
                for total, (conversation, _) in zip(totals, runs, strict=True):
                    total[0] += conversation.turns
                    total[1] += conversation.tokens
                    cells.append(f"{conversation.turns}, {conversation.tokens:,}")
                print(f"| {task.text} | {' | '.join(cells)} |")
            print(f"| all | {' | '.join(f'{turns}, {tokens:,}' for turns, tokens in totals)} |")
            calls, parallel, code = totals
            for name, other in (("one call per turn", calls), ("parallel calls", parallel)):
                print(
                    f"\ncode needs {code[0] / other[0]:.0%} of the turns and {code[1] / other[1]:.0%} of the tokens of {name}"
                )
    hub.close()


if __name__ == "__main__":
    anyio.run(measure)
