package api

import "time"

// ExecRequest is the body of POST …/exec and …/exec/stream: run a command and
// wait for it. Cmd is a shell string or, in JSON, an array of arguments.
type ExecRequest struct {
	Cmd            Command           `json:"cmd"`
	TimeoutSeconds float64           `json:"timeout_seconds,omitempty"` // default 60
	CWD            string            `json:"cwd,omitempty"`             // default "/workspace"
	Envs           map[string]string `json:"envs,omitempty"`
	User           string            `json:"user,omitempty"` // name or uid; default root
	Stdin          *string           `json:"stdin,omitempty"`
	ExecutionID    string            `json:"execution_id,omitempty"` // yours, of this command alone: a caller that goes away may come back to it
	Attach         bool              `json:"attach,omitempty"`       // it may have been started already: follow it then
}

// ExecResult is the answer of POST …/exec.
type ExecResult struct {
	Stdout        string  `json:"stdout"`
	Stderr        string  `json:"stderr"`
	ExitCode      int     `json:"exit_code"`        // as in Exit
	Signal        string  `json:"signal,omitempty"` // as in Exit
	Reason        string  `json:"reason,omitempty"` // as in Exit
	DurationMS    float64 `json:"duration_ms"`
	Hint          string  `json:"hint,omitempty"` // which limit of the sandbox is behind a bad end
	TimedOut      bool    `json:"timed_out,omitempty"`
	Truncated     bool    `json:"truncated,omitempty"`
	StdoutDropped int64   `json:"stdout_dropped,omitempty"`
	StderrDropped int64   `json:"stderr_dropped,omitempty"`
	OutputPath    string  `json:"output_path,omitempty"`
}

// ExecFailure is the body of a POST …/exec that failed after the command had
// started: the error, and what the command had written until then.
type ExecFailure struct {
	*Error
	Stdout        string `json:"stdout"`
	Stderr        string `json:"stderr"`
	ExitCode      *int   `json:"exit_code,omitempty"` // of a command that ran out of time; nobody knows it otherwise
	TimedOut      bool   `json:"timed_out,omitempty"`
	Truncated     bool   `json:"truncated,omitempty"`
	StdoutDropped int64  `json:"stdout_dropped,omitempty"`
	StderrDropped int64  `json:"stderr_dropped,omitempty"`
	OutputPath    string `json:"output_path,omitempty"`
}

// StartProcessRequest is the body of POST …/processes: start a command and
// return at once.
type StartProcessRequest struct {
	Cmd       Command           `json:"cmd"`
	CWD       string            `json:"cwd,omitempty"`
	Envs      map[string]string `json:"envs,omitempty"`
	User      string            `json:"user,omitempty"`
	Tag       string            `json:"tag,omitempty"`        // a name of the client's, unique while it runs
	TimeoutMS int64             `json:"timeout_ms,omitempty"` // 0: none
	Stdin     bool              `json:"stdin,omitempty"`      // keep standard input open for writing
	PTY       *PTY              `json:"pty,omitempty"`        // give it a terminal of this size
}

// PTY is the size of a terminal. What a process with a terminal writes is all
// stdout, and what is written to its standard input is typed. The body of POST
// …/processes/{pid}/resize.
type PTY struct {
	Rows int `json:"rows,omitempty"` // 1 to 1000; 24 when missing
	Cols int `json:"cols,omitempty"` // 1 to 1000; 80 when missing
}

// Process describes a process that was started through the API.
type Process struct {
	PID       int        `json:"pid"`
	Tag       string     `json:"tag,omitempty"`
	Cmd       Command    `json:"cmd"`
	CWD       string     `json:"cwd"`
	User      string     `json:"user"`
	StartedAt time.Time  `json:"started_at"`
	Running   bool       `json:"running"`
	PTY       *PTY       `json:"pty,omitempty"`        // the size of its terminal, if it has one
	LastEvent int64      `json:"last_event,omitempty"` // number of the newest event of its output
	Exit      *Exit      `json:"exit,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
}

// The reasons of an Exit.
const (
	ReasonExited   = "exited"   // by itself
	ReasonSignaled = "signaled" // by a signal that was not ours
	ReasonTimeout  = "timeout"  // at its deadline, with its whole session
	ReasonOOM      = "oom"      // for memory, as the largest in the sandbox
	ReasonKilled   = "killed"   // through the API, with its whole session
)

// Exit is how a process ended.
type Exit struct {
	Code          int     `json:"exit_code"`        // its own; 128 + n when signal n ended it; 124 when it made a success of its deadline
	Signal        string  `json:"signal,omitempty"` // "SIGKILL"
	Reason        string  `json:"reason"`           // one of the above
	Hint          string  `json:"hint,omitempty"`   // which limit of the sandbox is behind a bad end
	DurationMS    float64 `json:"duration_ms"`
	StdoutDropped int64   `json:"stdout_dropped,omitempty"`
	StderrDropped int64   `json:"stderr_dropped,omitempty"`
	OutputPath    string  `json:"output_path,omitempty"`
}

// SignalRequest is the body of POST …/processes/{pid}/signal.
type SignalRequest struct {
	Signal string `json:"signal"` // "SIGTERM", "TERM" or "15"
}
