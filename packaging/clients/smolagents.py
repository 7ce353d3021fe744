# install: smolagents[openai]
import os

from smolagents import OpenAIServerModel, ToolCallingAgent, tool

model = OpenAIServerModel(os.environ["MODEL"], api_base=os.environ["URL"] + "/v1", api_key=os.environ["TOKEN"])


@tool
def weather(city: str) -> str:
    """Tells the weather of a city.

    Args:
        city: The city.
    """
    return "sunny in " + city


said = [{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}]
deltas = list(model.generate_stream(said))
print("".join(delta.content or "" for delta in deltas))
assert deltas[-1].token_usage.total_tokens, deltas
if "SCRIPTED" in os.environ:
    agent = ToolCallingAgent([weather], model, max_steps=3)
    answer = agent.run("weather smolagents 1")
    observed = [step.observations for step in agent.memory.steps if getattr(step, "observations", None)]
    assert all(f"sunny in {city}" in observed[0] for city in ("Ulm", "Bonn")), observed
    assert answer == "It is sunny.", answer
print("good")
