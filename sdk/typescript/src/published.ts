/** Names that programs for the published SDK use, for what has another one here. */

import type { Lifecycle, Me, NewKey, KeyInfo, Promotion, Snapshot } from "./api.js";
import type { ClientOptions } from "./client.js";
import { Snapshots } from "./client.js";
import type { ExecOptions, OutputCallbacks } from "./commands.js";
import type { Exploration, Outcome } from "./explore.js";
import type { CreateOptions, ForkOptions, Sandbox } from "./sandbox.js";

export { Snapshots as SnapshotsAPI, Snapshots as SnapshotsNamespace };
/** The same as `ClientOptions`. */
export type ClientConfig = ClientOptions;
/** The same as `CreateOptions`. */
export type SandboxCreateOptions = CreateOptions;
/** The same as `ForkOptions`. */
export type SandboxForkOptions = ForkOptions;
/** The options of `forkTree`. */
export type SandboxForkTreeOptions = NonNullable<Parameters<Sandbox["forkTree"]>[0]>;
/** The options of `logs`. */
export type LogsOptions = NonNullable<Parameters<Sandbox["logs"]>[0]>;
/** The same as `ExecOptions` and `OutputCallbacks`. */
export type ExecStreamCallbacks = ExecOptions & OutputCallbacks;
/** The same as `Outcome`. */
export type BranchOutcome = Outcome;
/** The same as `Exploration`. */
export type ExploreResult = Exploration;
/** The same as `Lifecycle`. */
export type LifecycleInfo = Lifecycle;
/** The same as `Promotion`. */
export type PromoteResult = Promotion;
/** The same as `Snapshot`. */
export type SnapshotInfo = Snapshot;
/** The same as `KeyInfo`. */
export type TokenInfo = KeyInfo;
/** The same as `NewKey`. */
export type CreatedToken = NewKey;
/** The same as `Me`. */
export type MeInfo = Me;
