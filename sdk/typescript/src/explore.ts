/** Trying several commands side by side, each in a copy of the sandbox: see `Sandbox.explore`. */

import type { Command } from "./commands.js";
import type { CallOptions } from "./connection.js";
import type { Awaitable } from "./context.js";
import { ExploreError, PandaStackError, SandboxTimeout } from "./errors.js";
import type { Sandbox } from "./sandbox.js";

/** A try of `explore`: a command, or a function that works in the branch itself. */
export interface Candidate {
  /** A string for the shell, or an array of arguments. */
  cmd?: Command | undefined;
  /** What to do in the branch, instead of `cmd`. What it returns is the outcome's `value`; what it throws its `error`. */
  fn?: ((branch: Sandbox) => Awaitable<unknown>) | undefined;
  /** A name for it. Default: a string's own words, else its number. */
  label?: string | undefined;
  /** The command's deadline. Default: that of the call. */
  timeoutSeconds?: number | undefined;
  /** The same by its older name. */
  timeoutS?: number | undefined;
  /** Variables for the command. */
  env?: Record<string, string> | undefined;
  /** Its score, instead of `scoreFn`. */
  score?: number | undefined;
}

/** What became of one candidate. */
export interface Outcome {
  /** Which one it was. */
  readonly index: number;
  /** Its name. */
  readonly label: string;
  /** What ran, undefined for a function. */
  readonly cmd: Command | undefined;
  /** The branch it ran in. */
  readonly sandboxId: string;
  /** The branch itself. */
  readonly sandbox: Sandbox;
  /** Whether the command ended with status 0, or the function returned. */
  ok: boolean;
  /** The command's status, undefined when it did not end; then `error` says why. */
  exitCode: number | undefined;
  /** What the function returned. */
  value: unknown;
  /** The last 4096 characters of what it wrote. */
  stdoutTail: string;
  /** And to standard error. */
  stderrTail: string;
  /** How long it ran. */
  durationMs: number;
  /** Paths that it wrote, 200 at most. */
  filesChanged: string[];
  /** What it was chosen by, undefined when it was not scored. */
  score: number | undefined;
  /** Why it did not end well, undefined when it did. */
  error: string | undefined;
  /** Whether its deadline ended it. */
  timedOut: boolean;
}

/** What `explore` found. */
export interface Exploration {
  /** The branch that was chosen. */
  winner: Sandbox | undefined;
  /** And what became of it. */
  winnerOutcome: Outcome | undefined;
  /** All of them, in the order of the candidates. */
  readonly outcomes: Outcome[];
  /** Of the branches. */
  readonly treeId: string | undefined;
  /** Ids of the branches that were ended. */
  readonly reaped: string[];
  /** Why others could not be, by id. */
  readonly reapFailures: Record<string, string>;
  /** Candidates that got no branch. */
  readonly errors: string[];
}

/** How `explore` chooses. */
export interface ExploreOptions extends CallOptions {
  /**
   * Gives an outcome a number; one with NaN is not chosen. With `requireSuccess` only those that ended with status 0 are
   * scored. Default: 1 for a status of 0, else 0.
   */
  scoreFn?: ((branch: Sandbox, outcome: Outcome) => Awaitable<number>) | undefined;
  /** The highest or the lowest score, of equals the quickest; or a function that chooses of those that may be. Default: "max". */
  select?: "max" | "min" | ((able: Outcome[]) => Outcome | undefined) | undefined;
  /** How many run at once. Default: 4. */
  maxConcurrency?: number | undefined;
  /** Choose only among those that ended with status 0. Default: true. */
  requireSuccess?: boolean | undefined;
  /** End the other copies. Default: true. */
  cleanupLosers?: boolean | undefined;
  /** Mark the chosen one. Default: true. */
  promoteWinner?: boolean | undefined;
  /** Tell which files each wrote, under these folders (separated by blanks) or the usual ones. Default: true. */
  captureFiles?: boolean | string | undefined;
  /** The copies' lives from now, in seconds. Default: the parent's. */
  ttlSeconds?: number | undefined;
  /** Hears of each outcome as it comes, before it is scored. */
  onOutcome?: ((outcome: Outcome) => Awaitable<unknown>) | undefined;
  /** The deadline of each. Default: 60. */
  timeoutSeconds?: number | undefined;
  /** Strings for the copies. */
  metadata?: Record<string, string> | undefined;
}

const MOST = 16;
const TAIL = 4096;
const MARKER = "/tmp/.pandastack-explore";
const FOLDERS = "/workspace /app /work /root /home";

