package api

import "time"

// The header that carries the model provider's key of one run. It is used for
// that run and never stored.
const ModelKeyHeader = "X-Model-Key"

// AgentRequest is the body of POST /v1/agents: a task for a model that acts by
// writing Python, run in a sandbox.
type AgentRequest struct {
	Task         string            `json:"task,omitempty"`          // needed, but for a replay or a fork
	Model        string            `json:"model,omitempty"`         // PROVIDER:NAME, as openai:gpt-4o or anthropic:claude-…; default the server's
	BaseURL      string            `json:"base_url,omitempty"`      // of a provider elsewhere; needs an admin key, and never gets the server's model key
	Dialect      string            `json:"dialect,omitempty"`       // "text": code in fences (default), "tool": calls of run_python
	Vision       *bool             `json:"vision,omitempty"`        // the model is shown figures; default true
	Instructions string            `json:"instructions,omitempty"`  // added to the system prompt
	SandboxID    string            `json:"sandbox_id,omitempty"`    // work in this one, which is kept; default a new one
	Template     string            `json:"template,omitempty"`      // of a new one, as all down to secrets; default "code-interpreter"
	FromSnapshot string            `json:"from_snapshot,omitempty"` // instead of template: its files are there, its variables are not
	CPU          *float64          `json:"cpu,omitempty"`           // cores; default the template's
	MemoryMB     *int              `json:"memory_mb,omitempty"`     // default the template's
	DiskMB       *int              `json:"disk_mb,omitempty"`       // of the writable layer; default the template's
	PIDs         *int              `json:"pids,omitempty"`          // processes and threads; default the template's
	Envs         map[string]string `json:"envs,omitempty"`          // environment of the code; it stands in the transcript, as what the code may see
	Network      *NetworkPolicy    `json:"network,omitempty"`       // what it may reach; default nothing, or as in the snapshot. The model is told
	Secrets      Secrets           `json:"secrets,omitempty"`       // added to its requests on their way out; values are never stored in the transcript
	Files        []AgentFile       `json:"files,omitempty"`         // written before the run begins
	Keep         string            `json:"keep,omitempty"`          // a new sandbox at the end: "kill" (default), "keep" or "snapshot"
	Limits       AgentLimits       `json:"limits,omitzero"`
	Price        *AgentPrice       `json:"price,omitempty"`     // needed for max_cost_usd
	ReplayOf     string            `json:"replay_of,omitempty"` // instead of all else but keep, metadata and secrets: run the cells of this run again, in a new sandbox, or, of a run that had them, in sandbox_id or behind the replay that follows names; no model is asked
	Fork         *AgentFork        `json:"fork,omitempty"`      // branch off from a run, in place of what that had: task, dialect, files, tools and all of the sandbox
	Data         []string          `json:"data,omitempty"`      // files in the sandbox, absolute or below /workspace, that are loaded as tables before the model is asked; up to 32
	Follows      string            `json:"follows,omitempty"`   // a run that has ended, whose sandbox is still there: go on in it with its variables; the model is told what was asked and answered. Instead of sandbox_id
	Metadata     map[string]string `json:"metadata,omitempty"`
	Tools        *Tools            `json:"tools,omitempty"` // functions outside that its cells can call; default: those of sandbox_id
}

// AgentFork names a moment of another run, at which a new one goes on from the
// same state. Where that run kept a snapshot, and ran no cell from there on, it is
// restored. Otherwise its cells up to there run again in a new sandbox, with the
// replies of that time. The event forked says which, and where something else came of them.
type AgentFork struct {
	Of   string `json:"of"`             // the run
	At   int    `json:"at"`             // the turn whose reply is another one; the turns before it are repeated, and count for max_turns
	Task string `json:"task,omitempty"` // told to the model before that turn
}

// AgentFile is a file for a run.
type AgentFile struct {
	Path    string `json:"path"` // absolute, or below /workspace
	Content []byte `json:"content,omitempty"`
}

// AgentLimits bound a run. 0 means the default.
type AgentLimits struct {
	MaxTurns           int     `json:"max_turns,omitempty"`           // replies of the model; default 20
	MaxCells           int     `json:"max_cells,omitempty"`           // default 40
	MaxSeconds         float64 `json:"max_seconds,omitempty"`         // wall clock; default 900
	MaxTokens          int     `json:"max_tokens,omitempty"`          // of all requests and replies; default 500 000
	MaxCostUSD         float64 `json:"max_cost_usd,omitempty"`        // default none
	CellSeconds        float64 `json:"cell_seconds,omitempty"`        // of one cell; default 15
	ObservationTokens  int     `json:"observation_tokens,omitempty"`  // of what a turn's cells show the model; default 4000
	ReplyTokens        int     `json:"reply_tokens,omitempty"`        // of one reply; default 8192
	ToolTokens         int     `json:"tool_tokens,omitempty"`         // of the prompt, for its tools; default 2000
	ConversationTokens int     `json:"conversation_tokens,omitempty"` // above it, old observations are shortened; default 100 000
}

