// install: ai @ai-sdk/openai @ai-sdk/openai-compatible @ai-sdk/anthropic zod
import assert from "node:assert";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

globalThis.AI_SDK_LOG_WARNINGS = false;
const { URL: url, TOKEN: apiKey, MODEL, SCRIPTED, DOT } = process.env;
const baseURL = `${url}/v1`;
const openai = createOpenAI({ baseURL, apiKey });
const compatible = { name: "here", baseURL, apiKey, includeUsage: true, supportsStructuredOutputs: true };
const kinds = [openai.responses, openai.chat, createOpenAICompatible(compatible), createAnthropic({ baseURL, apiKey })];
const schema = z.object({ city: z.string(), people: z.number() });
const execute = async ({ city }) => `sunny in ${city}`;
const tools = { weather: tool({ inputSchema: z.object({ city: z.string() }), execute }) };
const providerOptions = { openai: { forceReasoning: true, reasoningSummary: "auto" } };

for (const [number, kind] of kinds.entries()) {
  const given = { model: kind(MODEL), maxRetries: 0 };
  const said = streamText({ ...given, prompt: "Say hello." });
  console.log(await said.text);
  assert((await said.usage).totalTokens);
  await assert.rejects(generateText({ ...given, model: kind("no-such-model"), prompt: "x" }), { statusCode: 404 });
  if (!SCRIPTED) continue;
  const stopWhen = stepCountIs(3);
  const called = await generateText({ ...given, prompt: `weather ai-sdk ${number}`, tools, stopWhen });
  assert.deepStrictEqual(called.steps[0].toolResults.map(result => result.output), ["sunny in Ulm", "sunny in Bonn"]);
  const begun = [{ role: "user", content: "Go." }, ...called.response.messages];
  const messages = [...begun, { role: "user", content: "Once more." }];
  assert((await generateText({ ...given, messages })).text);
  const none = await generateText({ ...given, prompt: `weather ai-sdk ${number + 4}`, tools, toolChoice: "none" });
  assert.strictEqual(none.finishReason, "stop");
  const form = await generateText({ ...given, prompt: "as an object", output: Output.object({ schema }) });
  assert.deepStrictEqual(form.output, { city: "Ulm", people: 3 });
  const thought = await generateText({ ...given, prompt: "think", providerOptions });
  if (kind !== openai.chat) assert.strictEqual(thought.reasoningText, "First I think."); // which drops reasoning
  const image = [{ type: "image", image: DOT, mediaType: "image/png" }];
  await generateText({ ...given, messages: [{ role: "user", content: image }] });
  const ran = streamText({ ...given, model: kind("agent/default"), prompt: `compute ${number}` });
  for await (const part of ran.fullStream) assert.notStrictEqual(part.type, "error", String(part.error));
  const abort = new AbortController();
  const slow = streamText({ ...given, prompt: "slowly", abortSignal: abort.signal });
  const parts = [];
  for await (const part of slow.fullStream) {
    parts.push(part.type);
    if (part.type === "text-delta") abort.abort();
  }
  assert.strictEqual(parts.at(-1), "abort");
}
console.log("good");
