// Package guestapi is the protocol between the host and the guest agent: the
// handshake, the routes and the bodies that are not already part of the public
// contract in package api, and the checks that both ends make. Both import it.
//
// The guest connects out to a Unix socket, sends Hello as one line of JSON and
// reads Welcome as one line. From then on the connection carries HTTP/2 with
// prior knowledge, in which the host is the client and the guest the server.
// Everything the guest says is untrusted.
//
//	GET    /health                                   Health
//	GET    /log?after=N&follow=1                     NDJSON of LogLine with seq > N: those kept, then those that come
//	POST   /assign                                   AssignRequest → AssignResponse
//	POST   /hooks/snapshot                           204; tells programs that an image is about to be taken, for 2 s at most
//	POST   /warm WarmRequest → WarmResponse (template builds only)
//	GET    /contexts                                 []api.Context
//	POST   /contexts                                 api.CreateContextRequest → api.Context; the same id again is 409
//	GET    /contexts/{cid}                           api.Context
//	DELETE /contexts/{cid}                           204
//	POST   /contexts/{cid}/interrupt                 204; interrupts the running cell, if any
//	POST   /contexts/{cid}/restart                   api.Context; a new interpreter under the same id
//	POST   /contexts/{cid}/executions                RunRequest → NDJSON of api.Event, from the first to the end
//	GET    /contexts/{cid}/executions/{eid}?after=N&follow=1   NDJSON of api.Event with seq > N
//	POST   /contexts/{cid}/executions/{eid}/interrupt
//	POST   /contexts/{cid}/executions/{eid}/input    InputReply → 204; what input() gives; 409 when the cell does not run
//	GET    /processes                                []api.Process
//	POST   /processes                                StartProcess → api.Process
//	GET    /processes/{pid}                          api.Process
//	GET    /processes/{pid}/events?after=N&follow=1  NDJSON of api.Event
//	POST   /processes/{pid}/stdin                    raw bytes appended to standard input
//	POST   /processes/{pid}/stdin/close              204
//	POST   /processes/{pid}/signal                   api.SignalRequest, to the whole group
//	POST   /processes/{pid}/resize                   api.PTY → 204; of its terminal
//	DELETE /processes/{pid}                          kill the session
//	GET    /files?path=                              bytes; Range is honoured
//	PUT    /files?path=&mode=0644&append=1           bytes → api.WriteResult; atomic unless appended, parents are made
//	DELETE /files?path=&recursive=1                  204
//	GET    /files/stat?path=                         api.FileInfo
//	GET    /files/dir?path=&after=NAME&limit=N       api.DirListing
//	GET    /files/tar?path=                          a tar stream of what is in a folder
//	PUT    /files/tar?path=                          a tar stream → api.TarResult; the folder and its parents are made
//	POST   /files/dir                                api.MkdirRequest → 204, parents are made
//	POST   /files/move                               api.MoveRequest → 204
//	GET    /watches/{id}?path=&recursive=1&after=N   NDJSON of api.FileEvent with seq > N; begins the watch when there is none with this id
//	POST   /trust                                    TrustRequest → 204; a certificate authority for the sandbox's trust stores
//	POST   /packages                                 Packages → 204; where package managers get packages from
//	GET    /ports                                    []Listener: what programs listen on
//	POST   /flows?port=N                             a connection to a port: bytes → frames, see flow.go; 409 when nothing listens
//	POST   /calls                                    frames ↔ frames: what programs inside call outside, see calls.go; one at a time, the newest
//
// A failure is an api.Error with the status that its code has in the public
// API. In NDJSON streams with follow=0 the answer waits for the end and then
// sends what was kept; with follow=1 events come as they happen. A blank line
// is sent every 15 s to keep the stream alive.
package guestapi

