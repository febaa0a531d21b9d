"""What a response says of how its request was treated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

# Said in every answer; in a request that names no model, where it is to go.
UPSTREAM_HEADER: Final = "x-toolcrib-upstream"

Treatment = Literal["native", "off", "search", "transparent"]


@dataclass(frozen=True, slots=True)
class Saved:
    """How a request was treated, how many of its tools the model was shown, and what that saved."""

    upstream: str
    treatment: Treatment
    tools: int = 0
    shown: int = 0
    tokens: int = 0

    def headers(self, **more: int) -> list[tuple[str, str]]:
        """The headers of the response; `more` are counts that are known only at the end."""
        told = [
            (UPSTREAM_HEADER, printable(self.upstream)),
            ("x-toolcrib-treatment", self.treatment),
        ]
        if self.treatment in ("search", "transparent"):
            told += [
                ("x-toolcrib-tools", str(self.tools)),
                ("x-toolcrib-tools-shown", str(self.shown)),
                ("x-toolcrib-tokens-saved", str(self.tokens)),
            ]
        return told + [(f"x-toolcrib-{name}", str(count)) for name, count in more.items()]


def printable(text: str) -> str:
    """A text as it can stand in a header."""
    return "".join(sign if " " <= sign <= "~" else "?" for sign in text)