/** @internal */
export async function explore(sandbox: Sandbox, candidates: readonly (string | Candidate)[], options: ExploreOptions): Promise<Exploration> {
  const { scoreFn, select = "max", maxConcurrency = 4, requireSuccess = true, cleanupLosers = true, promoteWinner = true, metadata, ttlSeconds, signal } = options;
  const tries: Candidate[] = candidates.map((candidate) => (typeof candidate === "string" ? { cmd: candidate } : candidate));
  for (const [index, { cmd, fn }] of tries.entries()) {
    if ((cmd === undefined) === (fn === undefined)) throw new TypeError(`candidate ${index} must have either cmd or fn`);
  }
  if (tries.length < 1 || tries.length > MOST) throw new RangeError(`candidates must be 1 to ${MOST} commands, not ${tries.length}`);
  if (select !== "max" && select !== "min" && typeof select !== "function") throw new RangeError(`select must be "max", "min" or a function, not ${JSON.stringify(select)}`);
  if (!(maxConcurrency >= 1)) throw new RangeError("maxConcurrency must be at least 1");
  const branches = await sandbox.forkTree({ count: tries.length, metadata: { ...metadata, explore: "1" }, ttlSeconds, signal });
  const found: Exploration = {
    winner: undefined,
    winnerOutcome: undefined,
    outcomes: [],
    treeId: branches[0]?.metadata["fork_tree_id"],
    reaped: [],
    reapFailures: {},
    // Branches that could not be made leave the last candidates without one.
    errors: tries.slice(branches.length).map((_, index) => `candidate ${branches.length + index} got no branch`),
  };
  try {
    found.outcomes.push(...(await sideBySide(maxConcurrency, branches, (branch, index) => attempt(branch, index, tries[index]!, options))));
    for (const outcome of found.outcomes) {
      if (outcome.error !== undefined) continue;
      const given = tries[outcome.index]!.score;
      if (given !== undefined) outcome.score = given;
      else if (scoreFn === undefined) outcome.score = outcome.ok ? 1 : 0;
      else if (outcome.ok || !requireSuccess) outcome.score = await scoreFn(outcome.sandbox, outcome);
    }
    found.winnerOutcome = pick(found.outcomes, select, requireSuccess);
    found.winner = found.winnerOutcome && branches[found.winnerOutcome.index];
    if (promoteWinner) await found.winner?.promote({ signal });
  } catch (error) {
    await reap(found, branches);
    throw error;
  }
  if (cleanupLosers || found.winner === undefined) await reap(found, branches.filter((branch) => branch !== found.winner));
  if (found.winner === undefined) throw new ExploreError(`none of ${tries.length} candidates succeeded`, found);
  return found;
}

/** The outcome with the best score; of equals the quickest. What has none, or NaN, is not chosen. */
function pick(outcomes: Outcome[], select: NonNullable<ExploreOptions["select"]>, requireSuccess: boolean): Outcome | undefined {
  const able = outcomes.filter((o) => o.score !== undefined && !Number.isNaN(o.score) && (o.ok || !requireSuccess));
  if (typeof select === "function") return able.length === 0 ? undefined : select(able);
  const sign = select === "max" ? -1 : 1;
  return able.sort((a, b) => sign * (a.score! - b.score!) || a.durationMs - b.durationMs)[0];
}

async function attempt(branch: Sandbox, index: number, candidate: Candidate, options: ExploreOptions): Promise<Outcome> {
  const { captureFiles = true, onOutcome, signal } = options;
  const { cmd } = candidate;
  const outcome: Outcome = {
    index,
    label: candidate.label ?? (typeof cmd === "string" ? cmd : String(index)),
    cmd,
    sandboxId: branch.id,
    sandbox: branch,
    ok: false,
    exitCode: undefined,
    value: undefined,
    stdoutTail: "",
    stderrTail: "",
    durationMs: 0,
    filesChanged: [],
    score: undefined,
    error: undefined,
    timedOut: false,
  };
  const began = performance.now();
  try {
    if (captureFiles) await branch.exec(["touch", MARKER], { signal });
    await tryOut(branch, candidate, outcome, options);
    if (captureFiles) {
      const folders = captureFiles === true ? FOLDERS : captureFiles;
      const found = await branch.exec(`find ${folders} -type f -newer ${MARKER} 2>/dev/null | head -n 200`, { signal });
      outcome.filesChanged = found.stdout.split("\n").filter((path) => path !== "");
    }
  } catch (error) {
    signal?.throwIfAborted();
    outcome.ok = false;
    outcome.error = error instanceof Error ? error.message : String(error);
    outcome.timedOut = error instanceof SandboxTimeout;
    outcome.durationMs = performance.now() - began;
    if (error instanceof PandaStackError) [outcome.stdoutTail, outcome.stderrTail] = [error.stdout.slice(-TAIL), error.stderr.slice(-TAIL)];
  }
  await onOutcome?.(outcome);
  return outcome;
}

async function tryOut(branch: Sandbox, candidate: Candidate, outcome: Outcome, options: ExploreOptions): Promise<void> {
  if (candidate.fn !== undefined) {
    const began = performance.now();
    outcome.value = await candidate.fn(branch);
    outcome.durationMs = performance.now() - began;
    outcome.ok = true;
    return;
  }
  const timeoutSeconds = candidate.timeoutSeconds ?? candidate.timeoutS ?? options.timeoutSeconds;
  const done = await branch.exec(candidate.cmd!, { timeoutSeconds, envs: candidate.env, signal: options.signal });
  outcome.exitCode = done.exitCode;
  outcome.ok = done.exitCode === 0;
  outcome.durationMs = done.durationMs ?? 0;
  outcome.stdoutTail = done.stdout.slice(-TAIL);
  outcome.stderrTail = done.stderr.slice(-TAIL);
}

async function reap(found: Exploration, branches: Sandbox[]): Promise<void> {
  await sideBySide(4, branches, async (branch) => {
    try {
      await branch.kill();
      found.reaped.push(branch.id);
    } catch (error) {
      if (!(error instanceof PandaStackError)) throw error;
      found.reapFailures[branch.id] = error.message;
    }
  });
}

/** `work` on each item, so many at once; the outcomes in order. The first error is thrown when all have ended. */
async function sideBySide<T, R>(limit: number, items: readonly T[], work: (item: T, index: number) => Promise<R>): Promise<R[]> {
  const done: PromiseSettledResult<R>[] = [];
  let next = 0;
  const worker = async () => {
    for (let at = next++; at < items.length; at = next++) [done[at]] = await Promise.allSettled([work(items[at]!, at)]) as [PromiseSettledResult<R>];
  };
  await Promise.all(Array.from({ length: Math.min(limit, items.length) }, worker));
  return done.map((outcome) => {
    if (outcome.status === "rejected") throw outcome.reason;
    return outcome.value;
  });
}
