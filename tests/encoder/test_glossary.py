from __future__ import annotations

from importlib.resources import files

import pytest

from toolcrib.core.catalog import Catalog
from toolcrib.core.tool import Tool
from toolcrib.encoder.glossary import LANGUAGES, MAX_CHARS, translate_to_english
from toolcrib.search.engine import SearchEngine


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mach die PDF-Datei kleiner", "make the pdf-file smaller"),
        ("Kontaktgruppen von Xero auflisten", "contact group from Xero list"),
        ("elimina las facturas vencidas", "delete the invoices overdue"),
        ("envoie un message à l'équipe", "send a message to the'team"),
        ("trova un ristorante qui vicino", "find a restaurant here nearby"),
        ("mostre os pedidos de ontem", "show the order of yesterday"),
        ("удали старые файлы", "delete old file"),
        ("对某个 Kubernetes deployment 扩缩容", "to some Kubernetes deployment scale"),
        ("データベースを検索して", "database search"),
        ("파일을 삭제해 줘", "file delete do please"),
    ],
)
def test_foreign_text_is_translated_word_by_word(text: str, expected: str) -> None:
    assert translate_to_english(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "?!",
        "create a merge request in gitlab",
        "list kubernetes pods",
        "LLM text completion",
        "book a table at Café de Flore for the four of us",
        "remove all the files in /home/de/www that are older than a week",
        "Zażółć gęślą jaźń",
        "ابحث عن ملف",
    ],
)
def test_english_and_unsupported_languages_stay_unchanged(text: str) -> None:
    assert translate_to_english(text) == text


def test_unknown_words_stay_unchanged() -> None:
    assert "Zendesk" in translate_to_english("Zeig alle Tickets von Zendesk")
    assert "踩" in translate_to_english("给评论点踩")


def test_japanese_without_kana_is_translated() -> None:
    assert translate_to_english("GitLab MR承認") == "GitLab MR approve"


def test_only_the_start_of_a_long_text_is_translated() -> None:
    assert len(translate_to_english("文" * 100_000).split()) <= MAX_CHARS


def test_related_languages_are_distinguished() -> None:
    assert "Tuesday".lower() in translate_to_english("marca uma reunião com a equipe na terça")
    assert "Tuesday".lower() in translate_to_english("programa una reunión con el equipo el martes")


@pytest.mark.parametrize("language", LANGUAGES)
def test_glossaries_are_well_formed(language: str) -> None:
    path = files("toolcrib.encoder") / "data" / "glossary" / f"{language}.tsv"
    lines = path.read_text(encoding="utf-8").splitlines()
    words = [line.split("\t")[0] for line in lines]
    assert all(line.count("\t") == 1 for line in lines)
    assert words == sorted(set(words))
    assert all(word == word.lower().strip() and word.strip("*") for word in words)


@pytest.mark.parametrize("mode", ["hybrid", "fast", "dense"])
def test_foreign_queries_find_english_tools(mode: str) -> None:
    catalog = Catalog(
        [
            Tool("resize_image", "Change the width and height of a picture."),
            Tool("scale_deployment", "Set how many replicas of a deployment run in the cluster."),
            Tool("refund_payment", "Give the money of an order back to the customer."),
            Tool("get_weather", "Tell the weather of a place."),
        ]
    )
    engine = SearchEngine(catalog)
    expected = {
        "gib dem Kunden sein Geld zurück": "refund_payment",
        "把部署扩容到五个副本": "scale_deployment",
        "画像のサイズを変更したい": "resize_image",
        "какая завтра погода?": "get_weather",
    }
    for query, name in expected.items():
        assert engine.search(query, mode=mode).hits[0].tool.name == name, query


def test_foreign_tools_are_found_in_english_and_in_their_own_language() -> None:
    catalog = Catalog(
        [
            Tool("t1", "查询指定城市的天气预报"),
            Tool("t2", "删除数据库中的用户"),
            Tool("t3", "Verschickt eine Rechnung an den Kunden"),
        ]
    )
    engine = SearchEngine(catalog)
    assert engine.search("what will the weather be tomorrow").hits[0].tool.name == "t1"
    assert engine.search("删除用户").hits[0].tool.name == "t2"
    assert engine.search("bill somebody").hits[0].tool.name == "t3"
