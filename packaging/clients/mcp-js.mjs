// install: @modelcontextprotocol/sdk
import assert from "node:assert";
import net from "node:net";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const { URL: url, TOKEN, SCRIPTED } = process.env;

// A relay whose connections can be cut.
const sockets = new Set();
const relay = net.createServer(near => {
  const far = net.connect(Number(new URL(url).port), "127.0.0.1");
  for (const socket of [near, far]) {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => [near, far].forEach(one => one.destroy()));
  }
  near.pipe(far).pipe(near);
});
await new Promise(resolve => relay.listen(0, "127.0.0.1", resolve));
const cut = () => sockets.forEach(socket => socket.destroy());

const requestInit = { headers: { Authorization: `Bearer ${TOKEN}` } };
const endpoint = new URL(`http://127.0.0.1:${relay.address().port}/v1/mcp`);
const reconnectionOptions = {
  initialReconnectionDelay: 200,
  maxReconnectionDelay: 1000,
  reconnectionDelayGrowFactor: 1.5,
  maxRetries: 5,
};
const transport = new StreamableHTTPClientTransport(endpoint, { requestInit, reconnectionOptions });
const client = new Client({ name: "try-clients", version: "1" }, {});
await client.connect(transport);
assert((await client.listTools()).tools.some(tool => tool.name === "agent"));
const ask = (prompt, options) => client.callTool({ name: "agent", arguments: { prompt } }, undefined, options);
console.log((await ask("Say hello.")).content[0].text);
await assert.rejects(client.callTool({ name: "no-such-tool", arguments: {} }), /list_sessions/);
if (SCRIPTED) {
  const slow = ask("slowly");
  for (const milliseconds of [700, 1700]) setTimeout(cut, milliseconds); // the second time before any event came
  assert.strictEqual((await slow).content[0].text.trim().split(" ").length, 100);
  const abort = new AbortController();
  setTimeout(() => abort.abort("enough"), 500);
  await assert.rejects(ask("slowly", { signal: abort.signal }), /enough/);
}
await transport.terminateSession();
await client.close();
relay.close();
cut();
console.log("good");
