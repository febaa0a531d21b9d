"""Tools for dates and times."""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from pydantic import Field

from toolcrib.demo.number_tools import Whole

Day = Annotated[str, Field(description="A day, such as 2026-07-28.", max_length=10)]
Year = Annotated[int, Field(ge=1, le=9999)]
Shift = Annotated[int, Field(ge=-1_000_000, le=1_000_000)]


def current_time() -> str:
    """Return the current date and time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def days_between(first: Day, second: Day) -> int:
    """Count the days between two dates."""
    return (date.fromisoformat(second) - date.fromisoformat(first)).days


def add_days(day: Day, days: Shift) -> str:
    """Return the date a number of days after or before a date."""
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


def add_working_days(day: Day, days: Annotated[int, Field(ge=0, le=5_000)]) -> str:
    """Return the date a number of business days after a date, skipping weekends."""
    result = date.fromisoformat(day)
    while days:
        result += timedelta(days=1)
        days -= result.weekday() < 5
    return result.isoformat()


def day_of_week(day: Day) -> str:
    """Return the weekday of a date."""
    return calendar.day_name[date.fromisoformat(day).weekday()]


def week_number(day: Day) -> int:
    """Return the calendar week number of a date."""
    return date.fromisoformat(day).isocalendar().week


def check_leap_year(year: Year) -> bool:
    """Return whether a year is a leap year, with a 29th of February."""
    return calendar.isleap(year)


def days_in_month(year: Year, month: Annotated[int, Field(ge=1, le=12)]) -> int:
    """Return how many days a month has."""
    return calendar.monthrange(year, month)[1]


def age_in_years(birthday: Day, on: Day) -> int:
    """Return how old a person is on a day, given the date of birth."""
    born, then = date.fromisoformat(birthday), date.fromisoformat(on)
    return then.year - born.year - ((then.month, then.day) < (born.month, born.day))


def date_of_easter(year: Year) -> str:
    """Return the date of Easter Sunday in a year of the Gregorian calendar."""
    golden = year % 19
    century = year // 100
    epact = (19 * golden + century - century // 4 - (8 * century + 13) // 25 + 15) % 30
    moon = epact - epact // 28 * (1 - 29 // (epact + 1) * ((21 - golden) // 11))
    sunday = moon - (year + year // 4 + moon + 2 - century + century // 4) % 7
    month = 3 + (sunday + 40) // 44
    return date(year, month, sunday + 28 - 31 * (month // 4)).isoformat()


def unix_time_to_date(seconds: Annotated[int, Field(ge=0, le=253_402_300_799)]) -> str:
    """Turn a Unix timestamp into a date and time, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def date_to_unix_time(moment: Annotated[str, Field(max_length=40)]) -> int:
    """Turn a date and time, such as 2026-07-28T12:00:00+00:00, into a Unix timestamp."""
    return int(datetime.fromisoformat(moment).timestamp())


def format_duration(seconds: Whole) -> str:
    """Write a number of seconds as days, hours, minutes and seconds."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day} d {hour} h {minute} min {second} s"
