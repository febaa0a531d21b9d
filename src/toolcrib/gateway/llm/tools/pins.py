"""Tools that are never deferred: those that known clients need in most turns, and those that find or call tools."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from toolcrib.adapters.plain_json import dict_or_empty


class KnownClient(NamedTuple):
    """A client with built-in tools: those that identify it, and those that it needs in most turns."""

    markers: frozenset[str]
    pinned: frozenset[str]


# The names are those of Claude Code 2.1, Codex 0.40 to 0.169 and opencode 1.18.
KNOWN_CLIENTS: Final = (
    KnownClient(
        frozenset({"Bash", "Read", "Edit", "Write"}),
        frozenset(
            {
                "Agent", "AskUserQuestion", "Bash", "BashOutput", "Edit", "EnterPlanMode", "ExitPlanMode", "Glob",
                "Grep", "KillShell", "LS", "MultiEdit", "NotebookEdit", "PowerShell", "Read", "Skill", "Task",
                "TaskCreate", "TaskOutput", "TaskUpdate", "TodoWrite", "WebFetch", "WebSearch", "Write",
            }
        ),
    ),
    *(
        KnownClient(
            frozenset(markers),
            frozenset(
                {
                    "apply_patch", "exec_command", "grep_files", "list_dir", "local_shell", "read_file",
                    "request_user_input", "shell", "shell_command", "update_plan", "view_image", "write_stdin",
                }
            ),
        )
        for markers in (("exec_command", "write_stdin"), ("shell", "update_plan"), ("shell_command", "update_plan"))
    ),
    KnownClient(
        frozenset({"bash", "read", "glob", "grep"}),
        frozenset(
            {
                "apply_patch", "bash", "edit", "glob", "grep", "list", "multiedit", "patch", "question", "read",
                "skill", "task", "todoread", "todowrite", "webfetch", "websearch", "write",
            }
        ),
    ),
)  # fmt: skip

_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SEARCH_VERBS: Final = frozenset({"search", "find", "retrieve", "discover", "lookup", "load", "list", "describe"})
_CALL_VERBS: Final = frozenset({"call", "execute", "exec", "run", "invoke", "use", "dispatch"})
# Words that may stand between the verb and "tool".
_FILLERS: Final = frozenset({"for", "available", "dynamic", "multi", "mcp", "the", "a"})
_QUERY_NAMES: Final = frozenset(
    {"query", "queries", "q", "keywords", "pattern", "names", "name", "tool_name", "tool_names", "goal", "use_case"}
)
_NAME_NAMES: Final = frozenset({"tool_name", "name", "tool", "tool_slug", "tools", "tool_id"})
_INPUT_NAMES: Final = frozenset(
    {"arguments", "args", "args_json", "input", "tool_input", "tool_args", "tool_arguments", "parameters", "params"}
)


def is_discovery_tool(name: str, schema: Mapping[str, Any]) -> bool:
    """Return whether a tool finds or calls other tools, by its name and its parameters.

    If such a tool were deferred, the tools behind it could not be found.
    """
    properties = dict_or_empty(schema.get("properties"))
    words = [word.lower() for word in _WORDS.findall(name)]
    verbs = {verb for word, after in _pair_words(words) for verb in (word, after) if "tool" in (word, after)}
    if verbs & _SEARCH_VERBS and (not properties or not _QUERY_NAMES.isdisjoint(properties)):
        return True
    is_call = not _NAME_NAMES.isdisjoint(properties)
    if verbs & _CALL_VERBS and is_call:
        return True
    names = {"tool_name", "tool", "tool_slug", "tool_id"} & properties.keys()
    return bool(names) and not _INPUT_NAMES.isdisjoint(properties)


def _pair_words(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return the neighbouring words of a name, with `tool` for `tools` and without filling words."""
    kept = ["tool" if word == "tools" else word for word in words if word not in _FILLERS]
    return list(pairwise(kept))
