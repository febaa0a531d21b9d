from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.search.query.segments import MAX_SEGMENTS, drop_statements, find_names, split_passages, split_segments


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("resize a picture", ("resize a picture",)),
        ("", ("",)),
        ("find the invoice and mail it to Ann", ("find the invoice", "mail it to Ann")),
        # A conjunction between two nouns does not separate segments.
        ("book a flight from Lisbon and Porto", ("book a flight from Lisbon and Porto",)),
        # A sentence without a request joins the next segment, or the last one if none follows.
        ("the car is dirty. Wash it. Then sell it.", ("the car is dirty Wash it", "sell it")),
        ("wash the car, then sell it; nobody drives", ("wash the car", "sell it nobody drives")),
        # A label at the start applies to every segment.
        ("in Jira: open a ticket, then assign it to me", ("in Jira: open a ticket", "in Jira: assign it to me")),
        ("please stop, could you start again?", ("please stop", "start again")),
        # A conjunction separates segments without spaces around it; a full stop needs a space.
        ("sort the files/AND/list them", ("sort the files/", "/list them")),
        ("list parser.py or run it?", ("list parser.py or run it?",)),
    ],
)
def test_query_is_split_where_a_request_starts(query: str, expected: tuple[str, ...]) -> None:
    assert split_segments(query) == expected


@pytest.mark.parametrize(
    "query",
    [
        "find a flight\nbook a hotel",
        "1. find a flight\n2. book a hotel",
        "1. find a flight 2. book a hotel",
        "1) find a flight\n2) book a hotel",
        "1) find a flight 2) book a hotel",
        "(1) find a flight (2) book a hotel",
        "a) find a flight b) book a hotel",
        "A. find a flight B. book a hotel",
        "Step 1: find a flight. Step 2: book a hotel.",
        "step 1 find a flight step 2 book a hotel",
        "- find a flight\n- book a hotel",
        "* find a flight\n  * book a hotel",
        "• find a flight\n• book a hotel",
        "find a flight • book a hotel",
        "find a flight / book a hotel",
        "find a flight -> book a hotel",
        "find a flight → book a hotel",
        "find a flight; a tool to book a hotel",
        "I need tools that can find a flight and book a hotel",
        "is there a way to find a flight, and I need something that can book a hotel",
    ],
)
def test_list_is_split_into_items(query: str) -> None:
    assert split_segments(query) == ("find a flight", "book a hotel")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("- Weather lookup\n- Slack", ("Weather lookup", "Slack")),
        ("1. stock prices 2. the weather", ("stock prices", "the weather")),
        ("Wanted:\n1) stock prices\n2) weather", ("Wanted: stock prices", "Wanted: weather")),
        ("stock prices; air quality", ("stock prices", "air quality")),
        ("stock prices\nweather in Rome", ("stock prices", "weather in Rome")),
        ("I should find a flight and book a hotel", ("I should find a flight", "book a hotel")),
        ("getting the weather; posting to Slack", ("getting the weather", "posting to Slack")),
        (
            "tools for getting the weather, posting to Slack and reading my mail",
            ("getting the weather", "posting to Slack", "reading my mail"),
        ),
        # If the other parts begin with a verb, a gerund describes the circumstances of the next part.
        (
            "starting at the homepage, log in, open the profile and log out",
            ("starting at the homepage log in", "open the profile", "log out"),
        ),
    ],
)
def test_list_items_and_short_notes_are_segments(query: str, expected: tuple[str, ...]) -> None:
    assert split_segments(query) == expected


@pytest.mark.parametrize(
    "query",
    [
        "see section 1. and section 2. for details",
        "- the only one of its kind",
        "I have two files; one is large",
        "our seminar has several dates; when are they",
        'put "nop; nop" at 0x401122',
        "call eig with [2 0; 0 3]",
        "the photos of last year that show the old house; the new one",
        "reading and writing files",
        "create a shopping list with\n- milk\n- eggs\n- bread",
        "invite to the meeting:\n1. Ann\n2. Bob",
        "stock price of AAPL; MSFT; GOOG",
        "weather in Paris; London; Rome",
        "hotel in Berlin; 5 May; 2 guests",
        "a photo of a cat; watercolor; soft light",
        "x = 1; y = 2",
        "Ann Smith\nHigh Street 5\nOxford",
        "the quick brown fox\njumps over the dog",
        "used npm in a repo; right way: pnpm",
        "shipping costs and tracking numbers for my order",
        "building permits, planning rules and parking zones",
        "who has not answered and should get a nudge first?",
        "I need some help with my photos, which are too large",
    ],
)
def test_apparent_list_is_one_segment(query: str) -> None:
    assert len(split_segments(query)) == 1


