package api

import (
	"encoding/json"
	"time"
)

// OneShotRequest is the body of POST …/repl: run code once and keep nothing.
type OneShotRequest struct {
	Language  string `json:"language,omitempty"` // default "python"; GET …/repl/languages names all
	Code      string `json:"code"`
	TimeoutMS int64  `json:"timeout_ms,omitempty"` // default 30 000
}

// OneShotResult is the answer of POST …/repl.
type OneShotResult struct {
	Language string `json:"language"`
	Execution
}

// Languages is the answer of GET …/repl/languages.
type Languages struct {
	Languages []string `json:"languages"`
}

// End says how an execution ended.
type End string

// The kinds of end.
const (
	EndOK          End = "ok"
	EndError       End = "error"       // the cell raised
	EndTimeout     End = "timeout"     // the deadline passed
	EndInterrupted End = "interrupted" // somebody asked for it
	EndOOM         End = "oom"         // killed for its memory
	EndKernelDied  End = "kernel_died" // the interpreter ended: os._exit, a crash in C, a signal
)

// DefaultContext is the id of the context that run_code without one uses; it
// is made on first use.
const DefaultContext = "default"

// CreateContextRequest is the body of POST …/repl/sessions.
type CreateContextRequest struct {
	ID       string            `json:"id,omitempty"`       // chosen by the server when empty
	Language string            `json:"language,omitempty"` // "python" (also "py", "python3")
	CWD      string            `json:"cwd,omitempty"`      // default "/workspace"
	Envs     map[string]string `json:"envs,omitempty"`
}

// Context describes a code context: one interpreter that keeps its state.
type Context struct {
	ID             string    `json:"id"`
	SandboxID      string    `json:"sandbox_id"`
	Language       string    `json:"language"`
	State          string    `json:"state"` // "starting", "idle", "busy", "dead"
	CWD            string    `json:"cwd"`
	CreatedAt      time.Time `json:"created_at"`
	ExecutionCount int       `json:"execution_count"`
	Queued         int       `json:"queued"`                // executions that wait for their turn
	RunningID      string    `json:"running_id,omitempty"`  // of the execution in progress
	Incarnation    int       `json:"incarnation"`           // goes up whenever the interpreter is a new one
	ForkedFrom     string    `json:"forked_from,omitempty"` // the context that this one is a copy of
}

// ForkContextRequest is the body of POST …/repl/sessions/{cid}/fork.
type ForkContextRequest struct {
	Count int `json:"count,omitempty"` // copies, 1 to 32; default 1
}

// ForkContextResponse is its answer.
type ForkContextResponse struct {
	Children []Context `json:"children"` // the copies, each with all variables of the original
	Warnings []string  `json:"warnings"` // what the copies lack, or share with the original: threads, open files, connections
}

// RunRequest is the body of POST …/repl/sessions/{cid}/run.
type RunRequest struct {
	Code        string `json:"code"`
	TimeoutMS   int64  `json:"timeout_ms,omitempty"`   // default 30 000
	ExecutionID string `json:"execution_id,omitempty"` // chosen by the client; the same id never runs twice
	Detach      bool   `json:"detach,omitempty"`       // go on when the client is gone
}

// Execution is the outcome of a cell.
type Execution struct {
	ExecutionID    string   `json:"execution_id"`
	ExecutionCount int      `json:"execution_count"`
	End            End      `json:"end"`
	StateSurvived  bool     `json:"state_survived"` // variables are still there
	Stdout         string   `json:"stdout"`
	Stderr         string   `json:"stderr"`
	Results        []Bundle `json:"results"`         // the last expression first, then displays in order
	Error          *string  `json:"error,omitempty"` // the formatted traceback, or words for a deadline or a dead kernel
	ErrorName      string   `json:"error_name,omitempty"`
	ErrorValue     string   `json:"error_value,omitempty"`
	Exit           int      `json:"exit"` // 0 or 1
	ExitCode       int      `json:"exit_code"`
	DurationMS     float64  `json:"duration_ms"`
	Truncated      bool     `json:"truncated"` // something was dropped, see below

	StdoutDropped  int64  `json:"stdout_dropped,omitempty"` // bytes left out in the middle of Stdout
	StderrDropped  int64  `json:"stderr_dropped,omitempty"`
	ResultsDropped int    `json:"results_dropped,omitempty"` // results left out: too many, too large, or the server holds too much output at once
	OutputPath     string `json:"output_path,omitempty"`     // file in the sandbox with the whole of it, up to a limit
	Step           string `json:"step,omitempty"`            // what ended a cell that had to be stopped: "interrupt", "terminate", "kill"

	// ResultsMeta runs parallel to Results. The published clients read each
	// result as a plain MIME bundle, so what is said about one stands beside it.
	ResultsMeta []ResultMeta `json:"results_meta"`
}

// Bundle is a result by MIME type. Every value is a string: text as it is,
// images in base64 without newlines, JSON types as encoded JSON.
type Bundle map[string]string

// ResultMeta is what is known of a result beside its data.
type ResultMeta struct {
	IsLastExpression bool                       `json:"is_last_expression"`
	Metadata         map[string]json.RawMessage `json:"metadata,omitempty"`
}

// The types of Event.
const (
	EventStarted      = "started"
	EventStdout       = "stdout"
	EventStderr       = "stderr"
	EventResult       = "result"
	EventInputRequest = "input_request"
	EventGap          = "gap"     // output that was not kept; Dropped bytes of Stream
	EventMessage      = "message" // to a notebook, and to nobody else
	EventEnd          = "end"     // of an execution
	EventExit         = "exit"    // of a process
)

// Event is one entry in the numbered output of an execution or a process. Only
// the fields of its type are set.
type Event struct {
	Seq  int64  `json:"seq"`
	Type string `json:"type"`

	ExecutionID    string `json:"execution_id,omitempty"`    // started
	ExecutionCount int    `json:"execution_count,omitempty"` // started
	PID            int    `json:"pid,omitempty"`             // started (a process)

	Text string `json:"text,omitempty"` // stdout, stderr: valid UTF-8
	Raw  []byte `json:"raw,omitempty"`  // stdout, stderr of a process: bytes that are not UTF-8, instead of Text

	Data             Bundle                     `json:"data,omitempty"` // result
	Metadata         map[string]json.RawMessage `json:"metadata,omitempty"`
	IsLastExpression bool                       `json:"is_last_expression,omitempty"`

	Prompt   string `json:"prompt,omitempty"`   // input_request
	Password bool   `json:"password,omitempty"` // input_request: what is typed must not be seen

	Message *NotebookMessage `json:"message,omitempty"` // message
	Reply   json.RawMessage  `json:"reply,omitempty"`   // end, of what a notebook asked: the content of the answer

	Stream  string `json:"stream,omitempty"`  // gap: "stdout" or "stderr"
	Dropped int64  `json:"dropped,omitempty"` // gap: bytes

	Execution *Execution `json:"execution,omitempty"` // end: all but Stdout, Stderr, Results, ResultsMeta
	Exit      *Exit      `json:"exit,omitempty"`      // exit
}

// NotebookMessage is what goes over Jupyter's iopub channel besides output and
// results: comm messages, displays that have an id and their updates.
type NotebookMessage struct {
	Type     string          `json:"type"` // as in "comm_msg"
	Content  json.RawMessage `json:"content"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Buffers  [][]byte        `json:"buffers,omitempty"`
}
