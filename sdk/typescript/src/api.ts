// Written by tools/api-types.mjs from api/openapi.yaml: change that, then run the tool.

/** What travels over the API, in its own names. */

/** The kind of a failure. It is stable. */
export type Code = "invalid" | "unauthenticated" | "denied" | "not_found" | "conflict" | "too_large" | "rate_limited" | "internal" | "unsupported" | "unreachable" | "no_capacity" | "timeout" | "no_space";

/** Every answer that is not a success. */
export interface Error {
  /** What went wrong. */
  error: string;
  code: Code;
  /** What to do about it. */
  hint?: string;
  /** The field at fault. */
  field?: string;
  /** Also in `X-Request-Id`. */
  request_id?: string;
}

export interface Health {
  /** `ok` */
  status: string;
}

export interface Readiness {
  status: "ready" | "unready";
  /** Why sandboxes cannot be made. */
  reasons: Reason[];
  /** What is wrong besides. */
  warnings: Reason[];
}

export interface Reason {
  /** `starting`, `no_template`, `template_stale`, `disk_full` or `store_broken` */
  id: string;
  detail: string;
  /** What the operator can do. */
  fix: string;
}

export interface LogLine {
  line: string;
  /** `stdout`: the console, `stderr`: the log of the agent inside. */
  stream: string;
  /** By the sandbox's clock. In RFC 3339. */
  time: string;
}

export interface LifeEvents {
  /** The oldest first. */
  events: LifeEvent[];
}

export interface LifeEvent {
  /** Rises, with gaps. */
  id: number;
  /** In RFC 3339. */
  time: string;
  /** Empty for an event of the server. */
  sandbox_id: string;
  /** What happened. Types are added over time. */
  type: string;
  /** What there is to say; the fields depend on the type. */
  payload: Record<string, unknown>;
}

export interface Version {
  version: string;
  commit?: string;
  go: string;
  /** What runs the sandboxes. */
  driver: string;
  /** What the server's exported snapshots are signed with, as other servers name it in the setting snapshot_trusted_keys. */
  snapshot_key?: string;
}

export interface Me {
  id: string;
  /** Whose sandboxes the key reaches. */
  workspace: string;
  auth_method: string;
  key_prefix: string;
  key_label?: string;
  scopes: Scope[];
  /** Never when missing. In RFC 3339. */
  expires_at?: string;
}

/** What a key may do. read looks, run also makes, changes, uses and ends sandboxes, admin also manages keys. */
export type Scope = "read" | "run" | "admin";

export interface CreateKeyRequest {
  /** What it is for, at most 100 bytes. */
  label?: string;
  /** Each includes those before it; run when missing. */
  scopes?: Scope[];
  /** When the key that asks expires if missing. */
  expires_in_days?: number;
  /** Instead of expires_in_days. In RFC 3339. */
  expires_at?: string;
  /** Of the key that asks when missing; another only for admins of `local`. */
  workspace?: string;
}

export interface KeyInfo {
  /** Names the key. */
  prefix: string;
  label?: string;
  scopes: Scope[];
  /** Whose sandboxes it reaches. */
  workspace: string;
  /** In RFC 3339. */
  created_at: string;
  /** Never when missing. In RFC 3339. */
  expires_at?: string;
  /** Never when missing. In RFC 3339. */
  last_used_at?: string;
}

export interface NewKey {
  /** Names the key. */
  prefix: string;
  label?: string;
  scopes: Scope[];
  /** Whose sandboxes it reaches. */
  workspace: string;
  /** In RFC 3339. */
  created_at: string;
  /** Never when missing. In RFC 3339. */
  expires_at?: string;
  /** Never when missing. In RFC 3339. */
  last_used_at?: string;
  /** The secret. */
  token: string;
}

export interface TemplateInfo {
  name: string;
  aliases?: string[];
  /** Of its recipe and content. */
  digest: string;
  description?: string;
  /** On the server. */
  rootfs_path: string;
  size_bytes: number;
  /** Cores a sandbox gets. */
  cpu: number;
  /** MiB a sandbox gets. */
  memory_mb: number;
  /** MiB a sandbox can write. */
  disk_mb: number;
  /** Processes and threads a sandbox gets. */
  pids: number;
  is_global: boolean;
  /** In RFC 3339. */
  built_at: string;
  meta?: Record<string, string>;
}

/** The state of a sandbox. */
export type Status = "creating" | "running" | "paused" | "hibernated" | "stopping" | "deleted" | "failed";

export interface CreateSandboxRequest {
  /** A template's name or alias; `ubuntu-24.04` is `base`. */
  template?: string;
  /** Instead of a template. */
  from_snapshot?: string;
  /** How long it lives, at most the server's ceiling. */
  ttl_seconds?: number;
  idle_timeout_seconds?: number;
  /** Hibernate instead of kill when the time is up. */
  persistent?: boolean;
  /** Yours, to find it again. */
  metadata?: Record<string, string>;
  /** Environment variables. */
  envs?: Record<string, string>;
  /** Cores, at least 0.1; the template's by default. */
  cpu?: number;
  /** MiB, at least 128; the template's by default. */
  memory_mb?: number;
  /** MiB it can write, at least 16; the template's by default. */
  disk_mb?: number;
  /** Processes and threads, at least 16; the template's by default. */
  pids?: number;
  /** Random state is made new. */
  reseed?: boolean;
  /** What it may reach; nothing by default, or as in the snapshot. */
  network?: NetworkPolicy;
  /** Added to its requests on their way out; none by default, or as in the snapshot. */
  secrets?: Secrets;
  /** Functions outside that Python inside can call; none by default, or as in the snapshot. */
  tools?: Tools;
}

/** The network of a sandbox. */
export interface NetworkInfo {
  policy: NetworkPolicy;
  /** By the host that they go to. */
  secrets?: Record<string, SecretShown>;
  /** Carried so far, both directions together. */
  bytes: number;
  /** Connections that are open. */
  flows: number;
}

/** All of a secret but its value. */
export interface SecretShown {
  header: string;
  /** The name of a secret that the server keeps. */
  ref?: string;
}

