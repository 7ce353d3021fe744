# install: langchain-openai langchain-anthropic langgraph
import os

from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel

URL, TOKEN, MODEL = os.environ["URL"], os.environ["TOKEN"], os.environ["MODEL"]


class Place(BaseModel):
    """A place."""

    city: str
    people: int


def weather(city: str) -> str:
    """Tells the weather of a city."""
    return "sunny in " + city


given = {"model": MODEL, "api_key": TOKEN, "max_retries": 0}
summary = {"reasoning": {"summary": "auto"}, "output_version": "v1"}
for number, model in enumerate(
    (
        ChatOpenAI(base_url=URL + "/v1", stream_usage=True, **given),
        ChatOpenAI(base_url=URL + "/v1", use_responses_api=True, **summary, **given),
        ChatAnthropic(base_url=URL, max_tokens=100, **given),
    ),
    start=1,
):
    whole = None
    for chunk in model.stream("Say hello."):
        whole = chunk if whole is None else whole + chunk
    print(whole.text)
    assert whole.usage_metadata["total_tokens"], whole
    if "SCRIPTED" in os.environ:
        bound = model.bind_tools([weather])
        graph = StateGraph(MessagesState).add_node("tools", ToolNode([weather]))
        graph.add_node("model", lambda state, bound=bound: {"messages": [bound.invoke(state["messages"])]})
        graph.add_edge(START, "model").add_conditional_edges("model", tools_condition).add_edge("tools", "model")
        said = graph.compile().invoke({"messages": [("user", f"weather langchain-openai {number}")]})["messages"]
        assert [message.text for message in said[2:4]] == ["sunny in Ulm", "sunny in Bonn"], said
        found = model.with_structured_output(Place, method="json_schema").invoke("as an object")
        assert found == Place(city="Ulm", people=3), found
        if number > 1:
            thought = model.invoke("think").content_blocks[0]
            assert (thought["type"], thought.get("reasoning")) == ("reasoning", "First I think."), thought
print("good")
