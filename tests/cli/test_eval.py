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
from toolcrib.cli.main import toolcrib
from toolcrib.cli.printing import truncate
from toolcrib.embedders.cache import VectorStore
from toolcrib.encoder.default import DEFAULT_ENCODER
from toolcrib.encoder.transformer import Array, TransformerEncoder
from toolcrib.evaluation.json_report import result_to_json
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


def test_figures_are_printed_with_intervals_and_what_they_mean(office: Path) -> None:
    lines = evaluate(office, "--mode", "lexical").stdout.splitlines()
    assert "office: 3 tools, 3 queries with an answer, 1 without" in lines
    assert f"{'  hit@1':36}100.0  100–100" in lines
    assert f"{'  recall@1':36} 83.3  50–100" in lines
    assert f"{'  wrongly refused (less is better)':36}  0.0  0–0" in lines
    assert "kind multi (1)                      lexical" in lines
    assert "kind impossible (1)                 lexical" in lines
    meaning = " ".join(lines)
    assert "Percent, with 95% intervals" in meaning
    assert "all-steps@5: every step of the task" in meaning
    assert "best of a row" not in meaning


def test_modes_stand_side_by_side_with_the_best_marked(office: Path) -> None:
    answer = evaluate(office, "--mode", "lexical", "--mode", "regex", "--mode", "lexical").stdout
    assert "all queries                         lexical           regex\n" in answer
    row = next(line for line in answer.splitlines() if line.startswith("  nDCG@10   "))
    assert "100.0* 100–100" in row
    assert all(line == line.rstrip() for line in answer.splitlines())
    assert "regex against lexical: hit@5 -" in answer
    assert "* is the best of a row" in answer


def test_too_few_queries_are_not_called_a_difference_of_the_auc(office: Path) -> None:
    shown = " ".join(evaluate(office, "--mode", "lexical", "--mode", "regex").stdout.split())
    assert "AUC not compared, which takes 20 queries with an answer and as many without" in shown
    assert "AUC 100.0* 100–100 50.0 50–50 wrongly" in shown


def test_modes_that_do_not_fit_into_a_line_stand_below(office: Path) -> None:
    answer = evaluate(office, "--mode", "lexical", "--mode", "regex", columns=60).stdout
    assert "all queries                         lexical\n" in answer
    assert "all queries                         regex\n" in answer


def test_several_sets_get_their_means(office: Path) -> None:
    other = office.with_name("other")
    shutil.copytree(office, other)
    answer = evaluate(office, other, "--mode", "lexical").stdout
    assert "nDCG@10 by set                      lexical\n  office " in answer
    assert f"{'means of 2 sets':36}lexical\n{'  hit@1':36}100.0\n" in answer


def test_one_json_document_has_everything(office: Path) -> None:
    document = json.loads(evaluate(office, "--json", "--mode", "lexical", "--mode", "regex").stdout)
    (found,) = document["sets"]
    assert (found["set"], found["tools"], found["modes"]) == ("office", 3, ["lexical", "regex"])
    assert found["pool"] == {"added": 0, "left_out": 0}
    assert found["all"]["figures"]["lexical"]["nDCG@10"]["value"] == 1.0
    assert found["all"]["gains"]["regex"]["nDCG@10"]["value"] < 0
    assert document["means"]["lexical"]["nDCG@10"] == 1.0


def test_the_same_set_gives_the_same_bytes(office: Path) -> None:
    assert evaluate(office, "--json").stdout == evaluate(office, "--json").stdout


def test_a_pool_is_searched_with_the_set_and_twins_are_left_out(office: Path) -> None:
    pool = office / "pool.jsonl"
    others = [
        {"server": "other", "name": "send_email", "description": "Send an email to someone."},
        {"server": "x", "name": "table", "description": "reserve a table reserve a table"},
    ]
    write(pool, others)
    answer = evaluate(office, "--pool", pool).stdout
    assert "searched among 1 more tools; 1 others of the pool were left out" in answer
    document = json.loads(evaluate(office, "--pool", pool, "--json").stdout)
    assert document["sets"][0]["pool"] == {"added": 1, "left_out": 1}
    assert document["sets"][0]["tools"] == 4