/** What is missing stays. */
export interface NetworkPatch {
  /** In place of the one before. */
  policy?: NetworkPolicy;
  /** In place of all before. */
  secrets?: Secrets;
}

export interface NetworkLog {
  /** The oldest first. */
  lines: NetworkLine[];
}

/** Tools are functions that run outside of a sandbox and that Python inside calls as `from tools import …`. A name is that of a function, or NAMESPACE.FUNCTION. */
export interface Tools {
  /** Of the program that is connected, at …/tools/connect. */
  functions?: ToolFunction[];
  /** Services with an OpenAPI document, by namespace. */
  http?: Record<string, ToolHTTP>;
  /** Servers of the Model Context Protocol, by namespace. */
  mcp?: Record<string, ToolMCP>;
  /** Namespaces that the server's own settings declare. */
  use?: string[];
  policy?: ToolPolicy;
}

/** ToolFunction is a function of a program. */
export interface ToolFunction {
  /** An identifier, or NAMESPACE.IDENTIFIER. */
  name: string;
  description?: string;
  /** JSON schema of an object; default: none. */
  parameters?: unknown;
  /** JSON schema; default: not known. */
  returns?: unknown;
  /** It changes what cannot be changed back: asked for where the policy asks for risky calls. */
  risky?: boolean;
  timeout_seconds?: number;
}

/** ToolHTTP is a service with an OpenAPI 3 document, whose operations are functions. */
export interface ToolHTTP {
  /** The document; or url. */
  openapi?: unknown;
  /** Where it is. */
  url?: string;
  /** Of the service; default: the document's first server. */
  base_url?: string;
  /** Added on the server. */
  headers?: Record<string, ToolHeader>;
  /** Operations, with * for any letters; default: all. */
  include?: string[];
}

/** ToolMCP is a server of the Model Context Protocol, reached over streamable HTTP. */
export interface ToolMCP {
  url?: string;
  headers?: Record<string, ToolHeader>;
  include?: string[];
  command?: string[];
  envs?: Record<string, string>;
}

/** ToolHeader is the value of a header: plain, or prefix and a secret of the workspace. */
export interface ToolHeader {
  value?: string;
  /** Name of a secret, of which nothing enters the sandbox. */
  ref?: string;
  /** In front of it, as "Bearer ". */
  prefix?: string;
}

/** ToolPolicy says which calls are carried out. It looks at facts (the tool, its arguments, the host that it reaches, what reading the cell says), never at what a model says of itself. */
export interface ToolPolicy {
  /** "never", "risky" or "always". */
  approve?: string;
  /** The first that fits decides, before Approve. */
  rules?: ToolRule[];
  /** Of a call; default 60. */
  timeout_seconds?: number;
  /** Calls a second, in the long run; default: any number. */
  rate?: number;
  /** Of the sandbox, since the server was started; default: any number. */
  max_calls?: number;
  /** After which a call that nobody decided is denied; default 600. */
  expire_seconds?: number;
}

/** ToolRule is a rule of a policy. All that it names must fit; * stands for any letters. */
export interface ToolRule {
  /** As "crm.delete_*". */
  tool?: string;
  /** Patterns for the JSON of arguments, strings without their quotes. */
  arguments?: Record<string, string>;
  /** That the tool reaches, as "*.example.com". */
  host?: string;
  /** What reading the cell noticed, as "network"; in runs of agents. */
  advice?: string;
  /** "allow", "ask" or "deny". */
  action: string;
}

/** ToolInfo describes a function. */
export interface ToolInfo {
  name: string;
  /** "function", "http", "mcp", or "server": the daemon's own. */
  source: string;
  description: string;
  /** Of Python. */
  signature: string;
  parameters?: unknown;
  risky: boolean;
  /** It can be reached now, as far as is known. */
  connected: boolean;
}

/** ToolList is the answer of GET /v1/sandboxes/{id}/tools. */
export interface ToolList {
  tools: ToolInfo[];
  policy: ToolPolicy;
}

/** ToolCall is a line of the log of calls. Arguments and results are not in it. */
export interface ToolCall {
  id: string;
  sandbox_id: string;
  /** As the sandbox says. */
  context_id?: string;
  /** As the sandbox says. */
  execution_id?: string;
  tool: string;
  /** In RFC 3339. */
  time: string;
  duration_ms: number;
  /** Of the result. */
  bytes: number;
  /** "ok", or how it failed. */
  kind: string;
  /** Who approved or denied it. */
  by?: string;
  /** What decided: "approve never", "rule 2", …. */
  rule: string;
  /** Words for a failure. */
  why?: string;
}

/** ToolCalls is the answer of GET /v1/sandboxes/{id}/tools/calls, the newest last. */
export interface ToolCalls {
  calls: ToolCall[];
}

/** Approval is a call that waits for somebody's decision, or had one. */
export interface Approval {
  id: string;
  sandbox_id: string;
  /** Whose run it is. */
  agent_id?: string;
  context_id?: string;
  execution_id?: string;
  tool: string;
  arguments: unknown;
  /** That the tool reaches. */
  host?: string;
  /** What reading the cell noticed. */
  advice?: AgentAdvice[];
  /** Why it is asked. */
  rule: string;
  status: string;
  /** That the decision gave. */
  reason?: string;
  /** The key that decided. */
  by?: string;
  /** In RFC 3339. */
  created_at: string;
  /** In RFC 3339. */
  expires_at: string;
  /** In RFC 3339. */
  decided_at?: string;
}

/** Approvals is the answer of GET /v1/approvals, the oldest first. */
export interface Approvals {
  approvals: Approval[];
}

/** Decision is the body of POST /v1/approvals/{id}. */
export interface Decision {
  approve: boolean;
  /** Told to the program that called. */
  reason?: string;
}

/** ToolMessage is what a program that is connected hears, over its WebSocket. */
export interface ToolMessage {
  /** "connected", "tool_call", "tool_cancel": nobody waits for the result any more, or, for pages alone, "ping". */
  type: string;
  call_id: string;
  sandbox_id?: string;
  /** As the sandbox says. */
  context_id?: string;
  /** As the sandbox says. */
  execution_id?: string;
  tool?: string;
  /** A JSON object. */
  arguments?: unknown;
}