// AgentPrice is what a model costs, in US dollars a million tokens.
type AgentPrice struct {
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cache_read,omitempty"`  // default as input
	CacheWrite float64 `json:"cache_write,omitempty"` // default as input
}

// The statuses of a run.
const (
	AgentRunning = "running"
	AgentWaiting = "waiting" // a call of a tool waits for somebody's decision
	AgentEnded   = "ended"
)

// The reasons why a run ended.
const (
	AgentAnswered    = "answer" // the model answered
	AgentMaxTurns    = "max_turns"
	AgentMaxCells    = "max_cells"
	AgentMaxSeconds  = "max_seconds"
	AgentMaxTokens   = "max_tokens"
	AgentMaxCost     = "max_cost"
	AgentStuck       = "stuck"        // it went in circles after it was set back twice
	AgentNoReply     = "no_reply"     // its replies were empty, or cut at their limit, three times in a row
	AgentModelFailed = "model_failed" // the provider refused, or failed for too long
	AgentNoKey       = "no_key"       // the server was restarted and the run's own model key is gone
	AgentNoSandbox   = "no_sandbox"   // the sandbox ended, or could not be made
	AgentNoData      = "no_data"      // a file of data could not be loaded
	AgentCancelled   = "cancelled"
	AgentTooLarge    = "too_large" // its transcript, or all that the server's agents hold in memory
	AgentFailed      = "failed"    // a fault of the server, or its disk is full
)

// AgentUsage counts what a run used, as the provider says.
type AgentUsage struct {
	InputTokens      int     `json:"input_tokens"`
	OutputTokens     int     `json:"output_tokens"`
	CacheReadTokens  int     `json:"cache_read_tokens"`
	CacheWriteTokens int     `json:"cache_write_tokens"`
	Estimated        bool    `json:"estimated"` // the provider did not count some of it
	CostUSD          float64 `json:"cost_usd"`  // 0 without a price
}

// AgentRun describes a run.
type AgentRun struct {
	ID         string            `json:"id"`
	Workspace  string            `json:"workspace"`
	Task       string            `json:"task"`
	Model      string            `json:"model"`
	Dialect    string            `json:"dialect"`
	Prompt     string            `json:"prompt"` // version of the system prompt
	Status     string            `json:"status"`
	Reason     string            `json:"reason,omitempty"` // why it ended
	Answer     *string           `json:"answer,omitempty"`
	Error      string            `json:"error,omitempty"` // words for an end without an answer
	SandboxID  string            `json:"sandbox_id,omitempty"`
	ContextID  string            `json:"context_id,omitempty"` // the code context in it that has the run's variables
	SnapshotID string            `json:"snapshot_id,omitempty"`
	Turns      int               `json:"turns"`
	Cells      int               `json:"cells"`
	Rewinds    int               `json:"rewinds"`
	Usage      AgentUsage        `json:"usage"`
	OwnKey     bool              `json:"own_key,omitempty"`   // the model's key came with the request
	ReplayOf   string            `json:"replay_of,omitempty"` // the run whose replies are said again
	ForkOf     string            `json:"fork_of,omitempty"`   // the run that it branches off from
	ForkAt     int               `json:"fork_at,omitempty"`   // before this turn of it
	Follows    string            `json:"follows,omitempty"`   // the run that it goes on from
	Functions  []string          `json:"functions,omitempty"` // of a program, that its code can call: the one that is connected for the run
	Metadata   map[string]string `json:"metadata,omitempty"`
	CreatedAt  time.Time         `json:"created_at"`
	EndedAt    *time.Time        `json:"ended_at,omitempty"`
}

// AgentRuns is the answer of GET /v1/agents, the newest first.
type AgentRuns struct {
	Runs []AgentRun `json:"runs"`
}

