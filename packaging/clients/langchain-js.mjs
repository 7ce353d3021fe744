// install: @langchain/openai @langchain/core zod
import assert from "node:assert";
import { HumanMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";

const { URL: url, TOKEN: apiKey, MODEL: model, SCRIPTED } = process.env;
const about = { name: "weather", description: "Tells the weather.", schema: z.object({ city: z.string() }) };
const weather = tool(async ({ city }) => `sunny in ${city}`, about);
const place = z.object({ city: z.string(), people: z.number() });

for (const useResponsesApi of [false, true]) {
  const given = { apiKey, useResponsesApi, maxRetries: 0, configuration: { baseURL: `${url}/v1` } };
  const chat = new ChatOpenAI({ model, ...given });
  let whole;
  for await (const chunk of await chat.stream("Say hello.")) whole = whole ? whole.concat(chunk) : chunk;
  console.log(whole.text);
  assert(whole.usage_metadata.total_tokens);
  await assert.rejects(new ChatOpenAI({ model: "no-such-model", ...given }).invoke("x"), { status: 404 });
  if (!SCRIPTED) continue;
  const bound = chat.bindTools([weather]);
  const turns = [new HumanMessage(`weather langchain-js ${Number(useResponsesApi)}`)];
  turns.push(await bound.invoke(turns));
  for (const call of turns[1].tool_calls) turns.push(await weather.invoke(call));
  assert.deepStrictEqual(turns.slice(2).map(turn => turn.content), ["sunny in Ulm", "sunny in Bonn"]);
  assert((await bound.invoke(turns)).text);
  const strict = chat.withStructuredOutput(place, { method: "jsonSchema", strict: true });
  assert.deepStrictEqual(await strict.invoke("as an object"), { city: "Ulm", people: 3 });
}
console.log("good");
