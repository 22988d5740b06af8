// What only a page does: the SDK's WebSockets as a browser has them, and a bare one. See test_pages.py.
import * as sdk from "../../sdk/typescript/dist/esm/index.js";

export { perform } from "./sdk_typescript.mjs";

// A terminal of the SDK: what is typed, and what is seen until its program has ended.
async function terminal(sandbox) {
  let seen = "";
  const terminal = await sandbox.pty.create({ cmd: "read name; echo hello $name; stty size; exit 3", rows: 30, cols: 99, onData: (data) => (seen += new TextDecoder().decode(data)) });
  await terminal.resize(31, 98);
  await terminal.sendStdin("you\r");
  const { exitCode } = await terminal.wait();
  return { seen, exitCode };
}

// A terminal without the SDK, as a page's terminal emulator has it.
function shell({ apiUrl, apiKey }, id, key = apiKey) {
  const socket = new WebSocket(`${apiUrl.replace(/^http/, "ws")}/v1/sandboxes/${id}/exec/pty?cmd=${encodeURIComponent("read name; echo hello $name; exit 4")}`, ["pandastack.v1", `pandastack.bearer.${key}`]);
  socket.binaryType = "arraybuffer";
  return new Promise((resolve) => {
    const said = { seen: "", protocol: null, exit: null };
    socket.onopen = () => {
      said.protocol = socket.protocol;
      socket.send(JSON.stringify({ stdin: "you\r" }));
    };
    socket.onmessage = ({ data }) => {
      if (typeof data === "string") said.exit = JSON.parse(data).exit;
      else said.seen += new TextDecoder().decode(data);
    };
    socket.onclose = ({ code }) => resolve({ ...said, code });
  });
}

// Says something to a port, and what it says to that, to the end.
async function told(sandbox, { port, text }) {
  await using connection = await sandbox.dial(port);
  const heard = new Response(connection.readable).text();
  const writer = connection.writable.getWriter();
  await writer.write(new TextEncoder().encode(text));
  await writer.close();
  return await heard;
}

export function operations(config) {
  const client = new sdk.Client(config);
  const paid = [];
  const pay = sdk.tool({
    name: "pay",
    description: "Pay.",
    parameters: { type: "object", properties: { cents: { type: "integer" } }, required: ["cents"] },
    execute: ({ cents }) => `paid ${paid.push(cents) && cents} at ${location.pathname}`,
  });
  let sandbox;
  return {
    create: async () => (sandbox = await client.sandboxes.create({ template: "code-interpreter", tools: [pay] })),
    cell: async ({ code }) => ({ stdout: (await sandbox.runCode(code)).stdout, paid }),
    connected: async () => (await sandbox.tools.list()).every((tool) => tool.connected),
    agent: async ({ model }) => {
      const run = await new sdk.Agent("openai:scripted", { ...config, baseUrl: model, tools: [pay] }).run("Pay.");
      return { answer: run.answer, paid };
    },
    terminal: () => terminal(sandbox),
    shell: ({ id = sandbox?.id, key }) => shell(config, id, key),
    told: (args) => told(sandbox, args),
    // A connection to a port of a sandbox, with another key.
    dial: ({ id, port, key }) => new sdk.Sandbox(new sdk.Client({ ...config, apiKey: key ?? config.apiKey }), { id }).dial(port),
    kill: () => sandbox.kill(),
  };
}
