from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toolcrib.errors import InvalidEvalSet
from toolcrib.evaluation.eval_set import EvalSet, read_eval_set, read_eval_sets

TOOLS = [
    {"id": "mail___send", "server": "mail", "name": "send", "description": "Send an email."},
    {"id": "mail___read", "server": "mail", "name": "read", "description": "Read the newest mail."},
]
QUERY = {"id": "q1", "query": "write to Ann", "relevant": ["mail___send"]}


def read(folder: Path, *queries: Mapping[str, Any] | str) -> EvalSet:
    folder.mkdir(exist_ok=True)
    lines = (json.dumps(tool) for tool in TOOLS)
    (folder / "tools.jsonl").write_text("\n".join(lines), encoding="utf-8")
    rows = (row if isinstance(row, str) else json.dumps(row) for row in queries)
    (folder / "queries.jsonl").write_text("\n".join(rows), encoding="utf-8")
    return read_eval_set(folder)


def test_a_folder_is_read_into_tools_and_questions(tmp_path: Path) -> None:
    both = ["mail___send", "mail___read"]
    found = read(
        tmp_path / "office",
        {**QUERY, "kind": "exact", "subset": "a", "lang": "de", "unknown": 1},
        {"id": "q2", "query": "mail", "relevant": both, "any_of": True},
        {
            "id": "q3",
            "query": "read, then answer",
            "relevant": both,
            "groups": [[id] for id in both],
        },
        {"id": "q4", "query": "fly to Oslo", "relevant": []},
    )
    assert (found.name, [tool.id for tool in found.catalog]) == ("office", both)
    one, either, steps, impossible = found.queries
    assert (one.id, one.text, one.kind, one.subset, one.lang) == (
        "q1",
        "write to Ann",
        "exact",
        "a",
        "de",
    )
    assert one.targets == (frozenset({"mail___send"}),)
    assert either.targets == (frozenset(both),)
    assert [len(one.targets) for one in (steps, impossible)] == [2, 0]
    assert [one.has_steps for one in found.queries] == [False, False, True, False]
    assert [one.is_impossible for one in found.queries] == [False, False, False, True]
    assert steps.relevant_ids == frozenset(both)
    assert impossible.relevant_ids == frozenset()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": None}, "id is missing; add it"),
        ({"id": 7}, "id must be a text that is not empty; put it in quotes"),
        ({"query": " "}, "query must be a text that is not empty"),
        ({"relevant": None}, "relevant is missing; add it (an empty list means that nothing fits)"),
        ({"relevant": "mail___send"}, "relevant must be a list of tool ids"),
        ({"relevant": [1]}, "relevant must be a list of tool ids, which are texts"),
        ({"relevant": ["send"]}, "'send', which is no tool's id; did you mean 'mail___send'?"),
        ({"relevant": ["MAIL___read"]}, "did you mean 'mail___read'?"),
        ({"relevant": ["mail___sent"]}, "did you mean 'mail___send'?"),
        ({"relevant": ["x" * 99]}, "xxx…', which is no tool's id; add it to tools.jsonl"),
        ({"groups": "a"}, "groups must be a list of lists of tool ids, one for each step"),
        ({"groups": ["a"]}, "groups must be a list of lists of tool ids, one for each step"),
        ({"groups": [[1]]}, "groups must be a list of tool ids, which are texts"),
        ({"groups": [["fly"]]}, "groups has 'fly', which is no tool's id"),
        ({"groups": [[]]}, "groups has an empty list; name the tools that do the step"),
        ({"relevant": [], "groups": [["mail___send"]]}, "groups must name the tools of relevant"),
        ({"groups": [["mail___read"]]}, "groups must name the tools of relevant, all of them"),
        ({"groups": [["mail___send"], ["mail___read"]]}, "of relevant, all of them and no others"),
        ({"groups": [["mail___send"]], "any_of": True}, "any_of and groups say different things"),
        ({"any_of": "yes"}, "any_of must be true or false"),
        ({"kind": 3}, "kind must be a text"),
        ({"lang": "x" * 101}, "lang has 101 characters, and 100 at most are taken; shorten it"),
        ({"relevent": []}, "relevent is not known; did you mean 'relevant'?"),
        ({"id": "q0"}, "id is that of the query on line 1 already; change one"),
    ],
)
def test_a_mistake_is_told_with_file_line_field_and_cure(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidEvalSet) as fault:
        read(tmp_path, {**QUERY, "id": "q0"}, {**QUERY, **change})
    assert str(fault.value).startswith(f"{tmp_path / 'queries.jsonl'}, line 2: ")
    assert message in str(fault.value)


def test_what_is_no_query_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidEvalSet, match="line 1: a query is an object"):
        read(tmp_path, json.dumps([QUERY]))
    with pytest.raises(InvalidEvalSet, match=r"queries.jsonl, line 2: column \d+: .*cut off"):
        read(tmp_path, QUERY, '{"id": "q2", "que')
    with pytest.raises(InvalidEvalSet, match="empty; it should hold one query a line"):
        read(tmp_path, "")


def test_a_missing_file_and_a_bad_tool_are_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidEvalSet, match=r"no tools.jsonl in it; an eval set is a folder with"):
        read_eval_set(tmp_path)
    read(tmp_path, QUERY)
    (tmp_path / "tools.jsonl").write_text('{"name": 3}', encoding="utf-8")
    with pytest.raises(InvalidEvalSet, match=r"tools.jsonl, line 1: .*name"):
        read_eval_set(tmp_path)


def test_a_folder_that_is_none_is_called_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidEvalSet, match=r"nowhere: there is no such folder; name one with"):
        read_eval_set(tmp_path / "nowhere")
    file = tmp_path / "tools.jsonl"
    file.touch()
    with pytest.raises(InvalidEvalSet, match=r"tools.jsonl: is a file, and no folder; name one"):
        read_eval_set(file)


def test_sets_of_one_name_are_told_apart_and_one_set_is_taken_once(tmp_path: Path) -> None:
    folders = [tmp_path / "mail" / "dev", tmp_path / "chat" / "dev", tmp_path / "test"]
    for folder in folders:
        folder.mkdir(parents=True)
        read(folder, QUERY)
    assert [one.name for one in read_eval_sets(folders)] == ["mail/dev", "chat/dev", "test"]
    assert [one.name for one in read_eval_sets(folders[1:])] == ["dev", "test"]
    with pytest.raises(InvalidEvalSet, match="test: named twice; name it once"):
        read_eval_sets([*folders, tmp_path / "mail" / ".." / "test"])


def test_a_sample_is_spread_evenly_and_never_larger_than_the_set(tmp_path: Path) -> None:
    whole = read(tmp_path, *({**QUERY, "id": f"q{number}"} for number in range(10)))
    assert [one.id for one in whole.sample(4).queries] == ["q0", "q2", "q5", "q7"]
    assert whole.sample(10) is whole
