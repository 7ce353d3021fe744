// install: openai zod
import assert from "node:assert";
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const { URL: url, TOKEN, MODEL: model, SCRIPTED, DOT } = process.env;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: TOKEN, maxRetries: 0 });
const said = content => [{ role: "user", content }];
const schema = { type: "object", properties: { city: { type: "string" } } };
const place = z.object({ city: z.string(), people: z.number() });
const ulm = { city: "Ulm", people: 3 };

const chat = { model, messages: said("Say hello."), stream_options: { include_usage: true } };
const whole = await client.chat.completions.stream(chat).finalChatCompletion();
console.log(whole.choices[0].message.content);
assert(whole.usage.total_tokens);
const first = await client.responses.create({ model, input: "Say hello." });
const more = await client.responses.stream({ model, input: "Once more.", previous_response_id: first.id }).finalResponse();
console.log(more.output_text, more.usage.total_tokens);
const wrong = client.chat.completions.create({ model: "no-such-model", messages: said("x") });
await assert.rejects(wrong, { status: 404, code: "model_not_found" });
const talk = await client.conversations.create({ items: said("I am Ada.") });
assert.strictEqual((await client.conversations.items.list(talk.id)).data[0].role, "user");
await client.conversations.delete(talk.id);
if (SCRIPTED) {
  const weather = { name: "weather", parameters: schema, parse: JSON.parse, function: ({ city }) => `sunny in ${city}` };
  const tools = [{ type: "function", function: weather }];
  const run = client.chat.completions.runTools({ model, stream: true, messages: said("weather openai-js 1"), tools });
  console.log(await run.finalContent());
  const results = run.messages.filter(message => message.role === "tool").map(message => message.content);
  assert.deepStrictEqual(results, ["sunny in Ulm", "sunny in Bonn"]);
  const form = { model, messages: said("as an object"), response_format: zodResponseFormat(place, "place") };
  assert.deepStrictEqual((await client.chat.completions.parse(form)).choices[0].message.parsed, ulm);
  const text = { format: zodTextFormat(place, "place") };
  assert.deepStrictEqual((await client.responses.parse({ model, input: "as an object", text })).output_parsed, ulm);
  const picture = { type: "image_url", image_url: { url: `data:image/png;base64,${DOT}` } };
  await client.chat.completions.create({ model, messages: said([picture]) });
  const slow = await client.chat.completions.create({ model, messages: said("slowly"), stream: true });
  for await (const _ of slow) break;
  const broken = client.chat.completions.create({ model, messages: said("break") });
  await assert.rejects(broken, OpenAI.InternalServerError);
}
console.log("good");
