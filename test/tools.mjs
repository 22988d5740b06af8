// Functions of a TypeScript program at work: tools.mjs MODEL. Says a line of JSON at each step, and goes on at a line of input.
import { createInterface } from "node:readline";
import { Agent, Client, Sandbox, tool } from "../sdk/typescript/dist/esm/index.js";

const input = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const say = (said) => console.log(JSON.stringify(said));
const until = async (found) => {
  for (;;) {
    const value = await found();
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};
const client = new Client();
const paid = [];
const pay = tool({
  name: "pay",
  description: "Pay.",
  parameters: { type: "object", properties: { cents: { type: "integer" } }, required: ["cents"] },
  risky: true,
  execute: ({ cents }) => `paid ${paid.push(cents) && cents}`,
});

// A call that waits for somebody while the daemon is killed.
const sandbox = await Sandbox.create({ template: "code-interpreter", tools: [pay], toolPolicy: { approve: "risky" } });
const cell = sandbox.runCode("from tools import pay\nprint(pay(cents=5))");
const [{ id }] = await until(async () => ((at) => at.length > 0 && at)(await sandbox.tools.approvals()));
say({ waiting: id, paid });
await input.next();
await until(async () => (await sandbox.tools.list()).every(({ connected }) => connected)); // this program has come back
await client.approvals.decide(id, true, "fine");
say({ stdout: (await cell).stdout, paid });

// A run of an agent that calls the same function.
const agent = new Agent("openai:scripted", { baseUrl: process.argv[2], tools: [pay], toolPolicy: { approve: "risky" } });
const run = await agent.start("Pay.");
const [asked] = await until(async () => ((at) => at.length > 0 && at)(await client.approvals.list({ agentId: run.id })));
await client.approvals.decide(asked.id, true);
say({ answer: await run.wait(), paid, kinds: (await sandbox.tools.calls()).map(({ kind }) => kind) });

// The same run again, which calls it again.
const replay = run.replay();
const [askedAgain] = await until(async () => ((at) => at.length > 0 && at)(await client.approvals.list()));
await client.approvals.decide(askedAgain.id, true);
const again = await replay;
const digests = async (of) => JSON.stringify((await of.transcript()).filter(({ type }) => type === "outcome").map(({ outcome }) => outcome.digest));
say({ again: again.answer, paid, same: (await digests(run)) === (await digests(again)) });

// And its fork, which this program finds again.
const fork = (await agent.get(run.id)).fork({ at: 2, model: "openai:scripted", baseUrl: process.argv[2] });
const [askedByFork] = await until(async () => ((at) => at.length > 0 && at)(await client.approvals.list()));
await client.approvals.decide(askedByFork.id, true);
say({ fork: (await fork).answer, paid });
await sandbox.kill();
