package cli

import (
	"fmt"
	"log/slog"

	"github.com/pandastack/pandastack/internal/daemon"
)

type serveCmd struct {
	place
	Listen    string `help:"Address of the HTTP API." placeholder:"HOST:PORT"`
	Driver    string `hidden:""`
	LogFormat string `help:"auto, text or json." placeholder:"FORMAT"`
	LogLevel  string `help:"debug, info, warn or error." placeholder:"LEVEL"`
}

func (c *serveCmd) Run(a *app) error {
	cfg, err := c.load(a, map[string]string{
		"listen": c.Listen, "driver": c.Driver, "log_format": c.LogFormat, "log_level": c.LogLevel,
	})
	if err != nil {
		return err
	}
	return daemon.Serve(a.ctx, cfg, daemon.Surroundings{
		ClientFile: cfg.ClientFile(a.env),
		Log:        a.logger(cfg.LogFormat, cfg.LogLevel),
		Started:    a.welcome,
	})
}

func (a *app) logger(format, level string) *slog.Logger {
	var l slog.Level
	_ = l.UnmarshalText([]byte(level)) // config allows no other words
	o := &slog.HandlerOptions{Level: l}
	w := daemon.HideKeys(a.Err)
	if format == "text" || format == "auto" && a.ErrTerm {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// welcome tells what to do next.
func (a *app) welcome(s daemon.Started) {
	if a.flags.Quiet {
		return
	}
	fmt.Fprintf(a.Out, "PandaStack %s listens on %s\n", s.Version, s.URL)
	switch {
	case s.ClientFile == "":
		fmt.Fprintf(a.Out, "  no client was configured (client_config); with the daemon stopped, this makes a key: pandastack key create --on-host\n")
	case s.Profile != "":
		fmt.Fprintf(a.Out, "  %s already holds another key, which stays; ours is its profile %q:\n    pandastack --profile %s run -c 'print(1)'\n",
			s.ClientFile, s.Profile, s.Profile)
	default:
		fmt.Fprintf(a.Out, "  address and key for clients are in %s\n", s.ClientFile)
	}
	if s.ClientError != nil {
		fmt.Fprintf(a.Out, "  that was not the usual place, because: %v\n", s.ClientError)
	}
	if len(s.Templates) == 0 {
		fmt.Fprintf(a.Out, "  there is no template yet: pandastack template build code-interpreter\n")
	} else if s.Profile == "" {
		fmt.Fprintf(a.Out, "  try: pandastack run -c 'print(1)'\n")
	}
}
