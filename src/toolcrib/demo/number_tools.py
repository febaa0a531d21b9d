"""Tools for numbers, units, money, dates and durations."""

from __future__ import annotations

import calendar
import math
import statistics
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

MAX_ITEMS = 2_000

Number = Annotated[float, Field(allow_inf_nan=False)]
Numbers = Annotated[list[Number], Field(description="The numbers.", min_length=1, max_length=MAX_ITEMS)]
Whole = Annotated[int, Field(ge=0, le=10**12)]
Small = Annotated[int, Field(ge=1, le=1_000_000)]

_LENGTHS = {
    "millimetre": 0.001,
    "centimetre": 0.01,
    "metre": 1.0,
    "kilometre": 1000.0,
    "inch": 0.0254,
    "foot": 0.3048,
    "yard": 0.9144,
    "mile": 1609.344,
}
_WEIGHTS = {"gram": 1.0, "kilogram": 1000.0, "tonne": 1e6, "ounce": 28.349523125, "pound": 453.59237}
_VOLUMES = {"millilitre": 0.001, "litre": 1.0, "cup": 0.2365882365, "gallon": 3.785411784}
_SPEEDS = {"metres_per_second": 3.6, "kilometres_per_hour": 1.0, "miles_per_hour": 1.609344, "knots": 1.852}
_SIZES = {
    "byte": 1,
    "kilobyte": 10**3,
    "megabyte": 10**6,
    "gigabyte": 10**9,
    "kibibyte": 2**10,
    "mebibyte": 2**20,
    "gibibyte": 2**30,
}

Length = Literal["millimetre", "centimetre", "metre", "kilometre", "inch", "foot", "yard", "mile"]
Weight = Literal["gram", "kilogram", "tonne", "ounce", "pound"]
Volume = Literal["millilitre", "litre", "cup", "gallon"]
Speed = Literal["metres_per_second", "kilometres_per_hour", "miles_per_hour", "knots"]
Size = Literal["byte", "kilobyte", "megabyte", "gigabyte", "kibibyte", "mebibyte", "gibibyte"]
Degree = Literal["celsius", "fahrenheit", "kelvin"]

Day = Annotated[str, Field(description="A day, such as 2026-07-28.", max_length=10)]
Year = Annotated[int, Field(ge=1, le=9999)]
Shift = Annotated[int, Field(ge=-1_000_000, le=1_000_000)]


def add_numbers(numbers: Numbers) -> float:
    """Return the sum of numbers."""
    return math.fsum(numbers)


def multiply_numbers(numbers: Numbers) -> float:
    """Return the product of numbers."""
    return math.prod(numbers)


def divide_numbers(dividend: Number, divisor: Number) -> float:
    """Divide one number by another."""
    return dividend / divisor


def percentage_of(part: Number, whole: Number) -> float:
    """Return what percentage one number is of another."""
    return part / whole * 100


def percentage_change(old: Number, new: Number) -> float:
    """Return by how many percent a value has grown or shrunk."""
    return (new - old) / abs(old) * 100


def average_of_numbers(numbers: Numbers) -> float:
    """Return the average (mean) of numbers."""
    return statistics.fmean(numbers)


def median_of_numbers(numbers: Numbers) -> float:
    """Return the median of numbers: the one in the middle."""
    return statistics.median(numbers)


def standard_deviation(numbers: Numbers) -> float:
    """Return the standard deviation: how far numbers spread around their mean."""
    return statistics.pstdev(numbers)


def summarize_numbers(numbers: Numbers) -> dict[str, float]:
    """Return statistics of numbers: count, smallest, largest, sum, mean and median."""
    return {
        "count": len(numbers),
        "smallest": min(numbers),
        "largest": max(numbers),
        "sum": math.fsum(numbers),
        "mean": statistics.fmean(numbers),
        "median": statistics.median(numbers),
    }


def linear_trend(x: Numbers, y: Numbers) -> dict[str, float]:
    """Fit a straight line through points and return its slope and intercept."""
    slope, intercept = statistics.linear_regression(x, y)
    return {"slope": slope, "intercept": intercept}


def greatest_common_divisor(first: Whole, second: Whole) -> int:
    """Return the largest number that divides two whole numbers."""
    return math.gcd(first, second)


def prime_factors(number: Annotated[int, Field(ge=2, le=10**10)]) -> list[int]:
    """Return the prime factors of a whole number."""
    factors: list[int] = []
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            factors.append(divisor)
            number //= divisor
        divisor += 1
    return [*factors, number] if number > 1 else factors


def factorial_of(number: Annotated[int, Field(ge=0, le=200)]) -> str:
    """Return the factorial of a whole number."""
    return str(math.factorial(number))


def simplify_fraction(numerator: int, denominator: Small) -> str:
    """Return a fraction in its lowest terms."""
    return str(Fraction(numerator, denominator))


def compound_interest(
    amount: Number,
    percent_a_year: Annotated[float, Field(ge=-100, le=1000)],
    years: Annotated[float, Field(ge=0, le=200)],
) -> float:
    """Return what an amount of money grows to at a yearly interest rate."""
    return round(amount * math.pow(1 + percent_a_year / 100, years), 2)


def monthly_loan_payment(
    amount: Number, percent_a_year: Annotated[float, Field(ge=0, le=100)], months: Annotated[int, Field(ge=1, le=1200)]
) -> float:
    """Return the monthly instalment of a loan or mortgage."""
    rate = percent_a_year / 1200
    payment = amount / months if not rate else amount * rate / (1 - (1 + rate) ** -months)
    return round(payment, 2)


def split_bill(
    total: Number, people: Annotated[int, Field(ge=1, le=1000)], tip_percent: Annotated[float, Field(ge=0, le=100)] = 0
) -> float:
    """Share a restaurant bill among people, with a tip."""
    return round(total * (1 + tip_percent / 100) / people, 2)


def convert_length(amount: Number, from_unit: Length, to_unit: Length) -> float:
    """Convert a length or distance from one unit to another."""
    return amount * _LENGTHS[from_unit] / _LENGTHS[to_unit]


def convert_weight(amount: Number, from_unit: Weight, to_unit: Weight) -> float:
    """Convert a weight or mass from one unit to another."""
    return amount * _WEIGHTS[from_unit] / _WEIGHTS[to_unit]


def convert_volume(amount: Number, from_unit: Volume, to_unit: Volume) -> float:
    """Convert an amount of liquid from one unit to another."""
    return amount * _VOLUMES[from_unit] / _VOLUMES[to_unit]


def convert_speed(amount: Number, from_unit: Speed, to_unit: Speed) -> float:
    """Convert a speed from one unit to another."""
    return amount * _SPEEDS[from_unit] / _SPEEDS[to_unit]


def convert_data_size(amount: Number, from_unit: Size, to_unit: Size) -> float:
    """Convert an amount of computer storage from one unit to another."""
    return amount * _SIZES[from_unit] / _SIZES[to_unit]


def convert_temperature(amount: Number, from_unit: Degree, to_unit: Degree) -> float:
    """Convert a temperature between Celsius, Fahrenheit and Kelvin."""
    kelvin = {"celsius": amount + 273.15, "fahrenheit": (amount + 459.67) / 1.8, "kelvin": amount}
    value = kelvin[from_unit]
    results = {"celsius": value - 273.15, "fahrenheit": value * 1.8 - 459.67, "kelvin": value}
    return round(results[to_unit], 6)


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
