// Does with the TypeScript SDK what `pandastack sandbox forward --json` does: forward.mjs ID PORT…
import { Sandbox } from "../sdk/typescript/dist/esm/index.js";

const [id, ...ports] = process.argv.slice(2);
const sandbox = await Sandbox.get(id);
const opened = [];
for (const port of ports) {
  const at = await sandbox.forward(Number(port), { onError: (error) => console.error(error.message) });
  opened.push(at);
  console.log(JSON.stringify({ local: `${at.host}:${at.port}`, port: Number(port) }));
}
process.on("SIGTERM", async () => {
  for (const at of opened) await at.close();
  process.exit(0);
});
