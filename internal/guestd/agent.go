// Package guestd is the guest agent: the first process of every sandbox. It
// dials out to the host and then serves it over that one connection: commands,
// files, and code contexts.
//
// What runs in the sandbox lives in the agent and not in the connection. An
// execution or a process has an id and numbered output; the host may lose the
// link and come back to it, and nothing is ever run twice.
//
// The package imports nothing of the host's side. It reads no environment: its
// program is given all in Config.
package guestd

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/guestd/child"
	"github.com/pandastack/pandastack/internal/guestd/kernels"
)

// Config says where things are. Every field must be set; Defaults gives what
// holds in a sandbox.
type Config struct {
	Link           string // socket to dial
	Programs       string // folder with kernel/
	Workspace      string
	OutputDir      string
	GenerationFile string
	HookDir        string        // of sockets of programs that want to know of snapshots; "" for none
	Etc            string        // folder of passwd, group, hosts, hostname, machine-id
	Root           string        // of files that say whom programs trust; "/"
	ProcNet        string        // folder of tcp and tcp6: what programs listen on
	ToolSocket     string        // where programs call what is outside; "" for nowhere
	StartTime      time.Duration // that an interpreter may take to start; 0: the usual
	Console        *Console
	Log            *slog.Logger
	Reaper         *child.Reaper
	// Memory reads what the sandbox uses, for the watchdog.
	Memory func() (used, total int64, err error)
	// Tasks counts the processes and threads of the sandbox, which take memory
	// that Memory does not show.
	Tasks func() int
	// Protocol is the newest version to speak; 0: the newest there is. With an
	// older one the agent is as that of the release before, for tests of upgrades.
	Protocol int
	// LimitProcesses sets how many processes the users of the sandbox may have.
	LimitProcesses bool
}

// Defaults is the configuration inside a sandbox.
func Defaults(log *slog.Logger, console *Console, reaper *child.Reaper) Config {
	return Config{
		Link:           guestapi.LinkSocket,
		Programs:       guestapi.ProgramDir,
		Workspace:      guestapi.Workspace,
		OutputDir:      guestapi.OutputDir,
		GenerationFile: guestapi.GenerationFile,
		HookDir:        guestapi.HookDir,
		Etc:            "/etc",
		Root:           "/",
		ProcNet:        "/proc/net",
		ToolSocket:     guestapi.CallSocket,
		Console:        console,
		Log:            log,
		Reaper:         reaper,
		Memory:         meminfo,
		Tasks:          tasks,
		LimitProcesses: true,
	}
}

// Agent is the guest agent.
type Agent struct {
	cfg       Config
	log       *slog.Logger
	bootID    string
	started   time.Time
	processes *processes
	kernels   *kernels.Manager
	calls     *calls
	env       *environment
	watchdog  *watchdog

	generation atomic.Int64
	offer      int // the protocol to offer next, when the host refused a newer; 0: the newest
	assigning  sync.Mutex
	warming    atomic.Bool
	flows      atomic.Int64 // connections to ports that are open
	watches    watches
}

// New makes an agent. It starts nothing yet but the watchdog's bookkeeping.
func New(cfg Config) (*Agent, error) {
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	a := &Agent{cfg: cfg, log: cfg.Log, bootID: hex.EncodeToString(id), started: time.Now(), env: newEnvironment()}
	for _, dir := range []string{cfg.Workspace, cfg.OutputDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
	}
	if err := makeHookDir(cfg.HookDir); err != nil {
		return nil, err
	}
	a.processes = newProcesses(cfg, a.env)
	a.calls = newCalls(cfg.Log)
	a.kernels = kernels.New(kernels.Config{
		Programs:    cfg.Programs,
		Workspace:   cfg.Workspace,
		OutputDir:   cfg.OutputDir,
		Stderr:      cfg.Console.Stream("stdout"),
		Log:         cfg.Log,
		Reaper:      cfg.Reaper,
		Env:         a.env.forUser,
		ToolSocket:  cfg.ToolSocket,
		StartTime:   cfg.StartTime,
		Interrupted: a.calls.interrupted,
	})
	a.calls.kernels = a.kernels
	a.watchdog = newWatchdog(cfg.Log, cfg.Memory, cfg.Tasks, a.victims, a.busy)
	return a, nil
}

// Run serves the host until ctx ends, dialling again whenever the link breaks.
func (a *Agent) Run(ctx context.Context) error {
	go a.watchdog.run(ctx)
	if a.cfg.ToolSocket != "" && a.newest() >= 7 {
		if err := a.calls.listen(ctx, a.cfg.ToolSocket); err != nil {
			a.log.Error("programs cannot call tools", "error", err)
		}
	}
	err := a.serveLink(ctx)
	a.watches.closeAll()
	a.kernels.Close()
	a.processes.killAll()
	return err
}

// newest is the newest version of the protocol to speak.
func (a *Agent) newest() int { return cmp.Or(a.cfg.Protocol, guestapi.Protocol) }

func (a *Agent) busy() bool { return a.kernels.Busy() || a.processes.running() > 0 }

func (a *Agent) health() guestapi.Health {
	used, _, err := a.cfg.Memory()
	if err != nil {
		a.log.Warn("the memory in use is not known", "error", err)
	}
	return guestapi.Health{
		Ready:     !a.warming.Load(),
		UptimeMS:  time.Since(a.started).Milliseconds(),
		Contexts:  len(a.kernels.List()),
		Processes: a.processes.running(),
		Busy:      a.busy(),

		MemoryBytes: used,
		MemoryHits:  a.watchdog.hits.Load() + a.kernels.Short(),
		Detail: map[string]any{
			"boot_id":    a.bootID,
			"generation": a.generation.Load(),
			"kernels":    a.kernels.Describe(),
		},
	}
}

// shrink gives memory back before a snapshot is taken of it.
func shrink() { debug.FreeOSMemory() }