/** ToolResult is what it answers. */
export interface ToolResult {
  /** "tool_result". */
  type: string;
  call_id: string;
  /** Any JSON, at most 64 MiB. */
  result?: unknown;
  /** Instead of a result. */
  error?: ToolFailure;
}

/** ToolFailure is what Python in the sandbox raises as a ToolError. */
export interface ToolFailure {
  kind: string;
  message: string;
  hint?: string;
}

export interface PutSecretRequest {
  /** The whole value of a header, such as `Bearer …`; at most 16 KiB. */
  value: string;
}

/** A secret that the server keeps. Its value is never given back. */
export interface SecretInfo {
  name: string;
  /** In RFC 3339. */
  created_at: string;
  /** In RFC 3339. */
  updated_at: string;
}

export type NetworkMode = "deny" | "allow-list" | "open";

/** What a sandbox may reach. Ranges that are not the public internet stay closed in every mode unless an allow rule names them by CIDR. Unknown fields are refused. */
export interface NetworkPolicy {
  /** `deny` by default; `allow-list` when there are allow rules. */
  mode?: NetworkMode;
  allow?: NetworkRule[];
  /** It wins over allow. */
  deny?: NetworkRule[];
  /** A named policy of the server that this one adds to. */
  policy?: string;
  /** Bytes a second, both directions together; 0: not limited. */
  rate?: number;
  /** New connections and requests a second. */
  flow_rate?: number;
  /** Connections at once. */
  flows?: number;
  /** Budget, both directions together, after which the network closes; 0: none. */
  bytes?: number;
}

/** A host (`*.example.com` is every name below example.com), an address or a CIDR, with ports if need be. Methods and path prefixes are of HTTP. */
export type NetworkRule = string | { host?: string; cidr?: string; ports?: number[]; methods?: string[]; paths?: string[] };

export type NetworkVerdict = "allowed" | "refused" | "failed";

/** One decision about what a sandbox tried to reach. */
export interface NetworkEvent {
  /** In RFC 3339. */
  time: string;
  sandbox_id: string;
  workspace: string;
  /** `dns`, `tcp`, `tls`, `http`, `https` (opened), or what was refused as a packet: `udp`, `icmp`, … */
  protocol: string;
  /** The host, where it was reached by name. */
  name?: string;
  /** The real one that was dialled, or was asked for. */
  address?: string;
  port?: number;
  /** Of HTTP where it can be seen; of DNS the type that was asked for. */
  method?: string;
  /** Without the query. */
  path?: string;
  /** Of the HTTP answer. */
  status?: number;
  verdict: NetworkVerdict;
  /** That decided; none where no rule named it. */
  rule?: string;
  /** Why it was refused, or failed. */
  reason?: string;
  /** The header that was added. */
  secret?: string;
  /** The client offered an encrypted name, or pretended to. */
  ech?: boolean;
  /** That the sandbox sent. */
  bytes_out?: number;
  /** That it got. */
  bytes_in?: number;
  /** Of the connection, or the request. */
  duration_ms: number;
  /** Refusals before this one that came too fast to be written. */
  suppressed?: number;
}

/** A line of the network's log. */
export interface NetworkLine {
  /** It rises, with gaps: lines of all sandboxes are numbered together. */
  seq: number;
  /** In RFC 3339. */
  time: string;
  sandbox_id: string;
  workspace: string;
  /** `dns`, `tcp`, `tls`, `http`, `https` (opened), or what was refused as a packet: `udp`, `icmp`, … */
  protocol: string;
  /** The host, where it was reached by name. */
  name?: string;
  /** The real one that was dialled, or was asked for. */
  address?: string;
  port?: number;
  /** Of HTTP where it can be seen; of DNS the type that was asked for. */
  method?: string;
  /** Without the query. */
  path?: string;
  /** Of the HTTP answer. */
  status?: number;
  verdict: NetworkVerdict;
  /** That decided; none where no rule named it. */
  rule?: string;
  /** Why it was refused, or failed. */
  reason?: string;
  /** The header that was added. */
  secret?: string;
  /** The client offered an encrypted name, or pretended to. */
  ech?: boolean;
  /** That the sandbox sent. */
  bytes_out?: number;
  /** That it got. */
  bytes_in?: number;
  /** Of the connection, or the request. */
  duration_ms: number;
  /** Refusals before this one that came too fast to be written. */
  suppressed?: number;
}

/** By the host that requests go to; `host:port` for another port than 443. */
export type Secrets = Record<string, SecretUse>;

/** A header that is set on every request to one host, over verified TLS. Either `value` or `ref`. */
export interface SecretUse {
  header: string;
  /** The whole value; never sent back. */
  value?: string;
  /** The name of a secret that the server keeps. */
  ref?: string;
}

export interface Snapshot {
  id: string;
  name?: string;
  /** It was taken of. */
  sandbox_id: string;
  /** The snapshot that this sandbox was made from. */
  parent_id?: string;
  workspace: string;
  template: string;
  /** Of the template, which stays as long as the snapshot. */
  digest: string;
  /** Cores that sandboxes made from it have by default. */
  cpu: number;
  /** MiB that they have by default. */
  memory_mb: number;
  /** MiB that they can write. */
  disk_mb: number;
  metadata?: Record<string, string>;
  /** Of its files. */
  size_bytes: number;
  /** That taking it took; the sandbox stood still for a part of it. */
  duration_ms: number;
  /** In RFC 3339. */
  created_at: string;
  /** It is removed then; never when missing. In RFC 3339. */
  expires_at?: string;
  /** Ids of the code contexts in it, as far as the sandbox said. */
  contexts?: string[];
  origin?: SnapshotOrigin;
}

/** Where an imported snapshot is from; `sandbox_id` and `parent_id` of the snapshot are ids of that server. */
export interface SnapshotOrigin {
  /** Its id there. */
  snapshot_id: string;
  workspace: string;
  /** Of the server that signed the archive, as ed25519:… */
  key: string;
  /** Of that server. */
  version: string;
  /** In RFC 3339. */
  exported_at: string;
  /** In RFC 3339. */
  imported_at: string;
}

export interface SnapshotImport {
  snapshot: Snapshot;
  /** What the sandbox had and this server does not. */
  missing: SnapshotMissing[];
}