// The types of AgentEvent. Those without a number are told while they happen
// and not kept.
const (
	AgentEventStarted    = "started"    // run, request
	AgentEventResumed    = "resumed"    // a new daemon went on with it; note
	AgentEventSandbox    = "sandbox"    // sandbox_id, context_id; of a fork snapshot_id, or note: why its state could not be restored
	AgentEventLoaded     = "loaded"     // loaded: the tables that were made of the files in data
	AgentEventPrompt     = "prompt"     // text: the system prompt
	AgentEventAsked      = "asked"      // asked: the model is asked
	AgentEventReply      = "reply"      // reply
	AgentEventFound      = "found"      // found: what the reply holds
	AgentEventCell       = "cell"       // cell: it starts
	AgentEventOutcome    = "outcome"    // outcome: of the cell
	AgentEventMessage    = "message"    // messages: what the model is told
	AgentEventCheckpoint = "checkpoint" // context_id: a copy with the variables before this turn, none before the first cell; checkpoint
	AgentEventRewound    = "rewound"    // rewound: back to before to_turn; messages
	AgentEventForked     = "forked"     // forked: from here on this run goes on by itself; messages
	AgentEventApproval   = "approval"   // approval: a call of a tool waits for somebody's decision, or had one
	AgentEventEnded      = "ended"      // run

	AgentEventDelta  = "delta"  // text, reasoning; without a number
	AgentEventAgain  = "again"  // note: the reply so far is void; without a number
	AgentEventOutput = "output" // stream, text: a cell writes; without a number
)

// AgentEvent is an entry of a run's transcript, or something that is told while
// it happens.
type AgentEvent struct {
	Seq  int64     `json:"seq,omitempty"`
	Time time.Time `json:"time"`
	Type string    `json:"type"`
	Turn int       `json:"turn,omitempty"` // from 1

	Run       *AgentRun     `json:"run,omitempty"`
	Request   *AgentRequest `json:"request,omitempty"`
	SandboxID string        `json:"sandbox_id,omitempty"`
	ContextID string        `json:"context_id,omitempty"`
	// SnapshotID is that from which the sandbox of a fork was restored, with its state.
	SnapshotID string `json:"snapshot_id,omitempty"`
	Text       string `json:"text,omitempty"`
	Reasoning  string `json:"reasoning,omitempty"`
	Stream     string `json:"stream,omitempty"`
	Note       string `json:"note,omitempty"`

	Loaded  *AgentLoaded  `json:"loaded,omitempty"`
	Asked   *AgentAsked   `json:"asked,omitempty"`
	Reply   *AgentReply   `json:"reply,omitempty"`
	Found   *AgentFound   `json:"found,omitempty"`
	Cell    *AgentCell    `json:"cell,omitempty"`
	Outcome *AgentOutcome `json:"outcome,omitempty"`
	Rewound *AgentRewound `json:"rewound,omitempty"`

	Checkpoint *AgentCheckpoint `json:"checkpoint,omitempty"`
	Forked     *AgentForked     `json:"forked,omitempty"`

	Messages []AgentMessage `json:"messages,omitempty"`
	Approval *Approval      `json:"approval,omitempty"`
}

// AgentLoaded is what was made of the files in data. The code inside the sandbox
// says it, so it may be anything.
type AgentLoaded struct {
	Tables []AgentTable  `json:"tables"`
	Failed []AgentUnread `json:"failed,omitempty"`
	Code   string        `json:"code"` // Python that does the same again, beside the files
}

// AgentTable is a table that was made of a file. Sheets of Excel and tables of
// SQLite are tables of their own.
type AgentTable struct {
	Name    string        `json:"name"` // of the variable
	File    string        `json:"file"`
	Bytes   int64         `json:"bytes"` // of the file
	Rows    int64         `json:"rows"`
	Columns []AgentColumn `json:"columns"` // the first 200
	Notes   []string      `json:"notes"`   // how the file is written, and what was decided about it
	OnDisk  bool          `json:"on_disk"` // it is too large for a DataFrame: sql() asks it
	Seconds float64       `json:"seconds"` // that loading the file took
}

// AgentColumn is a column of a table.
type AgentColumn struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Missing int64  `json:"missing"` // values
	About   string `json:"about"`   // its range, or its most frequent values
}

// AgentUnread is a file that no table could be made of.
type AgentUnread struct {
	File  string `json:"file"`
	Error string `json:"error"`
}

// AgentAsked is a request to the model.
type AgentAsked struct {
	Messages int    `json:"messages"`
	Tokens   int    `json:"tokens"` // a guess
	SHA256   string `json:"sha256"` // of system prompt and messages

	ReplyTokens int `json:"reply_tokens,omitempty"` // of the reply: limits.reply_tokens, or what is left of max_tokens and max_cost_usd
}

// AgentReply is what the model said.
type AgentReply struct {
	Text      string      `json:"text"`
	Reasoning string      `json:"reasoning,omitempty"`
	Calls     []AgentCall `json:"calls,omitempty"`
	MoreCalls int         `json:"more_calls,omitempty"` // beyond the first 128, which alone are looked at
	Stop      string      `json:"stop"`
	Model     string      `json:"model,omitempty"`
	ID        string      `json:"id,omitempty"` // of the provider
	Attempts  int         `json:"attempts"`
	Usage     AgentUsage  `json:"usage"`
}