def test_what_was_read_is_kept_in_a_file(
    office: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "vectors.db"
    monkeypatch.setattr(DEFAULT_ENCODER, "_read", {})
    first = evaluate(office, "--vectors", kept, "--json")
    assert kept.is_file()
    encode = TransformerEncoder.encode

    def only_queries(self: TransformerEncoder, texts: Sequence[str]) -> Array:
        assert not any("Send an email to someone" in text for text in texts), "read again"
        return encode(self, texts)

    monkeypatch.setattr(TransformerEncoder, "encode", only_queries)
    monkeypatch.setattr(DEFAULT_ENCODER, "_read", {})
    again = evaluate(office, "--vectors", kept, "--json")
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert json.loads(again.stdout)["sets"][0]["set"] == "office"
    assert evaluate(office, "--vectors", tmp_path).exit_code == 1


class _Model(WordEmbedder):
    version = "1"


def test_a_damaged_vector_is_told_and_mended(
    office: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.cli.eval.SHIPPED", _Model())
    kept = tmp_path / "vectors.db"
    evaluate(office, "--vectors", kept)
    with closing(sqlite3.connect(kept)) as connection, connection:
        connection.execute("UPDATE vectors SET vector = 'nothing' WHERE id < 3")
    told = evaluate(office, "--vectors", kept, columns=1000)
    assert told.exit_code == 0
    assert "vectors.db: 2 vectors were damaged; they were read anew and replaced" in told.stderr
    assert evaluate(office, "--vectors", kept).stderr == ""


def test_vectors_that_could_not_be_kept_are_told_with_the_cure(
    office: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolcrib.cli.eval.SHIPPED", _Model())
    kept = tmp_path / "vectors.db"
    VectorStore(kept)
    with closing(sqlite3.connect(kept)) as connection:
        connection.execute(
            "CREATE TRIGGER full BEFORE INSERT ON vectors BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
        )
    told = evaluate(office, "--vectors", kept, columns=1000)
    assert told.exit_code == 0
    assert "nDCG@10" in told.stdout
    assert "vectors.db: no room to write (disk is full); free some" in told.stderr
    assert "the figures are right, but" in told.stderr


def test_every_answer_can_be_written_to_a_file(office: Path, tmp_path: Path) -> None:
    dump = tmp_path / "answers.jsonl"
    evaluate(office, "--dump", dump, "--limit-queries", "2", "--mode", "lexical")
    rows = [json.loads(line) for line in dump.read_text(encoding="utf-8").splitlines()]
    assert [(row["set"], row["mode"], row["id"]) for row in rows] == [
        ("office", "lexical", "1"),
        ("office", "lexical", "3"),
    ]
    assert rows[0]["ranks"] == {"send_email": 1}


def test_a_picture_can_be_drawn(office: Path, tmp_path: Path) -> None:
    file = tmp_path / "figures.svg"
    assert evaluate(office, "--picture", file).exit_code == 0
    assert file.read_text(encoding="utf-8").startswith("<svg ")


@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt, OSError(28, "No space left on device")])
@pytest.mark.parametrize("option", ["--dump", "--picture"])
@pytest.mark.parametrize("old", ["what there was", None])
def test_a_file_that_could_not_be_finished_is_as_it_was(
    office: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stopped_by: BaseException | type[BaseException],
    option: str,
    old: str | None,
) -> None:
    file = tmp_path / "out"
    if old is not None:
        file.write_text(old, encoding="utf-8")
    before = sorted(tmp_path.rglob("*"))

    def stop(*given: Any) -> None:
        raise stopped_by

    monkeypatch.setattr("os.fsync", stop)
    answer = evaluate(office, option, file, "--mode", "lexical")
    assert answer.exit_code == (130 if stopped_by is KeyboardInterrupt else 1)
    assert sorted(tmp_path.rglob("*")) == before
    assert old is None or file.read_text(encoding="utf-8") == old


def test_figures_are_printed_though_a_file_cannot_be_written(
    office: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump, picture = tmp_path / "answers.jsonl", tmp_path / "figures.svg"

    def full(path: Path, content: bytes) -> None:
        if path == dump:
            raise OSError(28, "No space left on device")
        path.write_bytes(content)

    monkeypatch.setattr("toolcrib.cli.eval.write_whole", full)
    files = ("--dump", dump, "--picture", picture, "--mode", "lexical")
    answer = evaluate(office, *files)
    assert answer.exit_code == 1
    assert "nDCG@10" in answer.stdout
    assert f"{dump}: cannot be written: No space left on device" in answer.stderr
    assert picture.is_file()
    answer = evaluate(office, *files, "--json")
    assert (answer.exit_code, json.loads(answer.stdout)["sets"][0]["set"]) == (1, "office")


@pytest.mark.parametrize("options", [("--dump", "--picture"), ("--vectors", "--dump")])
def test_one_file_for_two_things_is_refused(
    office: Path, tmp_path: Path, options: tuple[str, str]
) -> None:
    one, same = tmp_path / "x", tmp_path / "office" / ".." / "x"
    answer = evaluate(office, options[0], one, options[1], same)
    assert answer.exit_code == 2
    assert f"{options[0]} and {options[1]} name the same file" in answer.stderr
    assert not one.exists()


@pytest.mark.parametrize("name", ["queries.jsonl", "tools.jsonl", "pool.jsonl"])
@pytest.mark.parametrize("option", ["--dump", "--vectors"])
def test_what_is_read_is_never_overwritten(office: Path, name: str, option: str) -> None:
    pool = office / "pool.jsonl"
    pool.write_bytes((office / "tools.jsonl").read_bytes())
    before = (office / name).read_bytes()
    answer = evaluate(office, "--pool", pool, option, office / ".." / office.name / name)
    assert answer.exit_code == 2
    assert "is read here, and would be overwritten" in " ".join(answer.stderr.split())
    assert (office / name).read_bytes() == before


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--picture", "figures.png"], "figures.png: it is drawn as SVG"),
        (["--dump", "-"], "- is no file; name one"),
    ],
)
def test_a_file_that_would_be_another_is_refused(
    office: Path, options: list[str], told: str
) -> None:
    answer = evaluate(office, *options)
    assert (answer.exit_code, told in " ".join(answer.stderr.split())) == (2, True)