export interface SnapshotMissing {
  /** A secret of the workspace; the value of a header that was given with the sandbox, which is never exported; a named network policy; a namespace of tools that the server's settings declare. */
  kind: "secret" | "value" | "policy" | "tools";
  /** Of the secret, header, policy or namespace. */
  name: string;
  /** The host, or the tools, that it was for. */
  for?: string;
}

export interface SnapshotRequest {
  /** Need not be unique. */
  name?: string;
  metadata?: Record<string, string>;
  /** Take it though cells run; every copy goes on with them. */
  carry_running?: boolean;
  /** After which it is removed; 0 or missing: it stays until somebody does. */
  ttl_seconds?: number;
}

export interface SnapshotList {
  snapshots: Snapshot[];
}

/** What is missing stays. */
export interface SnapshotPatch {
  name?: string;
  /** Replaces all of it. */
  metadata?: Record<string, string>;
  /** How long it is kept from now on; 0: until somebody removes it. */
  ttl_seconds?: number;
}

export interface ForkRequest {
  /** How many copies; 1 when missing, and 2 for a tree. */
  count?: number;
  /** On top of the parent's. */
  metadata?: Record<string, string>;
  /** On top of the parent's, for new processes. */
  envs?: Record<string, string>;
  /** The parent's when missing, from now. */
  ttl_seconds?: number;
  /** Random state is made new in each. */
  reseed?: boolean;
  /** Do it though cells run; every copy goes on with them. */
  carry_running?: boolean;
}

export interface Fork {
  /** Of a tree, for promote. */
  tree_id?: string;
  parent_id: string;
  children: SandboxInfo[];
  errors?: ForkError[];
  /** The moment that the copies are of. In RFC 3339. */
  at: string;
}

export interface ForkError {
  /** From 0. */
  index: number;
  error: string;
  code: Code;
}

export interface PromoteRequest {
  /** End the other branches. */
  cleanup_siblings?: boolean;
  /** The tree that the sandbox is of when missing. */
  tree_id?: string;
}

export interface Promotion {
  winner: string;
  tree_id: string;
  deleted: string[];
  /** Why a branch could not be ended, by id. */
  failures: Record<string, string>;
}

export interface CarryRequest {
  /** Do it though cells run; they go on when the sandbox wakes. */
  carry_running?: boolean;
}

export interface StatusAnswer {
  status: Status;
}

export interface SandboxInfo {
  id: string;
  template: string;
  status: Status;
  /** Cores. */
  cpu: number;
  /** MiB. */
  memory_mb: number;
  /** MiB it can write. */
  disk_mb: number;
  /** Processes and threads. */
  pids: number;
  usage?: Usage;
  metadata?: Record<string, string>;
  from_snapshot?: string;
  /** The sandbox that it is a copy of. */
  forked_from?: string;
  persistent: boolean;
  ttl_seconds: number;
  idle_timeout_seconds?: number;
  /** In RFC 3339. */
  created_at: string;
  /** In RFC 3339. */
  expires_at: string;
  driver: string;
  /** From the request to a guest that answers. */
  boot_ms: number;
  /** `pool`, `prepared` (a created sandbox was waiting) or `cold`. */
  boot_mode: string;
  /** Why it is no longer running: `killed`, `ttl`, `oom`, `crashed`, … */
  end_reason?: string;
  /** Goes up at every restore. */
  generation: number;
  capabilities?: string[];
  network?: NetworkInfo;
  /** Its ports are seen at `{port}-{id}.{preview_host}`. */
  preview_host?: string;
}

/** A port of a sandbox: one that something listens on, or that somebody has named. */
export interface Port {
  port: number;
  /** Empty when nobody gave one. */
  label: string;
  /** Everybody who knows its address may see it. */
  public: boolean;
  /** As the sandbox says. */
  listening: boolean;
  /** `user` when somebody named it, or `detected`. */
  source: string;
  /** Of those who listen, inside. */
  addresses?: string[];
  /** Its own address, for browsers; missing when this server has no name for it: see the setting `preview_domain`. */
  url?: string;
  /** Below the API's address, with the key. */
  proxy_url: string;
}

export interface CreatePortRequest {
  port: number;
  label?: string;
  /** Everybody may see it. */
  public?: boolean;
}

export interface PreviewTokenRequest {
  port: number;
  ttl_seconds?: number;
  /** That it opens, each with all below it; all when empty. They begin with `/` and have none of `| , ? # \ % ;` in them. */
  paths?: string[];
}

/** A signed link to a port. */
export interface PreviewToken {
  /** Below the API's address; a browser is led to the port's own. */
  url: string;
  token: string;
  sandbox_id: string;
  port: number;
  paths?: string[];
  /** In RFC 3339. */
  expires_at: string;
}

/** What a sandbox may use. */
export interface Limits {
  /** Cores. */
  cpu: number;
  /** MiB, everything included that it costs the host. */
  memory_mb: number;
  /** MiB of the writable layer. */
  disk_mb: number;
  /** Processes and threads. */
  pids: number;
}

/** What a sandbox uses. What is counted begins with its creation, or when it last woke. */
export interface Usage {
  /** In RFC 3339. */
  at: string;
  /** Of one core, since the last look or the creation. */
  cpu_percent: number;
  cpu_seconds: number;
  memory_bytes: number;
  disk_bytes: number;
  /** And threads. */
  processes: number;
  limit_hits: LimitHits;
}

/** How often each limit was met. */
export interface LimitHits {
  /** Periods of 100 ms that ended with its share used up. */
  cpu: number;
  /** That its threads were held back for, added up. */
  cpu_seconds: number;
  /** Cells that got a MemoryError, contexts and commands ended for their memory, refused ones. */
  memory_mb: number;
  /** Writes refused: ENOSPC. */
  disk_mb: number;
  /** Processes and threads refused: EAGAIN. */
  pids: number;
}

export interface Metrics {
  /** Of the process on the host that holds it. */
  pid: number;
  uptime_seconds: number;
  /** Of one core. */
  host_cpu_percent: number;
  host_rss_bytes: number;
  host_vsz_bytes: number;
  /** Of that process. */
  threads: number;
  limits: Limits;
  usage: Usage;
}

