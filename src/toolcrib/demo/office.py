"""Tools for the examples: three actions, and a sales report for each of forty countries.

The functions return fixed texts.
"""

from __future__ import annotations

from collections.abc import Callable

TASK = "What is the weather in Rome?"

COUNTRIES = [
    "Albania", "Angola", "Argentina", "Australia", "Austria", "Belgium", "Bolivia", "Brazil", "Bulgaria", "Canada",
    "Chile", "China", "Colombia", "Croatia", "Cuba", "Denmark", "Ecuador", "Egypt", "Estonia", "Fiji", "Finland",
    "France", "Germany", "Ghana", "Greece", "Hungary", "Iceland", "India", "Ireland", "Italy", "Japan", "Kenya",
    "Latvia", "Malta", "Mexico", "Nepal", "Norway", "Peru", "Poland", "Spain",
]  # fmt: skip


def get_weather(city: str) -> str:
    """Weather forecast for a city."""
    return f"sunny in {city}"


def send_email(to: str, subject: str, body: str) -> str:
    """Send an e-mail message."""
    return f"sent to {to}"


def refund_charge(charge: str, cents: int) -> str:
    """Give a customer money back for a charge."""
    return f"{cents} cents of {charge} refunded"


def tools() -> list[Callable[..., str]]:
    """Return all tools of the office."""
    return [get_weather, send_email, refund_charge, *map(_build_report, COUNTRIES)]


def _build_report(country: str) -> Callable[..., str]:
    def report(year: int) -> str:
        return f"sales in {country} in {year}: 1,000"

    report.__name__ = f"sales_in_{country.lower()}"
    report.__doc__ = f"Sales figures of a year in {country}."
    return report
