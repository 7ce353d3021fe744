// install: @openai/agents openai zod
import assert from "node:assert";
import * as agents from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";

const { URL: url, TOKEN: apiKey, MODEL, SCRIPTED } = process.env;
const { Agent, run } = agents;
agents.setTracingDisabled(true);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
const execute = async ({ city }) => `sunny in ${city}`;
const about = { name: "weather", description: "Tells the weather.", parameters: z.object({ city: z.string() }) };
const weather = agents.tool({ ...about, execute });
const outputType = z.object({ city: z.string(), people: z.number() });

for (const Kind of [agents.OpenAIResponsesModel, agents.OpenAIChatCompletionsModel]) {
  const model = new Kind(client, MODEL);
  const agent = new Agent({ name: "a", model, tools: [weather] });
  const chats = Kind === agents.OpenAIChatCompletionsModel; // which cannot read items that come back from a server
  const session = chats ? new agents.MemorySession() : new agents.OpenAIConversationsSession({ client });
  const streamed = await run(agent, "Say hello.", { stream: true, session });
  await streamed.completed;
  console.log(streamed.finalOutput);
  if (SCRIPTED) {
    const ran = await run(agent, `weather openai-agents-js ${Number(chats)}`, { session });
    const results = ran.newItems.filter(item => item.type === "tool_call_output_item").map(item => item.output);
    assert.deepStrictEqual(results, ["sunny in Ulm", "sunny in Bonn"]);
    const form = new Agent({ name: "b", model, outputType });
    assert.deepStrictEqual((await run(form, "as an object")).finalOutput, { city: "Ulm", people: 3 });
  }
  assert((await run(agent, "Once more.", { session })).finalOutput);
  assert((await session.getItems()).length >= 4);
  assert(await session.popItem());
  await session.clearSession();
}
console.log("good");
