// Command pandastack-guest is the first process of every sandbox: the guest
// agent. It takes no arguments and dials the host.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/pandastack/pandastack/internal/guestd"
	"github.com/pandastack/pandastack/internal/guestd/child"
)

// protocol is what the agent speaks at most; 0 is the newest there is.
var protocol = 0

func main() {
	console := guestd.NewConsole(os.Stderr)
	log := slog.New(slog.NewTextHandler(console.Stream("stderr"), nil))
	if err := run(log, console); err != nil {
		log.Error("the guest agent ends", "error", err)
		os.Exit(1)
	}
}

func run(log *slog.Logger, console *guestd.Console) error {
	guestd.KeepSmall()
	syscall.Umask(0o022)
	if err := guestd.SetApart(); err != nil {
		return err
	}
	cfg := guestd.Defaults(log, console, child.NewReaper())
	cfg.Protocol = protocol
	agent, err := guestd.New(cfg)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return agent.Run(ctx)
}
