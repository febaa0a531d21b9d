from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tests.embedders.scripted import WordEmbedder
from toolcrib.cli.catalog.eval_report import result_to_json
from toolcrib.cli.main import toolcrib
from toolcrib.cli.printing import truncate
from toolcrib.embedders.cache import VectorStore
from toolcrib.encoder.default import DefaultEncoder
from toolcrib.encoder.transformer import Array, TransformerEncoder
from toolcrib.evaluation.runner import EvalResult

TOOLS: list[dict[str, Any]] = [
    {"id": "send_email", "name": "send_email", "description": "Send an email to someone."},
    {"id": "read_email", "name": "read_email", "description": "Read the newest email."},
    {"id": "book_table", "name": "book_table", "description": "Reserve a table to dine at."},
]
QUERIES: list[dict[str, Any]] = [
    {"id": "1", "query": "send an email", "relevant": ["send_email"], "kind": "exact"},
    {"id": "2", "query": "reserve a table", "relevant": ["book_table"], "kind": "exact"},
    {
        "id": "3",
        "query": "read the newest email, then send an answer",
        "relevant": ["read_email", "send_email"],
        "groups": [["read_email"], ["send_email"]],
        "kind": "multi",
    },
    {"id": "4", "query": "fly to Oslo", "relevant": [], "kind": "impossible"},
]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


@pytest.fixture
def office(tmp_path: Path) -> Path:
    folder = tmp_path / "office"
    folder.mkdir()
    write(folder / "tools.jsonl", TOOLS)
    write(folder / "queries.jsonl", QUERIES)
    return folder


def evaluate(*arguments: str | Path, columns: int = 100) -> Result:
    runner = CliRunner(env={"COLUMNS": str(columns)})
    return runner.invoke(toolcrib, ["eval", *map(str, arguments)])


def test_metrics_are_printed_with_intervals_and_definitions(office: Path) -> None:
    lines = evaluate(office, "--mode", "lexical").stdout.splitlines()
    assert "office: 3 tools, 3 queries with an answer, 1 without" in lines
    assert f"{'  hit@1':36}100.0  100–100" in lines
    assert f"{'  recall@1':36} 83.3  50–100" in lines
    assert f"{'  wrongly refused (lower is better)':36}  0.0  0–0" in lines
    assert "kind multi (1)                      lexical" in lines
    assert "kind impossible (1)                 lexical" in lines
    legend = " ".join(lines)
    assert "Percent, with 95% intervals" in legend
    assert "all-steps@5: every step of the task" in legend
    assert "best of a row" not in legend


def test_modes_are_printed_in_columns_with_the_best_marked(office: Path) -> None:
    output = evaluate(office, "--mode", "lexical", "--mode", "regex", "--mode", "lexical").stdout
    assert "all queries                         lexical           regex\n" in output
    row = next(line for line in output.splitlines() if line.startswith("  nDCG@10   "))
    assert "100.0* 100–100" in row
    assert all(line == line.rstrip() for line in output.splitlines())
    assert "regex compared with lexical: hit@5 -" in output
    assert "* is the best of a row" in output


def test_auc_is_not_compared_with_too_few_queries(office: Path) -> None:
    printed = " ".join(evaluate(office, "--mode", "lexical", "--mode", "regex").stdout.split())
    assert "AUC not compared: it needs 20 queries with an answer and 20 without" in printed
    assert "AUC 100.0* 100–100 50.0 50–50 wrongly" in printed


def test_modes_that_do_not_fit_are_printed_below(office: Path) -> None:
    output = evaluate(office, "--mode", "lexical", "--mode", "regex", columns=60).stdout
    assert "all queries                         lexical\n" in output
    assert "all queries                         regex\n" in output


def test_means_over_several_sets(office: Path) -> None:
    other = office.with_name("other")
    shutil.copytree(office, other)
    output = evaluate(office, other, "--mode", "lexical").stdout
    assert "nDCG@10 by set                      lexical\n  office " in output
    assert f"{'means of 2 sets':36}lexical\n{'  hit@1':36}100.0\n" in output


