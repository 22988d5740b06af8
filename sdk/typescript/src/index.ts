/**
 * Sandboxes with warm Python kernels for AI agents.
 *
 * ```ts
 * import { Sandbox } from "@pandastack/sdk";
 *
 * await using sandbox = await Sandbox.create({ template: "code-interpreter" });
 * const ctx = await sandbox.createCodeContext();
 * await ctx.runCode("import pandas as pd; df = pd.DataFrame({'x': [1, 2, 3]})");
 * console.log((await ctx.runCode("df.x.sum()")).text);
 * ```
 *
 * The server and the key are found by option, in the environment (PANDASTACK_API or PANDASTACK_API_URL,
 * PANDASTACK_API_KEY), in ~/.config/pandastack/config.json, and the server at last at http://127.0.0.1:8080.
 *
 * What is made here has names in camelCase: options, `Execution`, `ExecResult`, events of cells. What the server says of
 * its objects (`sandbox.info`, `lifecycle()`, `filesystem.stat()`, …) is given as it says it, in the names of the API.
 */

export type * as api from "./api.js";
export type {
  AgentEvent,
  AgentRun as AgentInfo,
  Approval,
  Code,
  Context as ContextInfo,
  End,
  KeyInfo,
  LifeEvent,
  Lifecycle,
  LimitHits,
  Me,
  Metrics,
  NewKey,
  Process as ProcessInfo,
  Promotion,
  SandboxInfo,
  Scope,
  Snapshot,
  Status,
  TemplateInfo,
  ToolCall,
  ToolInfo,
  ToolPolicy,
  Usage,
  Version,
  WriteResult,
} from "./api.js";
export { Agent, AgentRun } from "./agent.js";
export { Analyst } from "./analyst.js";
export type { AnalystOptions, Answer } from "./analyst.js";
export type { AgentForkOptions, AgentLimits, AgentOptions, AgentPrice, AgentReplayOptions, AgentRunOptions, AgentWaitOptions } from "./agent.js";
export { Client, Sandboxes, Snapshots, Templates, Tokens } from "./client.js";
export type { ClientOptions, CreateTokenOptions, EventsOptions, ListOptions } from "./client.js";
export { Commands, Process } from "./commands.js";
export type { BackgroundOptions, Command, CommandOptions, ExecOptions, OutputCallbacks, WaitOptions } from "./commands.js";
export type { CallOptions, Content } from "./connection.js";
export { CodeContext, ExecutionStream } from "./context.js";
export type { Awaitable, CellCallbacks, RunOptions, StreamOptions } from "./context.js";
export * from "./errors.js";
export type { CellEvent, GapEvent, OutputEvent, ProcessEvent } from "./events.js";
export { Execution, ExecResult, Result } from "./execution.js";
export type { ExecResultFields, ExecutionFields } from "./execution.js";
export type { Candidate, Exploration, ExploreOptions, Outcome } from "./explore.js";
export { Filesystem, Watch } from "./filesystem.js";
export type { Copied, CopyOptions, FileEvent, FileInfo, LinkOptions, Path, ReadOptions, WalkEntry, WriteOptions } from "./filesystem.js";
export { MCPServer, OpenAPI, Tool, tool } from "./functions.js";
export type { Arguments, JSONSchema, OpenAPIOptions, StandardSchema, ToolCallInfo, ToolHeaders, ToolOptions, ToolSource } from "./functions.js";
export { Network, Secrets } from "./network.js";
export type { NetworkChanges } from "./network.js";
export { Forwarding, PortConnection } from "./port.js";
export { Pty, Terminal } from "./pty.js";
export type { DataCallback, TerminalOptions } from "./pty.js";
export { Sandbox } from "./sandbox.js";
export type { CarryOptions, CreateContextOptions, CreateOptions, ForkOptions, LifecycleChanges, SandboxRunOptions } from "./sandbox.js";
export { Approvals, Tools } from "./tools.js";
export type { ApprovalsOptions } from "./tools.js";
export { VERSION } from "./version.js";
export * from "./published.js";
export { Client as default } from "./client.js";