// AgentCall is a tool call of the model. Arguments are as it wrote them.
type AgentCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// AgentFound says what a reply holds, and how that was found.
type AgentFound struct {
	Blocks    []AgentBlock     `json:"blocks"`
	Answer    *string          `json:"answer,omitempty"`
	Discarded []AgentDiscarded `json:"discarded,omitempty"`
}

// AgentBlock is a piece of code of a reply. Lines count from 1.
type AgentBlock struct {
	Form     string `json:"form"` // "fence", "tag" or "call"
	Marker   string `json:"marker,omitempty"`
	Language string `json:"language,omitempty"`
	Start    int    `json:"start,omitempty"`
	End      int    `json:"end,omitempty"`
	Closed   bool   `json:"closed"`
	Passed   int    `json:"passed,omitempty"` // fences in strings that did not close it
}

// AgentDiscarded is a part of a reply that is not acted on.
type AgentDiscarded struct {
	Why   string `json:"why"`
	Start int    `json:"start"`
	End   int    `json:"end"`
}

// AgentCell is a cell that the model wrote.
type AgentCell struct {
	Index       int    `json:"index"` // in its turn, from 1
	Of          int    `json:"of"`
	ExecutionID string `json:"execution_id"`
	CallID      string `json:"call_id,omitempty"`
	Code        string `json:"code"`
	SHA256      string `json:"sha256"` // of the code before secrets were taken out
}

// AgentOutcome is how a cell ended.
type AgentOutcome struct {
	Index         int           `json:"index"`
	End           string        `json:"end"` // as of an execution, or "refused": it never ran
	ErrorName     string        `json:"error_name,omitempty"`
	ErrorValue    string        `json:"error_value,omitempty"`
	StateSurvived bool          `json:"state_survived"`
	DurationMS    float64       `json:"duration_ms"`
	Text          string        `json:"text"` // as the model is shown it
	Cut           bool          `json:"cut,omitempty"`
	OutputPath    string        `json:"output_path,omitempty"` // of the whole, in the sandbox
	Figures       []AgentFigure `json:"figures,omitempty"`
	Answer        *string       `json:"answer,omitempty"` // of final_answer()
	Advice        []AgentAdvice `json:"advice,omitempty"`
	Digest        string        `json:"digest"` // equal when the same happened
}

// AgentFigure is a picture that a cell drew.
type AgentFigure struct {
	File   string `json:"file"` // at …/figures/{file}
	MIME   string `json:"mime"`
	Width  int    `json:"width"`
	Height int    `json:"height"`
}

// AgentAdvice is what reading a cell's code says about it. It is advice for
// people and policies and holds nothing back.
type AgentAdvice struct {
	Kind string `json:"kind"` // "network", "process", "file_delete", "eval", "dunder", "endless_loop"
	Line int    `json:"line"`
	What string `json:"what"`
}

// AgentMessage is what the model is told.
type AgentMessage struct {
	Role    string        `json:"role"` // "user" or "tool"
	Text    string        `json:"text"`
	CallID  string        `json:"call_id,omitempty"`
	Figures []AgentFigure `json:"figures,omitempty"`
}

// AgentCheckpoint is the state before a turn, to which a run that goes in
// circles is set back. It is kept as long as a circle may have begun with it.
type AgentCheckpoint struct {
	Files bool  `json:"files"`           // below /workspace are in it, which they are up to 8 MB, in sandboxes of the run's own
	Bytes int64 `json:"bytes,omitempty"` // of the files
}

// AgentRewound says that a run was set back.
type AgentRewound struct {
	ToTurn    int    `json:"to_turn"`         // it goes on as it was before this turn
	Variables bool   `json:"variables"`       // are as they were then
	Files     bool   `json:"files"`           // below /workspace are as they were then
	Again     int    `json:"again,omitempty"` // cells that ran once more to get there from the last copy
	Why       string `json:"why"`
}

// AgentForked says how far a fork is what its run was: its state was restored from a
// snapshot, or the cells before ran again. Then what they showed is compared, times,
// addresses and numbers of cells aside; what they did not show may differ, too.
type AgentForked struct {
	Of         string   `json:"of"`
	At         int      `json:"at"`
	SnapshotID string   `json:"snapshot_id,omitempty"` // that the state was restored from: nothing ran again
	Cells      int      `json:"cells"`                 // that were run again
	Differ     []string `json:"differ,omitempty"`      // those of which something else came, as "turn 2, cell 1"
	Outside    bool     `json:"outside,omitempty"`     // they had tools or a network: what they did there happened once more
}

// AgentEvents is the answer of GET /v1/agents/{id}/events as JSON.
type AgentEvents struct {
	Events []AgentEvent `json:"events"`
}
