"""What a response says of how its request was treated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

# Said in every answer; in a request that names no model, where it is to go.
UPSTREAM_HEADER: Final = "x-toolcrib-upstream"

Treatment = Literal["native", "off", "search", "transparent"]


@dataclass(frozen=True, slots=True)
class ResponseHeaders:
    """How a request was treated, how many of its tools the model was shown, and what that saved."""

    upstream: str
    treatment: Treatment
    tool_count: int = 0
    revealed_count: int = 0
    saved_tokens: int = 0

    def render(self, **more: int) -> list[tuple[str, str]]:
        """The headers of the response; `more` are counts that are known only at the end."""
        told = [
            (UPSTREAM_HEADER, sanitize_header_value(self.upstream)),
            ("x-toolcrib-treatment", self.treatment),
        ]
        if self.treatment in ("search", "transparent"):
            told += [
                ("x-toolcrib-tools", str(self.tool_count)),
                ("x-toolcrib-tools-shown", str(self.revealed_count)),
                ("x-toolcrib-tokens-saved", str(self.saved_tokens)),
            ]
        return told + [(f"x-toolcrib-{name}", str(count)) for name, count in more.items()]


def sanitize_header_value(text: str) -> str:
    """A text as it can stand in a header."""
    return "".join(sign if " " <= sign <= "~" else "?" for sign in text)
