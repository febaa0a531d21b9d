"""Every sentence a model reads from us. The profiles keep those of the systems they are named after."""

from __future__ import annotations

from typing import Final

SEARCH_NAME: Final = "search_tools"
SEARCH_DESCRIPTION: Final = (
    "Find tools. You have more tools than are listed here: say what you want to do and this loads "
    "the tools for it, which you can then call. Search before you say that something cannot be done."
)
DISPATCH_DESCRIPTION: Final = (
    "Find tools. You have more tools than are listed here: say what you want to do and this returns "
    "the tools for it with their parameters. Call them through {execute}. Search before you say "
    "that something cannot be done."
)
NAMES: Final = "They are {names}."
QUERY_DESCRIPTION: Final = "What you want to do, in plain words, or the name of a tool."
QUERIES_DESCRIPTION: Final = "Several such needs at once, one text for each."
LIMIT_DESCRIPTION: Final = (
    "How many tools to return for each need (1 to {most}, default {default})."
)

EXECUTE_NAME: Final = "execute_dynamic_tool"
EXECUTE_DESCRIPTION: Final = "Call a tool that {search} has found."
EXECUTE_TOOL_DESCRIPTION: Final = "The tool's name, as {search} returned it."
EXECUTE_INPUT_DESCRIPTION: Final = "The tool's arguments, as its parameters ask for them."

LOADED: Final = "Loaded. You can call these tools now."
FOUND: Final = "Call these tools through {execute}."
NOTHING_FITS: Final = (
    "No tool fits well. The nearest are listed; call one by its name if it does, or search in "
    "other words."
)
NOTHING_FOUND: Final = "No tool was found. Search in other words."
NO_QUERY: Final = "Say in `query` what you want to do."
ENOUGH_SEARCHES: Final = (
    "You have searched {count} times in a row. Use a tool that was found, or say what is missing."
)
RETIRED: Final = "To make room, these tools were put away; search to load them again: {names}."
FULL_ANSWER: Final = "Not searched: at most {most} needs at once."

UNKNOWN_TOOL: Final = "There is no tool {name}."
NEAREST: Final = "The nearest are {names}."
SEARCH_INSTEAD: Final = "Use {search} to find tools."
NOT_JSON: Final = "The arguments of {name} are not a JSON object. Send one."
BAD_ARGUMENTS: Final = "The arguments of {name} do not fit. Mend them and call it again:"
FAILED: Final = "{name} failed: {reason}"
NOT_ANSWERED: Final = "{name} was not run."