@pytest.mark.parametrize(
    "query",
    [
        # A number or letter before a parenthesis is not always a list marker.
        "find seat b) in the plan of room 12) on the second floor",
        "find a table for 2) at ten",
        "move the file a/b -> c/d",
        "rate and/or sort",
    ],
)
def test_apparent_list_numbers_are_not_a_list(query: str) -> None:
    assert split_segments(query) == (query,)


@pytest.mark.parametrize(
    "query",
    [
        "What's the weather in Paris? Email it to Bob.",
        "What’s the weather in Paris? Email it to Bob.",
        "Who's on call, and where's the handbook?",
        "How's the weather in Oslo? When's the next flight to Rome?",
        "could you maybe find a flight and possibly book a hotel",
        "lookup the user and unfollow them",
        "open the ticket and mention Bob",
        "get the report and email it",
        # "issue", "get" and "sort" are verbs here, although no article follows.
        "put her in the developers group and issue keys",
        "run project and get output",
        "list files & sort files",
    ],
)
def test_request_is_recognized_by_its_first_words(query: str) -> None:
    assert len(split_segments(query)) == 2


@pytest.mark.parametrize(
    "query",
    [
        "list my files, such as invoices and photos",
        "get the start and stop time of a process",
        "show the open and close price of a stock",
        "list the sort and filter options",
        "track play and pause events",
        "show win rates and pick rates",
        "find the cheapest plan and order by price",
        "show all the courses. Sort by date",
        "create a user with first, last and display name",
        "tell them that the copy is ready and design can start",
        "stop and start servers",
        "when did the build start, how long did it take",
        "what did the build say, how much?",
    ],
)
def test_single_request_is_not_split(query: str) -> None:
    assert split_segments(query) == (query,)


@pytest.mark.parametrize(
    ("query", "segments"),
    [
        ("glaze the pot and kiln it overnight", ("glaze the pot", "kiln it overnight")),
        ("fetch the report and DM her the link", ("fetch the report", "DM her the link")),
        ("please fetch the report, please glaze the pot", ("please fetch the report", "please glaze the pot")),
    ],
)
def test_word_before_an_article_or_a_pronoun_is_a_verb(query: str, segments: tuple[str, ...]) -> None:
    assert split_segments(query) == segments


@pytest.mark.parametrize(
    ("query", "segments"),
    [
        # The name of a service precedes the verb.
        ("hubspot create contact, search for deals", ("hubspot create contact", "search for deals")),
        ("Trello - make a card, archive the list", ("Trello: make a card", "Trello: archive the list")),
        (
            "Home Assistant – which lights are on, switch off the lamp",
            ("Home Assistant: which lights are on", "Home Assistant: switch off the lamp"),
        ),
        # Another person or service performs the step.
        ("clone the voice and have it read my script", ("clone the voice", "have it read my script")),
        # The request follows an explanation.
        (
            "the thing is, our base is a mess: could you search it for Bob, move it under HR",
            ("the thing is, our base is a mess: could you search it for Bob", "move it under HR"),
        ),
        ("make a bucket + write points", ("make a bucket", "write points")),
        ("can u pls visit the page, navigate to home", ("can u pls visit the page", "navigate to home")),
    ],
)
def test_request_after_other_words_is_a_segment(query: str, segments: tuple[str, ...]) -> None:
    assert split_segments(query) == segments


@pytest.mark.parametrize(
    "query",
    [
        "we are a bakery and we need to translate our menu",
        "show me trains Rome - Milan and their prices",
        "get the size and share of every company",
        "show the users and have been to Rome",
        "a server runs here and it lists files, sort by date",
        "book a table and then another table of the same size",
    ],
)
def test_apparent_request_after_other_words_is_no_segment(query: str) -> None:
    assert split_segments(query) == (query,)


@pytest.mark.parametrize(
    "query",
    [
        "find a hotel in Rome, preferably the one near the station",
        "write a report, including a table of sales",
        "find the flat with a balcony and without a kitchen",
        "we own a table of data and I need a chart",
        "compute the area of a triangle, given the sides",
        "list the rooms, S3 the bucket",
    ],
)
def test_other_words_before_an_article_are_no_verbs(query: str) -> None:
    assert split_segments(query) == (query,)


def test_things_that_one_verb_asks_for_are_segments() -> None:
    assert split_segments(
        "Get Apple's current share price, the dividends of last year and the cash flow statement"
    ) == ("Get Apple's current share price", "Get the dividends of last year", "Get the cash flow statement")


@pytest.mark.parametrize(
    "query",
    [
        "get the name, the email and the age of a user",
        "get the trains between our old office and the main station",
        "get the ratings of two events: a game in Rome and a match in Oslo",
        "show me the account I log in with, the password is secret",
        "show the first page",
        "compare the price of last year and the price of today",
    ],
)
def test_properties_of_one_thing_are_one_segment(query: str) -> None:
    assert split_segments(query) == (query,)


