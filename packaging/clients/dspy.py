# install: dspy
import os

import dspy

for kind in ("chat", "responses"):
    given = {"api_base": os.environ["URL"] + "/v1", "api_key": os.environ["TOKEN"], "cache": False}
    model = dspy.LM(f"openai/{os.environ['MODEL']}", model_type=kind, num_retries=0, **given)
    print(model("Say hello."))
    assert model.history[-1]["usage"], model.history
    if "SCRIPTED" in os.environ:
        with dspy.context(lm=model, adapter=dspy.JSONAdapter()):
            found = dspy.Predict("question -> city: str, people: int")(question="as an object")
        assert (found.city, found.people) == ("Ulm", 3), found
print("good")