def test_json_output(office: Path) -> None:
    document = json.loads(evaluate(office, "--json", "--mode", "lexical", "--mode", "regex").stdout)
    (summary,) = document["sets"]
    assert (summary["set"], summary["tools"], summary["modes"]) == ("office", 3, ["lexical", "regex"])
    assert summary["pool"] == {"added": 0, "left_out": 0}
    assert summary["all"]["figures"]["lexical"]["nDCG@10"]["value"] == 1.0
    assert summary["all"]["gains"]["regex"]["nDCG@10"]["value"] < 0
    assert document["means"]["lexical"]["nDCG@10"] == 1.0


def test_output_is_deterministic(office: Path) -> None:
    assert evaluate(office, "--json").stdout == evaluate(office, "--json").stdout


def test_pool_is_added_without_duplicates(office: Path) -> None:
    pool = office / "pool.jsonl"
    others = [
        {"server": "other", "name": "send_email", "description": "Send an email to someone."},
        {"server": "x", "name": "table", "description": "reserve a table reserve a table"},
    ]
    write(pool, others)
    output = evaluate(office, "--pool", pool).stdout
    assert "searched together with 1 tools of the pool; 1 were left out" in output
    document = json.loads(evaluate(office, "--pool", pool, "--json").stdout)
    assert document["sets"][0]["pool"] == {"added": 1, "left_out": 1}
    assert document["sets"][0]["tools"] == 4


