// A client of one of the TypeScript SDKs: calls a tool, waits for a line on standard input, calls it again.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, sdk, url, token] = process.argv.slice(2);
const require = createRequire(`${modules}/index.js`);
const load = (name) => import(pathToFileURL(require.resolve(name)).href).then((found) => found.default ?? found);
const { Client, StreamableHTTPClientTransport } =
  sdk === "1"
    ? {
        ...(await load("@modelcontextprotocol/sdk/client/index.js")),
        ...(await load("@modelcontextprotocol/sdk/client/streamableHttp.js")),
      }
    : await load("@modelcontextprotocol/client");

const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${token}` } },
});
const client = new Client({ name: "restarted", version: "1" }, { capabilities: {} });
client.onerror = (error) => process.stderr.write(`${error}\n`);
await client.connect(transport);
const call = async () => {
  const result = await client.callTool({ name: "lab_echo", arguments: { text: "hi" } });
  process.stdout.write(`${JSON.stringify(result.structuredContent)}\n`);
};
await call();
for await (const _ of createInterface({ input: process.stdin })) await call().catch((error) => process.stdout.write(`${error}\n`));
process.exit(0);
