from __future__ import annotations

from collections.abc import Sequence

from tests.embedders.scripted import Meaning, WordEmbedder
from tests.search.meaning import Slow, Vectors, Words
from toolcrib import Catalog, SearchEngine, SearchResult, Tool
from toolcrib.embedders.cache import CachedEmbedder
from toolcrib.embedders.fallback import FallbackRanker
from toolcrib.search.dense.embedder import Embedder
from toolcrib.search.dense.index import DenseRanker

CATALOG = Catalog(
    [Tool("a", "send an email"), Tool("b", "read the weather"), Tool("c", "resize a picture")]
)
FALLEN = ("the embedder is down; the one to fall back on has answered",)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Stage:
    """A first embedder of width 32, a second of width 64, and an engine over both."""

    def __init__(self, *, down: bool = False, first: Embedder | None = None) -> None:
        self.clock = Clock()
        self.first, self.second = WordEmbedder(32), WordEmbedder(64)
        self.first.down = down
        self.ranker = FallbackRanker(
            Meaning(first or self.first, 32), Meaning(self.second, 64), clock=self.clock
        )
        self.engine = SearchEngine(CATALOG, {"meaning": self.ranker})

    def search(self, query: str = "the weather outside") -> SearchResult:
        return self.engine.search(query)

    def reader(self) -> str:
        """Which table answers now."""
        return self.search().hits[0].reasons[0].field


def test_the_first_answers_while_it_is_up() -> None:
    stage = Stage()
    result = stage.search()
    assert result.hits[0].tool.id == "b"
    assert result.notes == ()
    assert stage.reader() == "meaning, 32 wide"
    assert stage.ranker.primary_error is None


def test_both_tables_are_built_so_that_the_second_is_ready() -> None:
    stage = Stage()
    stage.search()
    assert stage.second.asked == [tool.description for tool in CATALOG]


def test_when_the_first_goes_down_the_second_answers_from_its_own_table() -> None:
    stage = Stage()
    stage.search()
    stage.first.down = True
    result = stage.search()
    # Vectors of 32 and of 64 numbers: had they met, numpy would have refused.
    assert result.hits[0].tool.id == "b"
    assert result.notes == FALLEN
    assert stage.reader() == "meaning, 64 wide"
    assert "scripted embedder is down" in str(stage.ranker.primary_error)


def test_a_failed_embedder_is_left_alone_for_a_while_and_then_asked_again() -> None:
    stage = Stage()
    stage.search()
    stage.first.down = True
    stage.search()
    stage.first.down = False
    stage.clock.now = 29.9
    assert stage.search().notes == FALLEN
    stage.clock.now = 30.0
    assert stage.search().notes == ()
    assert stage.ranker.primary_error is None
    assert stage.reader() == "meaning, 32 wide"


def test_an_embedder_that_is_down_at_the_start_gets_its_table_when_it_is_up() -> None:
    stage = Stage(down=True)
    assert stage.search().notes == FALLEN
    assert stage.first.asked == []
    stage.first.down = False
    stage.clock.now = 31
    assert stage.search().notes == ()
    assert stage.first.asked[:3] == [tool.description for tool in CATALOG]


def test_tools_that_came_while_the_first_was_down_are_found_then_and_later() -> None:
    stage = Stage()
    stage.search()
    stage.first.down = True
    later = CATALOG.without(["b"]).with_tools([Tool("d", "water the garden")])
    engine = stage.engine.with_catalog(later)
    assert engine.search("water the garden").hits[0].tool.id == "d"
    assert engine.search("water the garden").notes == FALLEN
    stage.first.down = False
    stage.clock.now = 31
    result = engine.search("water the garden")
    assert result.notes == ()
    assert result.hits[0].tool.id == "d"
    assert "b" not in [hit.tool.id for hit in result]
    # The engine of before goes on answering for its own catalog.
    assert stage.search().hits[0].tool.id == "b"


def test_several_catalogs_may_pass_while_the_first_is_down() -> None:
    stage = Stage(down=True)
    engine = stage.engine
    engine.search("email")
    catalog = CATALOG
    for number in range(3):
        catalog = catalog.with_tools([Tool(f"new{number}", f"task number{number}")])
        engine = engine.with_catalog(catalog)
        assert engine.search(f"number{number}").hits[0].tool.id == f"new{number}"
    stage.first.down = False
    stage.clock.now = 31
    result = engine.search("number1")
    assert (result.hits[0].tool.id, result.notes) == ("new1", ())


def test_with_a_cache_nothing_is_encoded_again_when_the_first_comes_back() -> None:
    words = WordEmbedder(32)
    stage = Stage(first=CachedEmbedder(words, "words"))
    stage.search("email")
    words.down = True
    stage.search("another question")
    words.down = False
    stage.clock.now = 31
    words.asked.clear()
    stage.engine.with_catalog(CATALOG.with_tools([Tool("d", "water the garden")])).search("email")
    assert words.asked == ["water the garden"]


class Unreachable(Slow):
    """Reads as `Slow` does, while there is a connection."""

    down = True

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        if self.down:
            raise ConnectionError("no route to the model")
        return super().embed_queries(texts)


def _twins(first: Embedder, second: Embedder) -> tuple[SearchEngine, FallbackRanker, Clock]:
    clock = Clock()
    ranker = FallbackRanker(DenseRanker(first), DenseRanker(second), clock=clock)
    tools = [Tool("forecast", "The weather", server=server) for server in ("sky", "sun")]
    return SearchEngine(Catalog(tools), {"meaning": ranker}), ranker, clock


def test_an_embedder_that_raises_anything_is_fallen_back_from() -> None:
    first = Unreachable()
    engine, ranker, clock = _twins(first, Words())
    assert engine.search("rain").notes == FALLEN
    assert isinstance(ranker.primary_error and ranker.primary_error.__cause__, ConnectionError)
    first.down, clock.now = False, 31
    assert engine.search("rain").notes == ()


def test_tools_are_grouped_whoever_answers() -> None:
    first = Unreachable()
    engine, _, clock = _twins(first, Words())
    for first.down, clock.now in ((True, 0), (False, 31), (True, 62)):
        result = engine.search("rain")
        assert (len(result), len(engine.group_hits(result))) == (2, 1)


def test_who_answers_is_settled() -> None:
    first, second = Unreachable(), Slow()
    engine, ranker, _ = _twins(first, second)
    assert engine.warm_up(max_tools=0) == 2
    assert ranker.primary_error is None
    # The first fails at it, so the second answers from now on.
    assert engine.warm_up(max_tools=1) == 1
    assert ranker.primary_error is not None
    assert engine.warm_up() == 0
    assert len(second.read) == 2

    first, second = Unreachable(), Slow()
    first.down = False
    engine, _, _ = _twins(first, second)
    assert engine.warm_up() == 0
    assert (len(first.read), second.read) == (2, [])