def test_question_about_something_else_is_a_segment() -> None:
    assert split_segments("who owns example.org, which ports are open on it and are there other domains") == (
        "who owns example.org",
        "which ports are open on it",
        "are there other domains",
    )


def test_follow_up_question_belongs_to_the_segment_before() -> None:
    assert split_segments("who wrote it? what does it say? what does Ann earn?") == (
        "who wrote it what does it say",
        "what does Ann earn",
    )


def test_number_of_segments_is_limited() -> None:
    assert len(split_segments(". ".join(["send one letter"] * 50))) == MAX_SEGMENTS


@given(st.text())
def test_no_text_is_lost_when_splitting(query: str) -> None:
    found = split_segments(query)
    assert found
    assert found == (query,) or len(found) > 1


def test_names_are_capitalized_words_except_the_first() -> None:
    assert find_names("Send it to our Telegram group in Oslo. Then call Bo") == ("Telegram", "Oslo", "Bo")
    assert find_names("send a mail") == ()
    assert find_names("SEND IT TO OUR TELEGRAM GROUP") == ()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("send an e-mail to Bob", ["send an e-mail to Bob"]),
        ("create an e-book from notes", ["create an e-book from notes"]),
        ("Find the e-book and send it by e-mail to me", ["Find the e-book", "send it by e-mail to me"]),
        ("cerca un volo e invia una mail", ["cerca un volo", "invia una mail"]),
        (
            "compare option a) with option b) and send the result",
            ["compare option a) with option b)", "send the result"],
        ),
        ("Step 1: restart server b. Step 2: send an email to Ann", ["restart server b", "send an email to Ann"]),
        ("1. Move the file to drive b. 2. Send an email to Ann", ["Move the file to drive b", "Send an email to Ann"]),
    ],
)
def test_apparent_separator_is_part_of_a_segment(query: str, expected: list[str]) -> None:
    assert list(split_segments(query)) == expected


@pytest.mark.parametrize(
    ("query", "segments"),
    [
        ("In Jira create a ticket, link it to the epic", ("In Jira: create a ticket", "In Jira: link it to the epic")),
        ("Within Notion, add a page and share it", ("Within Notion: add a page", "Within Notion: share it")),
        ("in the list all rows, sort it", ("in the list all rows, sort it",)),
        ("compare prices of Vercel, Render and Netlify", ("compare prices of Vercel, Render and Netlify",)),
        (
            "deploy it to Fly, Render and Vercel, then post a note",
            ("deploy it to Fly, Render and Vercel", "post a note"),
        ),
        ("Find a flight, Book a hotel", ("Find a flight", "Book a hotel")),
        (
            "in n8n switch off the invoice flow, then start it again",
            ("in n8n: switch off the invoice flow", "in n8n: start it again"),
        ),
    ],
)
def test_scope_and_names_do_not_split_a_request(query: str, segments: tuple[str, ...]) -> None:
    assert split_segments(query) == segments


IDLE = "We moved offices last month and half of the boxes are still closed. It is raining outside. "


def test_long_text_is_split_into_its_sentences() -> None:
    assert len(split_passages(IDLE * 2)) == 4
    assert len(split_passages(IDLE * 9)) <= MAX_SEGMENTS
    assert split_passages("The tap leaks. Call somebody about it.") == ()
    assert split_passages("word " * 50) == ()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (IDLE + "Translate the manual into Finnish. " + IDLE, "Translate the manual into Finnish."),
        ("I run a shop. rabbitmq list queues. That is all.", "rabbitmq list queues."),
        (
            "My boss is in a mood. The call is too loud, cut the line right now.",
            "The call is too loud, cut the line right now.",
        ),
        ("The van is old. I want to rent another one.", "I want to rent another one."),
        ("The van is old. Can we list cheaper ones?", "Can we list cheaper ones?"),
        # The request refers to the statement before it.
        (
            "It rains. Some workloads have no machine. What's blocking them?",
            "Some workloads have no machine. What's blocking them?",
        ),
        ("The van is old. Sell it.", "The van is old. Sell it."),
        # The sentence itself says what its pronouns stand for.
        (
            "It rains a lot. Find the people who never paid and call them.",
            "Find the people who never paid and call them.",
        ),
        ("Our list has duplicates. The shop is closed.", "Our list has duplicates. The shop is closed."),
        ("Find a flight. Book a hotel.", "Find a flight. Book a hotel."),
        # A question for the tool itself.
        ("Sort my photos by date. What's the best way to do this?", "Sort my photos by date."),
        ("Sort my photos by date. Which tool handles that best?", "Sort my photos by date."),
        ("Sort my photos by date. What should I use?", "Sort my photos by date."),
        ("Sort my photos. Which service handles refunds?", "Sort my photos. Which service handles refunds?"),
        ("What should I use?", "What should I use?"),
    ],
)
def test_statements_around_requests_are_dropped(query: str, expected: str) -> None:
    assert drop_statements(query) == expected