def test_tool_vectors_are_cached_in_a_file(office: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = tmp_path / "vectors.db"
    monkeypatch.setattr("toolcrib.cli.catalog.eval.DEFAULT_ENCODER", DefaultEncoder())
    first = evaluate(office, "--vectors", vectors, "--json")
    assert vectors.is_file()
    encode = TransformerEncoder.encode

    def encode_queries_only(self: TransformerEncoder, texts: Sequence[str]) -> Array:
        assert not any("Send an email to someone" in text for text in texts), "encoded again"
        return encode(self, texts)

    monkeypatch.setattr(TransformerEncoder, "encode", encode_queries_only)
    monkeypatch.setattr("toolcrib.cli.catalog.eval.DEFAULT_ENCODER", DefaultEncoder())
    again = evaluate(office, "--vectors", vectors, "--json")
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert json.loads(again.stdout)["sets"][0]["set"] == "office"
    assert evaluate(office, "--vectors", tmp_path).exit_code == 1


class _ScriptedEncoder(WordEmbedder):
    version = "1"


def test_damaged_vectors_are_reported_and_replaced(
    office: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.cli.catalog.eval.DEFAULT_ENCODER", _ScriptedEncoder())
    vectors = tmp_path / "vectors.db"
    evaluate(office, "--vectors", vectors)
    with closing(sqlite3.connect(vectors)) as connection, connection:
        connection.execute("UPDATE vectors SET vector = 'nothing' WHERE id < 3")
    result = evaluate(office, "--vectors", vectors, columns=1000)
    assert result.exit_code == 0
    assert "vectors.db: 2 vectors were damaged and have been replaced" in result.stderr
    assert evaluate(office, "--vectors", vectors).stderr == ""


def test_unwritable_vector_file_is_reported(office: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolcrib.cli.catalog.eval.DEFAULT_ENCODER", _ScriptedEncoder())
    vectors = tmp_path / "vectors.db"
    VectorStore(vectors)
    with closing(sqlite3.connect(vectors)) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON vectors BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        )
    result = evaluate(office, "--vectors", vectors, columns=1000)
    assert result.exit_code == 0
    assert "nDCG@10" in result.stdout
    assert "vectors.db: the disk is full (disk is full); free some space" in result.stderr
    assert "The metrics are correct, but" in result.stderr


def test_results_are_dumped_to_a_file(office: Path, tmp_path: Path) -> None:
    dump = tmp_path / "results.jsonl"
    evaluate(office, "--dump", dump, "--limit-queries", "2", "--mode", "lexical")
    rows = [json.loads(line) for line in dump.read_text(encoding="utf-8").splitlines()]
    assert [(row["set"], row["mode"], row["id"]) for row in rows] == [
        ("office", "lexical", "1"),
        ("office", "lexical", "3"),
    ]
    assert rows[0]["ranks"] == {"send_email": 1}


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("old", ["previous content", None])
def test_interrupted_dump_keeps_the_previous_file(
    office: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interruption: BaseException | type[BaseException],
    old: str | None,
) -> None:
    file = tmp_path / "out"
    if old is not None:
        file.write_text(old, encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))

    def interrupt(*args: Any) -> None:
        raise interruption

    monkeypatch.setattr("os.fsync", interrupt)
    output = evaluate(office, "--dump", file, "--mode", "lexical")
    assert output.exit_code == (130 if interruption is KeyboardInterrupt else 1)
    assert sorted(tmp_path.rglob("*")) == before
    assert old is None or file.read_text(encoding="utf-8") == old


def test_metrics_are_printed_if_the_dump_fails(office: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dump = tmp_path / "results.jsonl"

    def fail(path: Path, rows: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("toolcrib.cli.catalog.eval.write_json_lines", fail)
    output = evaluate(office, "--dump", dump, "--mode", "lexical")
    assert output.exit_code == 1
    assert "nDCG@10" in output.stdout
    assert f"{dump}: cannot be written: No space left on device" in output.stderr
    output = evaluate(office, "--dump", dump, "--mode", "lexical", "--json")
    assert (output.exit_code, json.loads(output.stdout)["sets"][0]["set"]) == (1, "office")


def test_same_file_for_two_outputs_is_rejected(office: Path, tmp_path: Path) -> None:
    file, same = tmp_path / "x", tmp_path / "office" / ".." / "x"
    output = evaluate(office, "--vectors", file, "--dump", same)
    assert output.exit_code == 2
    assert "--vectors and --dump are the same file" in output.stderr
    assert not file.exists()


@pytest.mark.parametrize("name", ["queries.jsonl", "tools.jsonl", "pool.jsonl"])
@pytest.mark.parametrize("option", ["--dump", "--vectors"])
def test_input_files_are_never_overwritten(office: Path, name: str, option: str) -> None:
    pool = office / "pool.jsonl"
    pool.write_bytes((office / "tools.jsonl").read_bytes())
    before = (office / name).read_bytes()
    output = evaluate(office, "--pool", pool, option, office / ".." / office.name / name)
    assert output.exit_code == 2
    assert "is an input file and would be overwritten" in " ".join(output.stderr.split())
    assert (office / name).read_bytes() == before


def test_dump_to_standard_output_is_rejected(office: Path) -> None:
    output = evaluate(office, "--dump", "-")
    assert output.exit_code == 2
    assert "- is not a file; choose a file" in " ".join(output.stderr.split())


def test_dump_interrupted_while_rendering_keeps_the_previous_file(
    office: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = tmp_path / "results.jsonl"
    assert evaluate(office, "--dump", dump, "--mode", "lexical").exit_code == 0
    before = dump.read_bytes()

    def interrupt_at_third(name: str, mode: str, result: EvalResult) -> dict[str, Any]:
        if result.query.id == "3":
            raise KeyboardInterrupt
        return result_to_json(name, mode, result)

    monkeypatch.setattr("toolcrib.cli.catalog.eval.result_to_json", interrupt_at_third)
    assert evaluate(office, "--dump", dump, "--mode", "lexical").exit_code == 130
    assert dump.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_dump_to_a_named_pipe(office: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Opened for reading and writing, so that opening does not block.
    with os.fdopen(os.open(pipe, os.O_RDWR), "rb", buffering=0) as reader:
        assert evaluate(office, "--dump", pipe, "--mode", "lexical").exit_code == 0
        assert json.loads(reader.read(65_536).splitlines()[0])["id"] == "1"
    assert pipe.is_fifo()


def test_rejected_queries_are_counted(office: Path) -> None:
    write(office / "queries.jsonl", [{"id": "1", "query": "send (", "relevant": ["send_email"]}])
    output = evaluate(office, "--mode", "regex")
    assert output.exit_code == 0
    assert "regex rejected 1 of the queries" in output.stderr


@pytest.mark.parametrize("columns", [100, 40])
def test_columns_are_aligned_for_any_facet_value(office: Path, columns: int) -> None:
    kinds = ["日本語" * 20, "x" * 100, "e\u0301" * 9]
    queries = [{"id": kind, "query": "email", "relevant": ["send_email"], "kind": kind} for kind in kinds]
    write(office / "queries.jsonl", queries)
    lines = evaluate(office, "--mode", "lexical", columns=columns).stdout.splitlines()
    heads = [line for line in lines if line.endswith(" lexical")]
    titles = ["all queries", f"kind {'日本語' * 20}", f"kind {'x' * 100}", f"kind {kinds[2]}"]
    label = 36 if columns == 100 else 22
    assert len(heads) == 4
    for head, title in zip(heads, titles, strict=True):
        cell = head.removesuffix("lexical")
        assert truncate(cell, label) == cell != truncate(cell, label - 1)
        assert cell[:10] == title[:10]
    assert [" (1) " in head for head in heads] == [False, True, True, True]
    assert all(truncate(line, columns) == line for line in lines[lines.index(heads[0]) :])


def test_number_of_printed_groups_is_limited(office: Path) -> None:
    queries = [{"id": str(n), "query": "email", "relevant": ["send_email"], "subset": f"s{n}"} for n in range(33)]
    write(office / "queries.jsonl", queries)
    assert "… and 3 more groups; --json has them all." in evaluate(office).stdout


def test_invalid_set_is_reported(office: Path) -> None:
    write(office / "queries.jsonl", [{"id": "1", "query": "a", "relevant": ["send_mail"]}])
    output = evaluate(office)
    assert output.exit_code == 1
    assert "queries.jsonl, line 1: relevant contains the unknown id 'send_mail'" in output.stderr
    assert "did you mean 'send_email'?" in output.stderr


def test_unwritable_dump_is_reported_before_the_evaluation(office: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The set is invalid, so reading it first would cause another error.
    (office / "queries.jsonl").unlink()
    before = sorted(office.rglob("*"))
    output = evaluate(office, "--dump", office / "none" / "x")
    assert output.exit_code == 2
    assert "Invalid value for '--dump': There is no folder" in output.stderr
    assert "create it first" in output.stderr
    output = evaluate(office, "--dump", office)
    assert "is a folder; choose a file in it" in " ".join(output.stderr.split())
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    for file in (office / "new", office / "tools.jsonl"):
        output = evaluate(office, "--dump", file)
        assert "is not writable; choose another file" in " ".join(output.stderr.split())
    assert sorted(office.rglob("*")) == before


def test_progress_bar_on_a_terminal(office: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bars: list[dict[str, Any]] = []
    original = click.progressbar

    def record(*arguments: Any, **options: Any) -> Any:
        bars.append(options)
        return original(*arguments, **options)

    monkeypatch.setattr("click.progressbar", record)
    assert evaluate(office, "--mode", "lexical").exit_code == 0
    assert bars == []
    monkeypatch.setattr("toolcrib.cli.catalog.eval.is_terminal", lambda: True)
    output = evaluate(office, "--mode", "lexical")
    assert (bars[0]["length"], bars[0]["label"]) == (4, "office lexical")
    for columns, label in ((48, "office…"), (30, None)):
        monkeypatch.setattr("toolcrib.cli.catalog.eval.terminal_width", lambda columns=columns: columns)
        evaluate(office, "--mode", "lexical")
        assert bars[-1]["label"] == label
    assert f"{'  hit@1':36}100.0" in output.stdout
