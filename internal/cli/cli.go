// Package cli is the command line of PandaStack, one file a verb. It talks to
// the server through sdk/go like every other client; only serve, doctor, sweep,
// template build and key create --on-host work on the machine itself, through
// package daemon.
//
// It never touches the store or a driver.
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/pandastack/pandastack/internal/config"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// grammar is what can be said on the command line.
type grammar struct {
	JSON    bool   `help:"Answer in JSON, for programs." name:"json"`
	Quiet   bool   `help:"Say only what was asked for: ids, no remarks." short:"q"`
	API     string `help:"Address of the server." placeholder:"URL" name:"api"`
	Profile string `help:"Take address and key from this profile of the client configuration." placeholder:"NAME"`

	Serve    serveCmd    `cmd:"" help:"Run the daemon."`
	Doctor   doctorCmd   `cmd:"" help:"Check this machine, and say how to mend what is wrong."`
	Sweep    sweepCmd    `cmd:"" help:"End all sandboxes of a daemon that has stopped, and leave nothing of them running."`
	Version  versionCmd  `cmd:"" help:"Show the version."`
	Config   configCmd   `cmd:"" help:"The daemon's settings."`
	Run      runCmd      `cmd:"" help:"Run Python in a sandbox of its own."`
	Sandbox  sandboxCmd  `cmd:"" help:"Sandboxes."`
	Context  contextCmd  `cmd:"" help:"Code contexts of a sandbox."`
	Snapshot snapshotCmd `cmd:"" help:"Snapshots of sandboxes."`
	Secret   secretCmd   `cmd:"" help:"Secrets that are added to what sandboxes send, and never enter them."`
	Approval approvalCmd `cmd:"" help:"Calls of tools that wait for somebody's decision."`
	Template templateCmd `cmd:"" help:"Templates that sandboxes are made from."`
	Agent    agentCmd    `cmd:"" help:"Models that do a task by writing Python in a sandbox."`
	Analyst  analystCmd  `cmd:"" help:"Ask a question about files of data."`
	Key      keyCmd      `cmd:"" help:"API keys."`
	MCP      mcpCmd      `cmd:"" name:"mcp" help:"Speak the Model Context Protocol on standard input and output, for programs with models."`

	Completion completionCmd `cmd:"" help:"Write the script by which a shell completes commands."`
	Complete   completeCmd   `cmd:"" name:"__complete" hidden:""`
	Man        manCmd        `cmd:"" name:"man" hidden:"" help:"Write the manual page."`
}

// Streams are where a program reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	Terminal bool // Out is one: somebody is looking
	InTerm   bool // In is one: somebody may type
	ErrTerm  bool // Err is one
}

// OS gives the streams of this process.
func OS() Streams {
	return Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Terminal: terminal(os.Stdout), InTerm: terminal(os.Stdin), ErrTerm: terminal(os.Stderr),
	}
}

// app is what every verb works with.
type app struct {
	Streams
	ctx   context.Context
	flags *grammar
	env   config.Env
}

// client makes the client on first use: verbs that need no server need no
// valid client configuration either.
func (a *app) client() (*pandastack.Client, error) {
	var opts []pandastack.Option
	if a.flags.API != "" {
		opts = append(opts, pandastack.WithAPIURL(a.flags.API))
	}
	if a.flags.Profile != "" {
		opts = append(opts, pandastack.WithProfile(a.flags.Profile))
	}
	c, err := pandastack.NewClient(opts...)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// sandbox gives a handle on a sandbox that the server knows.
func (a *app) sandbox(id string) (*pandastack.Sandbox, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	return c.Sandbox(id), nil
}

func newParser(g *grammar, s Streams) *kong.Kong {
	parser, err := kong.New(g,
		kong.Name("pandastack"),
		kong.Description("Sandboxes for AI agents, with warm Python kernels."),
		kong.UsageOnError(),
		kong.Writers(s.Out, s.Err),
		kong.Exit(func(n int) { panic(exited(n)) }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: false}),
		kong.PostBuild(explainVerbs),
	)
	if err != nil {
		panic(err) // the grammar is ours
	}
	return parser
}

// exited carries an exit code through kong.
type exited int

// Main runs one command line and gives the exit code.
func Main(args []string, s Streams) (code int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program the hard way.
	context.AfterFunc(ctx, stop)

	defer func() {
		if p := recover(); p != nil {
			n, ok := p.(exited)
			if !ok {
				panic(p)
			}
			code = int(n)
		}
	}()
	var g grammar
	a := &app{Streams: s, ctx: ctx, flags: &g, env: config.OS()}
	parser := newParser(&g, s)
	if len(args) == 0 {
		args = []string{"--help"}
	}
	k, err := parser.Parse(args)
	if err != nil {
		var pe *kong.ParseError
		if errors.As(err, &pe) {
			err = usageError{err}
		}
		return a.report(err)
	}
	return a.report(k.Run(a))
}