export interface Lifecycle {
  ttl_seconds: number;
  idle_timeout_seconds: number;
  persistent: boolean;
  /** Since the last call; 0 while something runs. */
  idle_seconds: number;
  /** In RFC 3339. */
  expires_at: string;
}

/** What is left out stays. */
export interface LifecyclePatch {
  /** Counted from now. */
  ttl_seconds?: number;
  idle_timeout_seconds?: number;
  persistent?: boolean;
}

/** A line for the shell, or a program with its arguments. */
export type Command = string | string[];

export interface ExecRequest {
  cmd: Command;
  timeout_seconds?: number;
  cwd?: string;
  envs?: Record<string, string>;
  /** Name or number. */
  user?: string;
  stdin?: string;
  /** Yours, of this command alone. When its caller goes away it is killed after 10 s, unless somebody attaches; without an id at once. */
  execution_id?: string;
  /** It may have been started already: follow it then, from its start. Else it is started. */
  attach?: boolean;
}

export interface ExecResult {
  stdout: string;
  stderr: string;
  /** As in Exit. */
  exit_code: number;
  /** As in Exit. */
  signal?: string;
  /** As in Exit. */
  reason?: string;
  duration_ms: number;
  /** Which limit of the sandbox is behind a bad end. */
  hint?: string;
  timed_out?: boolean;
  /** Some output is left out. */
  truncated?: boolean;
  /** Bytes left out in the middle. */
  stdout_dropped?: number;
  stderr_dropped?: number;
  /** The file in the sandbox with all of it, up to a limit. */
  output_path?: string;
}

/** The error of a command that had begun, with its output so far. */
export interface ExecFailure {
  error: string;
  code: Code;
  hint?: string;
  field?: string;
  request_id?: string;
  stdout: string;
  stderr: string;
  /** Of a command that hit its deadline. */
  exit_code?: number;
  timed_out?: boolean;
  truncated?: boolean;
  stdout_dropped?: number;
  stderr_dropped?: number;
  output_path?: string;
}

/** Run this under an id, or cancel what runs under it. */
export interface ExecSocketRequest {
  id: string;
  cancel?: boolean;
  cmd?: Command;
  timeout_seconds?: number;
  cwd?: string;
  envs?: Record<string, string>;
  user?: string;
  stdin?: string;
  execution_id?: string;
  attach?: boolean;
}

/** Output of a command. */
export interface ExecSocketOutput {
  id: string;
  /** `stdout` or `stderr`. */
  stream: string;
  data: string;
  /** Bytes that are missing here. */
  dropped?: number;
}

/** The last of a command: its exit code, or its error. */
export interface ExecSocketEnd {
  id: string;
  exit?: number;
  error?: string;
  code?: Code;
  hint?: string;
  field?: string;
}

/** What a client of a terminal says as text. */
export interface TerminalRequest {
  /** Input as text; a binary message does the same. */
  stdin?: string;
  resize?: PTY;
}

/** The number of the event that the next binary message is. */
export interface TerminalNumber {
  seq: number;
}

/** Output that is no longer kept. */
export interface TerminalGap {
  seq: number;
  /** Bytes. */
  dropped: number;
}

/** The end of the process, and the last message. */
export interface TerminalExit {
  /** As in Exit. */
  exit: number;
  /** As in Exit. */
  reason?: string;
  /** As in Exit. */
  signal?: string;
}

/** Input that was not taken; or as the last message, why there are no more. */
export interface TerminalError {
  error: string;
  code: Code;
  hint?: string;
  field?: string;
}

/** The size of a terminal. All that its process writes is stdout, and what is written to its input is typed. */
export interface PTY {
  /** 0: the default. */
  rows?: number;
  /** 0: the default. */
  cols?: number;
}

export interface StartProcessRequest {
  cmd: Command;
  cwd?: string;
  envs?: Record<string, string>;
  /** Name or number. */
  user?: string;
  /** A name of yours, unique while it runs. */
  tag?: string;
  /** 0: none. */
  timeout_ms?: number;
  /** Keep its input open for writing. */
  stdin?: boolean;
  /** Give it a terminal of this size, whose input is always open. */
  pty?: PTY;
}

export interface Process {
  pid: number;
  tag?: string;
  cmd: Command;
  cwd: string;
  user: string;
  /** In RFC 3339. */
  started_at: string;
  running: boolean;
  /** The size of its terminal, if it has one. */
  pty?: PTY;
  /** Number of the newest event of its output. */
  last_event?: number;
  exit?: Exit;
  /** In RFC 3339. */
  ended_at?: string;
}

/** How a process ended. */
export interface Exit {
  /** Its own; 128 + n when signal n ended it; 124 when it made a success of its deadline. */
  exit_code: number;
  signal?: string;
  /** `exited`, `signaled`, `timeout`, `oom`, or `killed` through the API. */
  reason: string;
  /** Which limit of the sandbox is behind a bad end. */
  hint?: string;
  duration_ms: number;
  stdout_dropped?: number;
  stderr_dropped?: number;
  output_path?: string;
}

export interface SignalRequest {
  signal: string;
}

export interface FileInfo {
  name: string;
  /** Its bytes when they are not UTF-8; name and path have U+FFFD then. */
  raw_name?: string;
  path?: string;
  is_dir: boolean;
  size: number;
  /** Its type: f, d, l, p, s, b or c. */
  mode: string;
  permissions: string;
  symbolic: string;
  uid: number;
  gid: number;
  /** Name of the uid in the sandbox, if it has one. */
  owner?: string;
  group?: string;
  /** When it was last changed, in seconds since 1970. */
  mtime: number;
  /** The same. In RFC 3339. */
  modified_at: string;
  /** Of a symbolic link. */
  target?: string;
}

export interface DirListing {
  path: string;
  entries: FileInfo[];
  /** There are more: ask again with the last name as after. */
  truncated?: boolean;
}

export interface WriteResult {
  path: string;
  bytes: number;
}

export interface TarResult {
  path: string;
  files: number;
  folders: number;
  links: number;
  /** Of the files. */
  bytes: number;
  /** Entries that are no file, folder or link. */
  left_out: number;
}

