"""A LlamaIndex agent with tool search.

Run it with `pip install 'toolcrib[llama-index]' llama-index-llms-openai` and an OPENAI_API_KEY:

    python examples/with_llama_index.py
"""

from __future__ import annotations

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.llms.openai import OpenAI

from toolcrib.demo import office
from toolcrib.frameworks.llama_index import ToolcribRetriever


def agent(llm: FunctionCallingLLM) -> FunctionAgent:
    """Return the agent; the retriever has all tools."""
    return FunctionAgent(llm=llm, tool_retriever=ToolcribRetriever(office.tools()))


async def run() -> None:
    """Run the agent with one task."""
    print(await agent(OpenAI(model="gpt-5.4-mini")).run(office.TASK))


def main() -> None:
    """Run the agent in an event loop."""
    asyncio.run(run())


if __name__ == "__main__":
    main()
