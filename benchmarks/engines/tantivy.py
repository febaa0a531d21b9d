"""Tantivy in RAM: four boosted fields and a flat boolean of terms, the fastest configuration we found."""

from typing import Any

from tantivy import Document, Index, Occur, Query, SchemaBuilder

from benchmarks.engines.contender import LIMIT, parameter_text, terms
from benchmarks.generate import Row

BOOSTS = {"name": 5.0, "description": 2.0, "parameters": 1.0, "tags": 2.0}
WRITER_BYTES = 128_000_000

Fields = dict[str, Any]


class Tantivy:
    """A change is visible after a commit and a reload."""

    def __init__(self) -> None:
        builder = SchemaBuilder()
        for field in BOOSTS:
            builder.add_text_field(field, index_option="freq")
        builder.add_text_field("server", tokenizer_name="raw", index_option="basic")
        builder.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
        builder.add_integer_field("number", indexed=True, fast=True)
        self._schema = builder.build()
        self._index = Index(self._schema)
        self._writer = self._index.writer(WRITER_BYTES, num_threads=1)
        self._numbers: dict[str, int] = {}
        self._next = 0

    def prepare(self, row: Row) -> Fields:
        return {
            "id": row["id"],
            "server": row["server"],
            "name": " ".join(terms(row["id"])),
            "description": row["description"],
            "parameters": parameter_text(row),
            "tags": " ".join(row["tags"]),
        }

    def fit(self, tools: list[Fields]) -> None:
        for tool in tools:
            self._insert(tool)
        self._show()

    def search(self, query: str) -> list[str]:
        return self._find(self._any_word(query))

    def search_server(self, query: str, server: str) -> list[str]:
        of_server = Query.term_query(self._schema, "server", server, index_option="basic")
        return self._find(self._any_word(query), of_server)

    def search_allowed(self, query: str, allowed: frozenset[str]) -> list[str]:
        numbers = [self._numbers[id] for id in allowed if id in self._numbers]
        among = Query.term_set_query(self._schema, "number", numbers)
        return self._find(self._any_word(query), among)

    def add(self, tool: Fields) -> None:
        self._insert(tool)
        self._show()

    def remove(self, id: str) -> None:
        self._writer.delete_documents("id", id)
        self._numbers.pop(id)
        self._show()

    def _insert(self, tool: Fields) -> None:
        self._numbers[tool["id"]] = self._next
        document = Document.from_dict({**tool, "number": self._next}, self._schema)
        self._writer.add_document(document)
        self._next += 1

    def _show(self) -> None:
        self._writer.commit()
        self._index.reload()
        self._searcher = self._index.searcher()

    def _any_word(self, query: str) -> Query:
        return Query.boolean_query(
            [
                (Occur.Should, Query.boost_query(self._word(field, word), boost))
                for word in terms(query)
                for field, boost in BOOSTS.items()
            ]
        )

    def _word(self, field: str, word: str) -> Query:
        return Query.term_query(self._schema, field, word, index_option="freq")

    def _find(self, query: Query, condition: Query | None = None) -> list[str]:
        if condition is not None:
            must = Query.const_score_query(condition, 0.0)
            query = Query.boolean_query([(Occur.Must, query), (Occur.Must, must)])
        hits = self._searcher.search(query, LIMIT, count=False).hits
        return [str(self._searcher.doc(address).get_first("id")) for _, address in hits]


def contender() -> Tantivy:
    """Return the engine."""
    return Tantivy()
