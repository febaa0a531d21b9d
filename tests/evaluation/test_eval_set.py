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


def test_read_tools_and_queries_of_a_folder(tmp_path: Path) -> None:
    both = ["mail___send", "mail___read"]
    eval_set = read(
        tmp_path / "office",
        {**QUERY, "kind": "exact", "subset": "a", "lang": "de", "unknown": 1},
        {"id": "q2", "query": "mail", "relevant": both, "any_of": True},
        {"id": "q3", "query": "read, then answer", "relevant": both, "groups": [[id] for id in both]},
        {"id": "q4", "query": "fly to Oslo", "relevant": []},
    )
    assert (eval_set.name, [tool.id for tool in eval_set.catalog]) == ("office", both)
    single, either, steps, impossible = eval_set.queries
    assert (single.id, single.text, single.kind, single.subset, single.lang) == (
        "q1",
        "write to Ann",
        "exact",
        "a",
        "de",
    )
    assert single.targets == (frozenset({"mail___send"}),)
    assert either.targets == (frozenset(both),)
    assert [len(query.targets) for query in (steps, impossible)] == [2, 0]
    assert [query.has_steps for query in eval_set.queries] == [False, False, True, False]
    assert [query.is_impossible for query in eval_set.queries] == [False, False, False, True]
    assert steps.relevant_ids == frozenset(both)
    assert impossible.relevant_ids == frozenset()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": None}, "id is missing; add it"),
        ({"id": 7}, "id must be a string that is not empty"),
        ({"query": " "}, "query must be a string that is not empty"),
        ({"relevant": None}, "relevant is missing; add it (an empty list means that no tool fits)"),
        ({"relevant": "mail___send"}, "relevant must be a list of tool ids"),
        ({"relevant": [1]}, "relevant must be a list of tool ids, which are strings"),
        ({"relevant": ["send"]}, "contains the unknown id 'send'; did you mean 'mail___send'?"),
        ({"relevant": ["MAIL___read"]}, "did you mean 'mail___read'?"),
        ({"relevant": ["mail___sent"]}, "did you mean 'mail___send'?"),
        ({"relevant": ["x" * 99]}, "xxx…'; add it to tools.jsonl"),
        ({"groups": "a"}, "groups must be a list of lists of tool ids, one for each step"),
        ({"groups": ["a"]}, "groups must be a list of lists of tool ids, one for each step"),
        ({"groups": [[1]]}, "groups must be a list of tool ids, which are strings"),
        ({"groups": [["fly"]]}, "groups contains the unknown id 'fly'"),
        ({"groups": [[]]}, "groups contains an empty list; add the tools for that step"),
        ({"relevant": [], "groups": [["mail___send"]]}, "groups must contain exactly the tools of relevant"),
        ({"groups": [["mail___read"]]}, "groups must contain exactly the tools of relevant"),
        ({"groups": [["mail___send"], ["mail___read"]]}, "groups must contain exactly the tools of relevant"),
        ({"groups": [["mail___send"]], "any_of": True}, "any_of and groups contradict each other"),
        ({"any_of": "yes"}, "any_of must be true or false"),
        ({"kind": 3}, "kind must be a string"),
        ({"lang": "x" * 101}, "lang has 101 characters; shorten it to 100"),
        ({"relevent": []}, "relevent is unknown; did you mean 'relevant'?"),
        ({"id": "q0"}, "id is already used by the query on line 1; change one"),
    ],
)
def test_invalid_field_is_reported_with_file_line_and_remedy(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidEvalSet) as error:
        read(tmp_path, {**QUERY, "id": "q0"}, {**QUERY, **change})
    assert str(error.value).startswith(f"{tmp_path / 'queries.jsonl'}, line 2: ")
    assert message in str(error.value)


def test_invalid_query_line_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidEvalSet, match="line 1: a query must be a JSON object"):
        read(tmp_path, json.dumps([QUERY]))
    with pytest.raises(InvalidEvalSet, match=r"queries.jsonl, line 2: column \d+: .*truncated"):
        read(tmp_path, QUERY, '{"id": "q2", "que')
    with pytest.raises(InvalidEvalSet, match="empty; it should contain one JSON query per line"):
        read(tmp_path, "")


def test_missing_file_and_invalid_tool_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InvalidEvalSet, match=r"no tools.jsonl in this folder; an eval set has"):
        read_eval_set(tmp_path)
    read(tmp_path, QUERY)
    (tmp_path / "tools.jsonl").write_text('{"name": 3}', encoding="utf-8")
    with pytest.raises(InvalidEvalSet, match=r"tools.jsonl, line 1: .*name"):
        read_eval_set(tmp_path)


def test_path_that_is_not_a_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidEvalSet, match=r"nowhere: there is no such folder; choose a folder with"):
        read_eval_set(tmp_path / "nowhere")
    file = tmp_path / "tools.jsonl"
    file.touch()
    with pytest.raises(InvalidEvalSet, match=r"tools.jsonl: this is a file; choose a folder"):
        read_eval_set(file)


def test_set_names_are_unique_and_duplicate_folders_rejected(tmp_path: Path) -> None:
    folders = [tmp_path / "mail" / "dev", tmp_path / "chat" / "dev", tmp_path / "test"]
    for folder in folders:
        folder.mkdir(parents=True)
        read(folder, QUERY)
    assert [eval_set.name for eval_set in read_eval_sets(folders)] == ["mail/dev", "chat/dev", "test"]
    assert [eval_set.name for eval_set in read_eval_sets(folders[1:])] == ["dev", "test"]
    with pytest.raises(InvalidEvalSet, match="test: this folder is given twice; remove one"):
        read_eval_sets([*folders, tmp_path / "mail" / ".." / "test"])


def test_sample_is_evenly_spaced_and_never_larger_than_the_set(tmp_path: Path) -> None:
    full = read(tmp_path, *({**QUERY, "id": f"q{number}"} for number in range(10)))
    assert [query.id for query in full.sample(4).queries] == ["q0", "q2", "q5", "q7"]
    assert full.sample(10) is full
