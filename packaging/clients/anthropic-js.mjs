// install: @anthropic-ai/sdk zod
import assert from "node:assert";
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";

const { URL: url, TOKEN, MODEL, SCRIPTED, DOT } = process.env;
const client = new Anthropic({ baseURL: url, apiKey: TOKEN, maxRetries: 0 });
const given = { model: MODEL, max_tokens: 100 };
const said = content => [{ role: "user", content }];
const schema = { type: "object", properties: { city: { type: "string" } } };

const whole = await client.messages.stream({ ...given, messages: said("Say hello.") }).finalMessage();
console.log(whole.content.at(-1).text, whole.usage.output_tokens);
await assert.rejects(client.messages.create({ ...given, model: "no-such-model", messages: said("x") }), {
  status: 404,
  type: "not_found_error",
});
if (SCRIPTED) {
  const seen = [];
  const run = ({ city }) => seen.push(city) && `sunny in ${city}`;
  const tools = [{ name: "weather", input_schema: schema, parse: input => input, run }];
  const asked = { ...given, messages: said("weather anthropic-js 1"), tools };
  console.log((await client.beta.messages.toolRunner(asked)).content[0].text);
  assert.deepStrictEqual(seen.sort(), ["Bonn", "Ulm"]);
  const format = zodOutputFormat(z.object({ city: z.string(), people: z.number() }));
  const parsed = await client.messages.parse({ ...given, messages: said("as an object"), output_config: { format } });
  assert.deepStrictEqual(parsed.parsed_output, { city: "Ulm", people: 3 });
  const source = { type: "base64", media_type: "image/png", data: DOT };
  await client.messages.create({ ...given, messages: said([{ type: "image", source }]) });
  const slow = client.messages.stream({ ...given, messages: said("slowly") });
  slow.once("text", () => slow.abort());
  await assert.rejects(slow.finalMessage(), Anthropic.APIUserAbortError);
  const broken = client.messages.stream({ ...given, messages: said("break") }).finalMessage();
  await assert.rejects(broken, { type: "overloaded_error" });
}
console.log("good");