import (
	"encoding/json"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// Versions of this protocol. Protocol is the newest; a peer that speaks nothing
// newer than OldestProtocol is still served, so that sandboxes and templates of
// the release before live on. In the handshake the guest offers its newest and
// its oldest, and the host answers with the newest that both know.
//
//	1  as it began
//	2  GET /log; X-Request-Id on every call, which the agent logs
//	3  GET /ports, POST /flows
//	4  terminals: StartProcess.PTY and POST /processes/{pid}/resize; LastEvent of a process
//	5  GET, PUT /files/tar
//	6  POST /trust
//	7  POST /calls
//	8  Packages in AssignRequest, and POST /packages; GET /watches/{id}; notebooks: RunRequest.Notebook and Ask, events "message", Event.Reply, POST …/input
const (
	Protocol       = 8
	OldestProtocol = 1
)

// Agree gives the newest version that a peer and this side both speak, false
// when there is none. A peer that does not say its oldest speaks one alone.
func Agree(newest, oldest int) (int, bool) {
	if oldest == 0 {
		oldest = newest
	}
	v := min(newest, Protocol)
	return v, v >= max(oldest, OldestProtocol)
}

// Where things are inside a sandbox. The host binds a folder of its own, one a
// sandbox, read-only to LinkDir, and the guest programs to ProgramDir.
const (
	LinkDir        = "/run/pandastack/link"
	LinkSocket     = LinkDir + "/link.sock"
	ProgramDir     = "/run/pandastack/program"    // holds guest (the agent) and kernel/ (the interpreter side)
	GenerationFile = "/run/pandastack-generation" // rewritten after every restore; programs may watch it
	HookDir        = "/run/pandastack-hooks"      // sockets of programs that want to know of snapshots
	Workspace      = "/workspace"
	OutputDir      = "/var/log/pandastack" // the whole of outputs that were cut
)

// Limits that both ends hold.
const (
	MaxHandshake  = 4 << 10
	MaxEventLine  = 24 << 20 // one line of an event stream; a larger result is refused in the guest
	MaxJSONBody   = 16 << 20
	MaxCode       = 8 << 20
	MaxContexts   = 64
	MaxForks      = 32 // copies of a context made at once
	MaxProcesses  = 256
	MaxEntries    = 10_000    // in one listing of a folder
	MaxQueue      = 32        // executions that wait in one context
	KeepHead      = 256 << 10 // bytes of each output stream that are kept from its start
	KeepTail      = 768 << 10 // and from its end
	MaxOutputFile = 64 << 20  // of the file that keeps the whole
	KeepLogLines  = 2000      // of the console and the agent's log
	KeepLogBytes  = 256 << 10 // of them together
	MaxLogLine    = 4 << 10   // bytes; the rest of a line is left out
	MaxFlows      = 128       // connections to ports at once
	MaxListeners  = 1024      // in one listing of ports

	// Of watches of files.
	MaxWatches         = 32               // at once
	MaxWatchedFolders  = 10_000           // of one
	MaxWatchQueue      = 8 << 20          // bytes of events that the agent has not looked at
	KeepFileEvents     = 4096             // of one, for whoever comes back or reads slowly
	KeepFileEventBytes = 1 << 20          // of them together
	KeepWatch          = 90 * time.Second // after its last reader has left

	// Of one result; what is above is left out in the guest and refused by the host.
	MaxTypes    = 64  // MIME types
	MaxTypeName = 128 // bytes of one's name, and of a key of the metadata
	MaxMetadata = 64  // entries
	MaxDepth    = 64  // to which metadata may be nested

	MaxBuffers = 256      // of one message of a notebook
	MaxInput   = 64 << 10 // bytes of an answer to input()
)

// Hello is the guest's half of the handshake.
type Hello struct {
	Protocol   int    `json:"protocol"`         // the newest it speaks
	Oldest     int    `json:"oldest,omitempty"` // the oldest it speaks; 0: no other
	Generation int    `json:"generation"`       // the last one the host assigned, 0 at first
	BootID     string `json:"boot_id"`          // made once per start of the agent, the same in every copy of a snapshot
}

// Welcome is the host's half.
type Welcome struct {
	Protocol   int    `json:"protocol"`        // the one that is spoken from now on; in a refusal, the host's newest
	Generation int    `json:"generation"`      // of this restore
	Error      string `json:"error,omitempty"` // why the link is refused; the guest tries again later
}

// Health is the answer of GET /health.
type Health struct {
	Ready     bool  `json:"ready"` // the template's interpreter is warm, or there is none
	UptimeMS  int64 `json:"uptime_ms"`
	Contexts  int   `json:"contexts"`
	Processes int   `json:"processes"`
	Busy      bool  `json:"busy"` // a cell or process of ours is running
	// MemoryHits is how often memory was short: a cell got a MemoryError, the largest
	// context or command was ended, or another context was refused.
	MemoryHits  int64          `json:"memory_hits"`
	MemoryBytes int64          `json:"memory_bytes"` // in use, as the sandbox's own kernel counts it
	Detail      map[string]any `json:"detail,omitempty"`
}

// LogLine is one line of the console or of the agent's log.
type LogLine struct {
	Seq    int64     `json:"seq"` // rises by one
	Time   time.Time `json:"time"`
	Stream string    `json:"stream"` // "stdout": the console, "stderr": the agent's log
	Line   string    `json:"line"`
}

// AssignRequest makes a restored copy into this sandbox. It may come again: once
// in a pool, and once more when somebody is given the sandbox. An empty
// hostname or machine id and no number of processes leave these as they are.
type AssignRequest struct {
	SandboxID  string            `json:"sandbox_id"`
	Generation int               `json:"generation"`
	Hostname   string            `json:"hostname"`
	MachineID  string            `json:"machine_id"` // 32 hex digits
	Envs       map[string]string `json:"envs,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	MemoryMB   int               `json:"memory_mb"` // the sandbox's limit, for the guest's watchdog
	PIDs       int               `json:"pids"`
	Reseed     bool              `json:"reseed"`
	Entropy    []byte            `json:"entropy"` // 64 bytes
	UnixNano   int64             `json:"unix_nano"`
	Spares     int               `json:"spares"`              // interpreters to keep forked ahead
	KeepEnvs   bool              `json:"keep_envs,omitempty"` // Envs come on top of those of the sandbox that this is a copy of
	Resolvers  []string          `json:"resolvers,omitempty"` // addresses that answer for names; /etc/resolv.conf gets them while it holds nothing of a user's
	Rehearse   bool              `json:"rehearse,omitempty"`  // let the spares act a cell, which brings their pages back; nobody waits yet
	Packages   *Packages         `json:"packages,omitempty"`  // nil: as they were
}

// AssignResponse reports each step.
type AssignResponse struct {
	Steps []Step `json:"steps"`
}

// Step is the outcome of one thing done after a restore.
type Step struct {
	Name   string  `json:"name"` // "clock", "random", "hostname", "machine_id", "env", "generation_file", …
	OK     bool    `json:"ok"`
	Detail string  `json:"detail,omitempty"`
	MS     float64 `json:"ms"`
}

// TrustRequest names a certificate authority that programs inside are to trust.
type TrustRequest struct {
	PEM []byte `json:"pem"`
}

// Packages says where package managers inside get packages from. The zero value
// leaves them to themselves. There are no passwords in it.
type Packages struct {
	Indexes   []string `json:"indexes,omitempty"`    // URLs of indexes of Python packages, the main one first
	FindLinks []string `json:"find_links,omitempty"` // URLs of pages with links to Python packages
	Closed    string   `json:"closed,omitempty"`     // instead of Indexes: what pip says, for it can reach nothing
	Registry  string   `json:"registry,omitempty"`   // URL of npm's
}

// Listener is a port that a program inside listens on.
type Listener struct {
	Port    int    `json:"port"`
	Address string `json:"address"` // as in "127.0.0.1", "::"
}

// WarmRequest starts the interpreter that contexts are forked from.
type WarmRequest struct {
	Python  string   `json:"python"`  // path of the interpreter, "" for a template without kernels
	Imports []string `json:"imports"` // modules to import before the snapshot
	Warmup  string   `json:"warmup"`  // code run once in the zygote after the imports
	Spares  int      `json:"spares"`
}

// WarmResponse says what the interpreter did.
type WarmResponse struct {
	Version string             `json:"version"`
	Imports map[string]float64 `json:"imports"` // seconds each
	Failed  map[string]string  `json:"failed,omitempty"`
}

// ForkRequest makes copies of a context, one under each id.
type ForkRequest struct {
	IDs []string `json:"ids"`
}

// ForkResponse has the copies, in the order of their ids.
type ForkResponse struct {
	Contexts []api.Context `json:"contexts"`
	Warnings []string      `json:"warnings,omitempty"` // what they lack, or share with the original
}

// RunRequest starts an execution or attaches to it. With Follow events come as
// they happen, without it the kept ones come at the end.
type RunRequest struct {
	ExecutionID string `json:"execution_id"`
	Code        string `json:"code"`
	TimeoutMS   int64  `json:"timeout_ms"`
	After       int64  `json:"after,omitempty"`
	Follow      bool   `json:"follow,omitempty"`

	Notebook *Notebook `json:"notebook,omitempty"` // Code is run for a front end of Jupyter
	Ask      *Ask      `json:"ask,omitempty"`      // instead of Code
}

// Notebook is what Jupyter's execute_request says besides code. There are then
// events of the type "message", and the end has a Reply.
type Notebook struct {
	Silent          bool              `json:"silent,omitempty"`
	StoreHistory    bool              `json:"store_history"`
	Stdin           bool              `json:"stdin,omitempty"` // somebody answers input()
	UserExpressions map[string]string `json:"user_expressions,omitempty"`
}

// Ask is another request of Jupyter's, or a comm message, as in "complete_request".
// It waits for its turn like a cell and is not counted as one. The end has the
// content of the reply.
type Ask struct {
	Type     string          `json:"type"`
	Content  json.RawMessage `json:"content"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
	Buffers  [][]byte        `json:"buffers,omitempty"`
}

// Size is about how many bytes it has.
func (a Ask) Size() int {
	n := len(a.Content) + len(a.Metadata)
	for _, b := range a.Buffers {
		n += len(b) * 4 / 3
	}
	return n
}

// InputReply answers the input_request of a running cell.
type InputReply struct {
	Value string `json:"value"`
}

// StartProcess starts a process.
type StartProcess struct {
	Argv      []string          `json:"argv"`
	CWD       string            `json:"cwd"`
	Envs      map[string]string `json:"envs,omitempty"`
	User      string            `json:"user,omitempty"`
	Tag       string            `json:"tag,omitempty"`
	TimeoutMS int64             `json:"timeout_ms,omitempty"`
	Stdin     bool              `json:"stdin,omitempty"`   // keep it open
	Input     []byte            `json:"input,omitempty"`   // written to standard input, then closed unless Stdin
	Command   api.Command       `json:"command,omitempty"` // as the client gave it, for lists
	PTY       *api.PTY          `json:"pty,omitempty"`     // a terminal of this size instead of pipes
}

// Sizes of terminals.
const (
	DefaultRows = 24
	DefaultCols = 80
	MaxRows     = 1000
	MaxCols     = 1000
)

// CheckPTY gives the size of a terminal with its defaults filled in.
func CheckPTY(size api.PTY) (api.PTY, error) {
	for _, side := range []struct {
		name      string
		n         *int
		def, most int
	}{{"rows", &size.Rows, DefaultRows, MaxRows}, {"cols", &size.Cols, DefaultCols, MaxCols}} {
		if *side.n == 0 {
			*side.n = side.def
		}
		if *side.n < 1 || *side.n > side.most {
			return size, fault.InvalidField(side.name, "%s must be between 1 and %d, but is %d", side.name, side.most, *side.n)
		}
	}
	return size, nil
}