export interface MkdirRequest {
  path: string;
}

export interface MoveRequest {
  from: string;
  to: string;
  overwrite?: boolean;
}

export interface FileEvent {
  /** Rises. */
  seq: number;
  /** `create` (new at `path`, made there or moved there from outside), `write`, `close` (a program that could write has closed it: it is whole), `rename` (`from` → `path`), `remove` (gone from `path`, removed or moved outside), `chmod` (permissions, owner or times); `started`, `overflow` and `ended` are of the watch itself. Types are added over time. */
  type: string;
  /** Absolute. */
  path?: string;
  /** Of a path that is not UTF-8; `path` has U+FFFD then. */
  raw_path?: string;
  /** Of `rename`: the path before. */
  from?: string;
  raw_from?: string;
  is_dir: boolean;
  /** Of `overflow`: `queue` (they came too fast, and the watch was set up anew), `slow` (they came faster than the stream was read), `folders` (there are too many: what is below `path` is not watched), `lost` (the watch was no more, and was begun anew). Of `ended`: `removed`, `hibernated`, `sandbox_ended`. */
  reason?: string;
  /** Of `overflow`: so many events are missing; 0 when nobody knows. */
  dropped?: number;
  /** Of `started`. */
  watch_id?: string;
}

export interface FileLinkRequest {
  /** Of a file. */
  path: string;
  /** `GET` reads it, `PUT` writes it. */
  method?: "" | "GET" | "PUT";
  ttl_seconds?: number;
  /** Of one that writes; 1 GiB when left out. */
  max_bytes?: number;
}

export interface FileLink {
  url: string;
  sandbox_id: string;
  path: string;
  method: string;
  /** Of one that writes: a larger file is refused. */
  max_bytes?: number;
  /** In RFC 3339. */
  expires_at: string;
}

export interface CreateContextRequest {
  /** Chosen by the server when left out. */
  id?: string;
  /** `python`, also called `py` and `python3`. */
  language?: string;
  cwd?: string;
  envs?: Record<string, string>;
}

/** One interpreter that keeps its state. */
export interface Context {
  id: string;
  sandbox_id: string;
  language: string;
  /** `starting`, `idle`, `busy` or `dead`. */
  state: string;
  cwd: string;
  /** In RFC 3339. */
  created_at: string;
  execution_count: number;
  /** Executions that wait for their turn. */
  queued: number;
  /** Of the execution in progress. */
  running_id?: string;
  /** Goes up whenever the interpreter is a new one. */
  incarnation: number;
  /** The context that this one is a copy of. */
  forked_from?: string;
}

export interface ForkContextRequest {
  /** Copies; 0 is the default. */
  count?: number;
}

export interface ForkContextResponse {
  children: Context[];
  /** What the copies lack, or share with the original: threads, open files, connections. */
  warnings: string[];
}

export interface RunRequest {
  /** At most 8 MiB. */
  code: string;
  timeout_ms?: number;
  /** Yours; the same id never runs twice. */
  execution_id?: string;
  /** Go on when the client is gone. */
  detach?: boolean;
}

export interface OneShotRequest {
  language?: string;
  code: string;
  timeout_ms?: number;
}

export interface Languages {
  languages: string[];
}

/** How an execution ended. */
export type End = "ok" | "error" | "timeout" | "interrupted" | "oom" | "kernel_died";

/** A result by MIME type. Text as it is, images in base64, JSON types as encoded JSON. */
export type Bundle = Record<string, string>;

export interface ResultMeta {
  is_last_expression: boolean;
  metadata?: Record<string, unknown>;
}

/** The outcome of a cell. */
export interface Execution {
  execution_id: string;
  execution_count: number;
  end: End;
  /** Variables are still there. */
  state_survived: boolean;
  stdout: string;
  stderr: string;
  /** The last expression first, then displays in order. */
  results: Bundle[];
  /** The traceback, or words for a deadline or a dead kernel. */
  error?: string;
  error_name?: string;
  error_value?: string;
  exit: number;
  /** 0 or 1. */
  exit_code: number;
  duration_ms: number;
  /** Something is left out. */
  truncated: boolean;
  /** Bytes left out in the middle. */
  stdout_dropped?: number;
  stderr_dropped?: number;
  /** Results left out: too many, too large, or the server holds too much output at once. */
  results_dropped?: number;
  /** The file in the sandbox with all of it, up to a limit. */
  output_path?: string;
  /** What ended a cell that had to be stopped: `interrupt`, `terminate` or `kill`. */
  step?: string;
  /** Parallel to `results`. */
  results_meta: ResultMeta[];
}

export interface OneShotResult {
  language: string;
  execution_id: string;
  execution_count: number;
  end: End;
  /** Variables are still there. */
  state_survived: boolean;
  stdout: string;
  stderr: string;
  /** The last expression first, then displays in order. */
  results: Bundle[];
  /** The traceback, or words for a deadline or a dead kernel. */
  error?: string;
  error_name?: string;
  error_value?: string;
  exit: number;
  /** 0 or 1. */
  exit_code: number;
  duration_ms: number;
  /** Something is left out. */
  truncated: boolean;
  /** Bytes left out in the middle. */
  stdout_dropped?: number;
  stderr_dropped?: number;
  /** Results left out: too many, too large, or the server holds too much output at once. */
  results_dropped?: number;
  /** The file in the sandbox with all of it, up to a limit. */
  output_path?: string;
  /** What ended a cell that had to be stopped: `interrupt`, `terminate` or `kill`. */
  step?: string;
  /** Parallel to `results`. */
  results_meta: ResultMeta[];
}

export interface StartedEvent {
  execution_id?: string;
  execution_count?: number;
  pid?: number;
}

export interface OutputEvent {
  text: string;
  /** Bytes that are not UTF-8. */
  raw?: string;
}

export interface ChunkEvent {
  chunk: string;
}

export interface ResultEvent {
  data: Bundle;
  metadata: Record<string, unknown>;
  is_last_expression: boolean;
}

export interface InputRequestEvent {
  prompt: string;
}

/** Output that was not kept. */
export interface GapEvent {
  /** `stdout` or `stderr`. */
  stream: string;
  /** Bytes. */
  dropped: number;
}

