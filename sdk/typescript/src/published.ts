/** Names that programs for the published SDK use, for what has another one here. */

import type { Lifecycle, Me, NewKey, KeyInfo, Promotion, Snapshot } from "./api.js";
import type { ClientOptions } from "./client.js";
import { Snapshots } from "./client.js";
import type { ExecOptions, OutputCallbacks } from "./commands.js";
import type { Exploration, Outcome } from "./explore.js";
import type { CreateOptions, ForkOptions, Sandbox } from "./sandbox.js";

export { Snapshots as SnapshotsAPI, Snapshots as SnapshotsNamespace };
export type ClientConfig = ClientOptions;
export type SandboxCreateOptions = CreateOptions;
export type SandboxForkOptions = ForkOptions;
export type SandboxForkTreeOptions = NonNullable<Parameters<Sandbox["forkTree"]>[0]>;
export type LogsOptions = NonNullable<Parameters<Sandbox["logs"]>[0]>;
export type ExecStreamCallbacks = ExecOptions & OutputCallbacks;
export type BranchOutcome = Outcome;
export type ExploreResult = Exploration;
export type LifecycleInfo = Lifecycle;
export type PromoteResult = Promotion;
export type SnapshotInfo = Snapshot;
export type TokenInfo = KeyInfo;
export type CreatedToken = NewKey;
export type MeInfo = Me;
