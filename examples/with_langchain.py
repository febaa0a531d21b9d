"""A LangChain agent with tool search.

Run it with `pip install 'toolcrib[langchain]' langchain-openai` and an OPENAI_API_KEY:

    python examples/with_langchain.py
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from toolcrib.demo import office
from toolcrib.frameworks.langchain import ToolcribMiddleware


def agent(model: BaseChatModel, **options: Any) -> Any:
    """Return the agent with all its tools; the middleware selects those the model sees."""
    tools = [tool(function) for function in office.tools()]
    return create_agent(model, tools, middleware=[ToolcribMiddleware()], **options)


def main() -> None:
    """Run the agent with one task."""
    state = {"messages": [("user", office.TASK)]}
    print(agent(ChatOpenAI(model="gpt-5.4-mini")).invoke(state)["messages"][-1].content)


if __name__ == "__main__":
    main()