export interface ExecExitEvent {
  exit_code: number;
  duration_ms: number;
  signal?: string;
  reason?: string;
  /** Which limit of the sandbox is behind a bad end. */
  hint?: string;
  stdout_dropped?: number;
  stderr_dropped?: number;
  output_path?: string;
}

/** An execution without what was streamed. */
export interface EndEvent {
  execution_id: string;
  execution_count: number;
  end: End;
  state_survived: boolean;
  error?: string;
  error_name?: string;
  error_value?: string;
  exit: number;
  exit_code: number;
  duration_ms: number;
  truncated: boolean;
  stdout_dropped?: number;
  stderr_dropped?: number;
  results_dropped?: number;
  output_path?: string;
  step?: string;
}

/** The body of POST /v1/agents: a task for a model that acts by writing Python, run in a sandbox. */
export interface AgentRequest {
  /** Needed, but for a replay or a fork. */
  task?: string;
  /** PROVIDER:NAME, as openai:gpt-4o or anthropic:claude-…; default the server's. */
  model?: string;
  /** Of a provider elsewhere; needs an admin key, and never gets the server's model key. */
  base_url?: string;
  /** "text": code in fences (default), "tool": calls of run_python. */
  dialect?: string;
  /** The model is shown figures; default true. */
  vision?: boolean;
  /** Added to the system prompt. */
  instructions?: string;
  /** Work in this one, which is kept; default a new one. */
  sandbox_id?: string;
  /** Of a new one, as all down to secrets; default "code-interpreter". */
  template?: string;
  /** Instead of template: its files are there, its variables are not. */
  from_snapshot?: string;
  /** Cores; default the template's. */
  cpu?: number;
  /** Default the template's. */
  memory_mb?: number;
  /** Of the writable layer; default the template's. */
  disk_mb?: number;
  /** Processes and threads; default the template's. */
  pids?: number;
  /** Environment of the code; it stands in the transcript, as what the code may see. */
  envs?: Record<string, string>;
  /** What it may reach; default nothing, or as in the snapshot. The model is told. */
  network?: NetworkPolicy;
  /** Added to its requests on their way out; values are never stored in the transcript. */
  secrets?: Secrets;
  /** Written before the run begins. */
  files?: AgentFile[];
  /** A new sandbox at the end: "kill" (default), "keep" or "snapshot". */
  keep?: string;
  limits?: AgentLimits;
  /** Needed for max_cost_usd. */
  price?: AgentPrice;
  /** Instead of all else but keep, metadata and secrets: run the cells of this run again, in a new sandbox, or, of a run that had them, in sandbox_id or behind the replay that follows names; no model is asked. */
  replay_of?: string;
  /** Branch off from a run, in place of what that had: task, dialect, files, tools and all of the sandbox. */
  fork?: AgentFork;
  /** Files in the sandbox, absolute or below /workspace, that are loaded as tables before the model is asked; up to 32. */
  data?: string[];
  /** A run that has ended, whose sandbox is still there: go on in it with its variables; the model is told what was asked and answered. Instead of sandbox_id. */
  follows?: string;
  metadata?: Record<string, string>;
  /** Functions outside that its cells can call; default: those of sandbox_id. */
  tools?: Tools;
}

/** A moment of another run, at which a new one goes on from the same state. Where that run kept a snapshot, and ran no cell from there on, it is restored. Otherwise its cells up to there run again in a new sandbox, with the replies of that time. The event forked says which, and where something else came of them. */
export interface AgentFork {
  /** The run. */
  of: string;
  /** The turn whose reply is another one; the turns before it are repeated, and count for max_turns. */
  at: number;
  /** Told to the model before that turn. */
  task?: string;
}

/** A file for a run. */
export interface AgentFile {
  /** Absolute, or below /workspace. */
  path: string;
  content?: string;
}

/** AgentLimits bound a run. 0 means the default. */
export interface AgentLimits {
  /** Replies of the model; default 20. */
  max_turns?: number;
  /** Default 40. */
  max_cells?: number;
  /** Wall clock; default 900. */
  max_seconds?: number;
  /** Of all requests and replies; default 500 000. */
  max_tokens?: number;
  /** Default none. */
  max_cost_usd?: number;
  /** Of one cell; default 15. */
  cell_seconds?: number;
  /** Of what a turn's cells show the model; default 4000. */
  observation_tokens?: number;
  /** Of one reply; default 8192. */
  reply_tokens?: number;
  /** Of the prompt, for its tools; default 2000. */
  tool_tokens?: number;
  /** Above it, old observations are shortened; default 100 000. */
  conversation_tokens?: number;
}

/** What a model costs, in US dollars a million tokens. */
export interface AgentPrice {
  input: number;
  output: number;
  /** Default as input. */
  cache_read?: number;
  /** Default as input. */
  cache_write?: number;
}

/** AgentUsage counts what a run used, as the provider says. */
export interface AgentUsage {
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens: number;
  cache_write_tokens: number;
  /** The provider did not count some of it. */
  estimated: boolean;
  /** 0 without a price. */
  cost_usd: number;
}

/** AgentRun describes a run. */
export interface AgentRun {
  id: string;
  workspace: string;
  task: string;
  model: string;
  dialect: string;
  /** Version of the system prompt. */
  prompt: string;
  status: string;
  /** Why it ended. */
  reason?: string;
  answer?: string;
  /** Words for an end without an answer. */
  error?: string;
  sandbox_id?: string;
  /** The code context in it that has the run's variables. */
  context_id?: string;
  snapshot_id?: string;
  turns: number;
  cells: number;
  rewinds: number;
  usage: AgentUsage;
  /** The model's key came with the request. */
  own_key?: boolean;
  /** The run whose replies are said again. */
  replay_of?: string;
  /** The run that it branches off from. */
  fork_of?: string;
  /** Before this turn of it. */
  fork_at?: number;
  /** The run that it goes on from. */
  follows?: string;
  /** Of a program, that its code can call: the one that is connected for the run. */
  functions?: string[];
  metadata?: Record<string, string>;
  /** In RFC 3339. */
  created_at: string;
  /** In RFC 3339. */
  ended_at?: string;
}

