// install: @mastra/core zod
import assert from "node:assert";
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";

const { URL: url, TOKEN: apiKey, MODEL, SCRIPTED } = process.env;
const asked = [];
const execute = async input => {
  asked.push(input.city ?? input.context.city); // as the first argument, or in it, depending on the version
  return { sky: "sunny" };
};
const inputSchema = z.object({ city: z.string() });
const weather = createTool({ id: "weather", description: "Tells the weather of a city.", inputSchema, execute });
const model = { id: `here/${MODEL}`, url: `${url}/v1`, apiKey };
const agent = new Agent({ id: "a", name: "a", instructions: "Help.", model, tools: { weather } });

console.log((await agent.generate("Say hello.")).text);
let streamed = "";
for await (const text of (await agent.stream("Say hello.")).textStream) streamed += text;
assert(streamed);
if (SCRIPTED) {
  await agent.generate("weather mastra 1");
  assert.deepStrictEqual(asked.sort(), ["Bonn", "Ulm"]);
}
console.log("good");
