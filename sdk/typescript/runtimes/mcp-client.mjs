// The official TypeScript client of the Model Context Protocol at work on a PandaStack server: one line of JSON for each step.
//   node client.mjs stdio COMMAND ARG…
//   node client.mjs http URL           with the key in PANDASTACK_API_KEY
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [kind, ...rest] = process.argv.slice(2);
const transport = kind === "stdio"
	? new StdioClientTransport({ command: rest[0], args: rest.slice(1), env: process.env })
	: new StreamableHTTPClientTransport(new URL(rest[0]), {
		requestInit: { headers: { Authorization: `Bearer ${process.env.PANDASTACK_API_KEY}` } },
		reconnectionOptions: { initialReconnectionDelay: 50, maxReconnectionDelay: 200, reconnectionDelayGrowFactor: 1, maxRetries: 20 },
	});
const client = new Client({ name: "typescript-test", version: "1" });
const say = (step, said) => console.log(JSON.stringify({ step, ...said }));
const blocks = (result) => result.content.map((b) => ({ type: b.type, mime: b.mimeType, text: b.text, bytes: b.data?.length }));
const run = async (code, options) => blocks(await client.callTool({ name: "run_code", arguments: { code } }, undefined, options));

await client.connect(transport);
say("tools", { names: (await client.listTools()).tools.map((t) => t.name) });
say("chart", { blocks: await run("kept = 41\nimport matplotlib.pyplot as plt\nplt.plot([1, 4, 9]); plt.show()\nkept + 1") });

const giveUp = new AbortController();
let heard = false;
try {
	await run("print('begun', flush=True)\nwhile True: pass", {
		signal: giveUp.signal, timeout: 60_000,
		onprogress: ({ message }) => { if (message === "begun") { heard = true; giveUp.abort("enough"); } },
	});
	say("cancelled", { error: null });
} catch (error) {
	say("cancelled", { error: String(error), heard });
}
say("kept", { blocks: await run("kept") });

if (kind === "http") {
	// Whoever reads this cuts the connection at the first word of it.
	let told = false;
	const slow = run("import time\nfor i in range(30):\n    print('tick', i, flush=True); time.sleep(0.1)\n'whole'", {
		timeout: 60_000, onprogress: () => { if (!told) { told = true; say("ticking", {}); } },
	});
	say("resumed", { blocks: await slow });
	await transport.terminateSession();
}
await client.close();