/** The answer of GET /v1/agents, the newest first. */
export interface AgentRuns {
  runs: AgentRun[];
}

/** An entry of a run's transcript, or something that is told while it happens. */
export interface AgentEvent {
  seq?: number;
  /** In RFC 3339. */
  time: string;
  type: string;
  /** From 1. */
  turn?: number;
  run?: AgentRun;
  request?: AgentRequest;
  sandbox_id?: string;
  context_id?: string;
  /** That from which the sandbox of a fork was restored, with its state. */
  snapshot_id?: string;
  text?: string;
  reasoning?: string;
  stream?: string;
  note?: string;
  loaded?: AgentLoaded;
  asked?: AgentAsked;
  reply?: AgentReply;
  found?: AgentFound;
  cell?: AgentCell;
  outcome?: AgentOutcome;
  rewound?: AgentRewound;
  checkpoint?: AgentCheckpoint;
  forked?: AgentForked;
  messages?: AgentMessage[];
  approval?: Approval;
}

/** What was made of the files in data. The code inside the sandbox says it, so it may be anything. */
export interface AgentLoaded {
  tables: AgentTable[];
  failed?: AgentUnread[];
  /** Python that does the same again, beside the files. */
  code: string;
}

/** A table that was made of a file. Sheets of Excel and tables of SQLite are tables of their own. */
export interface AgentTable {
  /** Of the variable. */
  name: string;
  file: string;
  /** Of the file. */
  bytes: number;
  rows: number;
  /** The first 200. */
  columns: AgentColumn[];
  /** How the file is written, and what was decided about it. */
  notes: string[];
  /** It is too large for a DataFrame: sql() asks it. */
  on_disk: boolean;
  /** That loading the file took. */
  seconds: number;
}

/** A column of a table. */
export interface AgentColumn {
  name: string;
  type: string;
  /** Values. */
  missing: number;
  /** Its range, or its most frequent values. */
  about: string;
}

/** A file that no table could be made of. */
export interface AgentUnread {
  file: string;
  error: string;
}

/** A request to the model. */
export interface AgentAsked {
  messages: number;
  /** A guess. */
  tokens: number;
  /** Of system prompt and messages. */
  sha256: string;
  /** Of the reply: limits.reply_tokens, or what is left of max_tokens and max_cost_usd. */
  reply_tokens?: number;
}

/** What the model said. */
export interface AgentReply {
  text: string;
  reasoning?: string;
  calls?: AgentCall[];
  /** Beyond the first 128, which alone are looked at. */
  more_calls?: number;
  stop: string;
  model?: string;
  /** Of the provider. */
  id?: string;
  attempts: number;
  usage: AgentUsage;
}

/** A tool call of the model. Arguments are as it wrote them. */
export interface AgentCall {
  id: string;
  name: string;
  arguments: string;
}

/** AgentFound says what a reply holds, and how that was found. */
export interface AgentFound {
  blocks: AgentBlock[];
  answer?: string;
  discarded?: AgentDiscarded[];
}

/** A piece of code of a reply. Lines count from 1. */
export interface AgentBlock {
  /** "fence", "tag" or "call". */
  form: string;
  marker?: string;
  language?: string;
  start?: number;
  end?: number;
  closed: boolean;
  /** Fences in strings that did not close it. */
  passed?: number;
}

/** A part of a reply that is not acted on. */
export interface AgentDiscarded {
  why: string;
  start: number;
  end: number;
}

/** A cell that the model wrote. */
export interface AgentCell {
  /** In its turn, from 1. */
  index: number;
  of: number;
  execution_id: string;
  call_id?: string;
  code: string;
  /** Of the code before secrets were taken out. */
  sha256: string;
}

/** How a cell ended. */
export interface AgentOutcome {
  index: number;
  /** As of an execution, or "refused": it never ran. */
  end: string;
  error_name?: string;
  error_value?: string;
  state_survived: boolean;
  duration_ms: number;
  /** As the model is shown it. */
  text: string;
  cut?: boolean;
  /** Of the whole, in the sandbox. */
  output_path?: string;
  figures?: AgentFigure[];
  /** Of final_answer(). */
  answer?: string;
  advice?: AgentAdvice[];
  /** Equal when the same happened. */
  digest: string;
}

/** A picture that a cell drew. */
export interface AgentFigure {
  /** At …/figures/{file}. */
  file: string;
  mime: string;
  width: number;
  height: number;
}

/** What reading a cell's code says about it. It is advice for people and policies and holds nothing back. */
export interface AgentAdvice {
  /** "network", "process", "file_delete", "eval", "dunder", "endless_loop". */
  kind: string;
  line: number;
  what: string;
}

/** What the model is told. */
export interface AgentMessage {
  /** "user" or "tool". */
  role: string;
  text: string;
  call_id?: string;
  figures?: AgentFigure[];
}

/** The state before a turn, to which a run that goes in circles is set back. It is kept as long as a circle may have begun with it. */
export interface AgentCheckpoint {
  /** Below /workspace are in it, which they are up to 8 MB, in sandboxes of the run's own. */
  files: boolean;
  /** Of the files. */
  bytes?: number;
}

/** AgentRewound says that a run was set back. */
export interface AgentRewound {
  /** It goes on as it was before this turn. */
  to_turn: number;
  /** Are as they were then. */
  variables: boolean;
  /** Below /workspace are as they were then. */
  files: boolean;
  /** Cells that ran once more to get there from the last copy. */
  again?: number;
  why: string;
}

/** How far a fork is what its run was: its state was restored from a snapshot, or the cells before ran again. Then what they showed is compared, times, addresses and numbers of cells aside; what they did not show may differ, too. */
export interface AgentForked {
  of: string;
  at: number;
  /** That the state was restored from: nothing ran again. */
  snapshot_id?: string;
  /** That were run again. */
  cells: number;
  /** Those of which something else came, as "turn 2, cell 1". */
  differ?: string[];
  /** They had tools or a network: what they did there happened once more. */
  outside?: boolean;
}

/** The answer of GET /v1/agents/{id}/events as JSON. */
export interface AgentEvents {
  events: AgentEvent[];
}