def test_a_dump_that_is_stopped_half_way_leaves_the_one_before(
    office: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = tmp_path / "answers.jsonl"
    assert evaluate(office, "--dump", dump, "--mode", "lexical").exit_code == 0
    before = dump.read_bytes()

    def stopped_at_the_third(name: str, mode: str, answer: EvalResult) -> dict[str, Any]:
        if answer.query.id == "3":
            raise KeyboardInterrupt
        return result_to_json(name, mode, answer)

    monkeypatch.setattr("toolcrib.cli.eval.answer_document", stopped_at_the_third)
    assert evaluate(office, "--dump", dump, "--mode", "lexical").exit_code == 130
    assert dump.read_bytes() == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_dump_goes_through_a_pipe(office: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Opened for both, so that neither side waits for the other.
    with os.fdopen(os.open(pipe, os.O_RDWR), "rb", buffering=0) as reader:
        assert evaluate(office, "--dump", pipe, "--mode", "lexical").exit_code == 0
        assert json.loads(reader.read(65_536).splitlines()[0])["id"] == "1"
    assert pipe.is_fifo()


def test_queries_that_a_mode_cannot_search_are_counted(office: Path) -> None:
    write(office / "queries.jsonl", [{"id": "1", "query": "send (", "relevant": ["send_email"]}])
    answer = evaluate(office, "--mode", "regex")
    assert answer.exit_code == 0
    assert "regex could not search 1 of the queries" in answer.stderr


@pytest.mark.parametrize("columns", [100, 40])
def test_columns_stand_below_each_other_whatever_a_kind_is_called(
    office: Path, columns: int
) -> None:
    kinds = ["日本語" * 20, "x" * 100, "e\u0301" * 9]
    queries = [
        {"id": kind, "query": "email", "relevant": ["send_email"], "kind": kind} for kind in kinds
    ]
    write(office / "queries.jsonl", queries)
    lines = evaluate(office, "--mode", "lexical", columns=columns).stdout.splitlines()
    heads = [line for line in lines if line.endswith(" lexical")]
    titles = ["all queries", f"kind {'日本語' * 20}", f"kind {'x' * 100}", f"kind {kinds[2]}"]
    label = 36 if columns == 100 else 22
    assert len(heads) == 4
    for head, title in zip(heads, titles, strict=True):
        shown = head.removesuffix("lexical")
        assert truncate(shown, label) == shown != truncate(shown, label - 1)
        assert shown[:10] == title[:10]
    assert [" (1) " in head for head in heads] == [False, True, True, True]
    assert all(truncate(line, columns) == line for line in lines[lines.index(heads[0]) :])


def test_many_groups_are_cut_in_print(office: Path) -> None:
    queries = [
        {"id": str(n), "query": "email", "relevant": ["send_email"], "subset": f"s{n}"}
        for n in range(33)
    ]
    write(office / "queries.jsonl", queries)
    assert "… and 3 groups more, which --json has." in evaluate(office).stdout


def test_a_mistake_in_the_set_is_told_and_gives_1(office: Path) -> None:
    write(office / "queries.jsonl", [{"id": "1", "query": "a", "relevant": ["send_mail"]}])
    answer = evaluate(office)
    assert answer.exit_code == 1
    assert "queries.jsonl, line 1: relevant has 'send_mail'" in answer.stderr
    assert "did you mean 'send_email'?" in answer.stderr


@pytest.mark.parametrize("option", ["--dump", "--picture"])
def test_a_file_that_cannot_be_written_is_told_before_anything_is_measured(
    office: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # There would be an error of its own if the set were read first.
    (office / "queries.jsonl").unlink()
    before = sorted(office.rglob("*"))
    answer = evaluate(office, option, office / "none" / "x")
    assert answer.exit_code == 2
    assert f"Invalid value for '{option}': There is no folder" in answer.stderr
    assert "make it first" in answer.stderr
    answer = evaluate(office, option, office)
    assert "is a folder; name a file in it" in " ".join(answer.stderr.split())
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    for file in (office / "new", office / "tools.jsonl"):
        answer = evaluate(office, "--dump", office / "y", option, file)
        assert "may not be written; choose another file" in " ".join(answer.stderr.split())
    assert sorted(office.rglob("*")) == before


def test_whoever_watches_sees_a_bar(office: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, Any]] = []
    real = click.progressbar

    def watched(*arguments: Any, **options: Any) -> Any:
        shown.append(options)
        return real(*arguments, **options)

    monkeypatch.setattr("click.progressbar", watched)
    assert evaluate(office, "--mode", "lexical").exit_code == 0
    assert shown == []
    monkeypatch.setattr("toolcrib.cli.eval.is_terminal", lambda: True)
    answer = evaluate(office, "--mode", "lexical")
    assert (shown[0]["length"], shown[0]["label"]) == (4, "office lexical")
    for columns, label in ((48, "office…"), (30, None)):
        monkeypatch.setattr("toolcrib.cli.eval.width", lambda columns=columns: columns)
        evaluate(office, "--mode", "lexical")
        assert shown[-1]["label"] == label
    assert f"{'  hit@1':36}100.0" in answer.stdout
