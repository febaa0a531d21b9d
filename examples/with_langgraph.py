"""A LangGraph agent with tool search, like one built with langgraph-bigtool.

Run it with `pip install 'toolcrib[langgraph]' langchain-openai` and an OPENAI_API_KEY:

    python examples/with_langgraph.py
"""

from __future__ import annotations

from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from toolcrib.demo import office
from toolcrib.frameworks.langgraph import create_agent


def agent(model: BaseChatModel) -> Any:
    """Return the agent, with a checkpointer; no store of tools is needed."""
    registry = {function.__name__: function for function in office.tools()}
    return create_agent(model, registry).compile(checkpointer=InMemorySaver())


def main() -> None:
    """Run the agent with one task."""
    state = {"messages": [("user", office.TASK)]}
    thread = {"configurable": {"thread_id": "1"}}
    print(agent(ChatOpenAI(model="gpt-5.4-mini")).invoke(state, thread)["messages"][-1].content)


if __name__ == "__main__":
    main()
