// Package daemon puts PandaStack together: it names the concrete driver, store
// and services, starts them in order and ends them in order. Package cli calls
// it, for serve and for what works on this machine without a server.
//
// It holds no policy: limits come from package config, decisions are made in
// package sandbox.
package daemon

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/archive"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/config"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/httpapi"
	"github.com/pandastack/pandastack/internal/journal"
	"github.com/pandastack/pandastack/internal/jupyter"
	"github.com/pandastack/pandastack/internal/kernel"
	"github.com/pandastack/pandastack/internal/mcpserver"
	"github.com/pandastack/pandastack/internal/metrics"
	"github.com/pandastack/pandastack/internal/preview"
	"github.com/pandastack/pandastack/internal/process"
	"github.com/pandastack/pandastack/internal/sandbox"
	"github.com/pandastack/pandastack/internal/store"
)

// Surroundings are what the daemon finds around it.
type Surroundings struct {
	ClientFile string // that the local client's address and key are merged into; "" for none
	Log        *slog.Logger
	Started    func(Started) // called once, when it listens
}

// Started is what there is to say when the daemon listens.
type Started struct {
	Version     string
	URL         string
	ClientFile  string // "" when no client was configured
	Profile     string // of that file, when its own entry is somebody else's
	ClientError error  // why it is not the file that was meant
	Templates   []api.TemplateInfo
}

// Serve runs the daemon until the context ends.
func Serve(ctx context.Context, cfg *config.Config, sur Surroundings) (err error) {
	log := slog.New(caller.LogHandler(sur.Log.Handler()))
	if err := mayServe(cfg); err != nil {
		return err
	}
	if err := mayConnect(cfg); err != nil {
		return err
	}
	st, err := store.Open(ctx, cfg.DataDir)
	if err != nil {
		return err
	}
	defer closing(&err, st.Close)
	if err := os.MkdirAll(runDir(cfg), 0o711); err != nil {
		return fmt.Errorf("making the folder of the links: %w", err)
	}
	if _, err := st.Backup(ctx); err != nil { // a full disk must not keep a daemon from its sandboxes
		log.Warn("the database was not backed up", "error", err)
	}
	keys, err := auth.Open(ctx, keyStore{st}, time.Now)
	if err != nil {
		return err
	}
	drv, err := newDriver(cfg, sandboxDir, log)
	if err != nil {
		return err
	}
	if c, ok := drv.(io.Closer); ok {
		defer closing(&err, c.Close)
	}
	master, err := auth.OpenMaster(cfg.DataDir)
	if err != nil {
		return err
	}
	signer := ed25519.NewKeyFromSeed(master.Derive("snapshot archives"))
	trusted, err := trustedKeys(cfg.SnapshotKeys)
	if err != nil {
		return err
	}
	events, counts := journal.New(st, log), metrics.New()
	defer events.Close()
	ln, err := listen("listen", cfg.Listen)
	if err != nil {
		return err
	}
	defer ln.Close() // the server closes it first, once there is one
	own := &listening{}
	own.add(ln)
	conf := managerConfig(cfg, drv, st, events, counts, log)
	conf.Signer, conf.TrustedKeys = signer, trusted
	nets, netLog, err := networks(cfg, st, master, own, events, counts, log)
	if err != nil {
		return err
	}
	defer netLog.Close()
	conf.Network, conf.Policies = nets, nets
	toolbox, toolLog, err := toolService(cfg, st, nets.Secrets, log)
	if err != nil {
		return err
	}
	defer toolLog.Close()
	defer toolbox.Close()
	conf.Tools = toolbox
	conf.PreviewHost = previewHost(cfg.PreviewDomain, ln.Addr())
	about := Version(drv.Name())
	about.SnapshotKey = string(archive.KeyOf(signer))
	manager, err := sandbox.New(conf)
	if err != nil {
		return err
	}
	ready := &readiness{dataDir: cfg.DataDir, manager: manager, store: st, log: log, diskMB: freeMB}
	// Cells and commands are still watched while the requests end, so the
	// services are closed by stop, before these requests are cancelled.
	kernels := kernel.New(manager, kernel.Config{
		Logger: log, Notes: manager, Metrics: counts, HoldBytes: cfg.OutputMemory << 20, Hint: manager.Hint, Held: toolbox.Held,
	})
	commands := process.New(manager, process.Config{Notes: manager, Hint: manager.Hint})
	agents := newAgents(cfg, manager, kernels, toolbox, log)
	notebooks := jupyter.NewServer(kernels, log)
	url := "http://" + reachable(ln.Addr())
	models := mcpserver.NewHandler(mcpserver.HTTPOptions{
		Options: mcpserver.Options{Version: version, Log: log}, URL: url, Silent: cfg.MCPSessions,
	})
	page, err := counts.Handler(metrics.Sources{
		Overview: manager.Overview, Templates: manager.Templates, StoreErrors: st.Failures, EventsLost: events.Lost, Version: Version(drv.Name()),
		Ready: func(ctx context.Context) bool { return len(ready.check(ctx).Reasons) == 0 }, Agents: agents.Held, Log: log,
	})
	if err != nil {
		return err
	}

	requests, cutRequests := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cutRequests(nil)
	srv := &http.Server{
		Handler: httpapi.New(httpapi.Options{
			Sandboxes: manager, Kernels: kernels, Commands: commands, Keys: keys, Agents: agents, ModelURLs: cfg.ModelURLs,
			Events: events, Metrics: counts, MetricsPage: page, Ready: ready.check,
			Version: about, Log: log, MCP: models, Notebooks: notebooks, Hosts: cfg.AllowedHosts, Origins: cfg.AllowedOrigins,
			Rate:    httpapi.Rate{PerSecond: cfg.RateLimit, Burst: cfg.RateBurst},
			Secrets: nets, NetworkLog: netLog, Tools: toolbox, ToolURLs: cfg.ToolURLs,
			Links: preview.NewSigner(master.Derive("preview links"), time.Now), PreviewDomain: cfg.PreviewDomain,
		}),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		Protocols:         plainProtocols(),
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	started, err := introduce(ctx, cfg, keys, url, sur.ClientFile)
	if err != nil {
		return err
	}
	if started.Templates, err = manager.Templates(ctx); err != nil {
		return err
	}

	if err := serveMetrics(cfg.MetricsListen, page, own, log); err != nil {
		return err
	}
	defer func() { events.Note(lifeOfDaemon(api.LifeDaemonStopped, nil)) }()
	events.Note(lifeOfDaemon(api.LifeDaemonStarted, map[string]any{"driver": drv.Name(), "clean": cleanly(ctx, events)}))
	ended := make(chan error, 2)
	running, stopManager := context.WithCancel(context.WithoutCancel(ctx))
	defer stopManager()
	managed := make(chan struct{})
	go func() {
		defer close(managed)
		if err := manager.Run(running); err != nil && running.Err() == nil {
			ended <- fmt.Errorf("managing sandboxes: %w", err)
		}
	}()
	go func() {
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			ended <- fmt.Errorf("serving HTTP: %w", err)
		}
	}()
	go sweepTemplates(running, cfg, manager, log)
	go events.Keep(running, cfg.EventsMaxAge, cfg.EventsKeep)
	tidied := make(chan struct{})
	go func() { defer close(tidied); tidyKeys(running, keys, log) }()
	go supervise(running, manager.Adopted, url, log)
	go resumeAgents(running, agents, manager, log)
	log.Info("listening", "url", url, "driver", drv.Name(), "data_dir", cfg.DataDir, "version", started.Version)
	if sur.Started != nil {
		sur.Started(started)
	}

	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	log.Info("stopping")
	notify(log, systemd.SdNotifyStopping)

	// New requests are refused and those in progress get a while; then they are
	// cut. Cells and processes go on: the next daemon finds them.
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.RequestDrain)
	defer cancel()
	events.EndStreams()
	models.Close()
	notebooks.Close()
	agents.Close() // before the cells that they wait for count as left
	netLog.EndStreams()
	shutdown := srv.Shutdown(drain)
	kernels.Close()
	commands.Close()
	if shutdown != nil {
		cutRequests(httpapi.ErrStopping)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if srv.Shutdown(last) != nil {
			srv.Close()
		}
	}
	sleeping, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.StopHibernate)
	defer cancel()
	if herr := manager.HibernateAll(sleeping); herr != nil { // they run on, and the next daemon finds them
		log.Error("not every persistent sandbox could be hibernated", "error", herr)
	}
	stopManager()
	<-managed
	<-tidied
	letGo, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
	defer cancel()
	if cerr := manager.Close(letGo); cerr != nil {
		err = errors.Join(err, fmt.Errorf("letting go of sandboxes: %w", cerr))
	}
	log.Info("stopped")
	return err
}

// listen takes the address, or says what to do about it.
func listen(setting, addr string) (net.Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err == nil {
		return ln, nil
	}
	e := fault.Wrap(err, api.CodeInvalid, "the daemon cannot listen on %s", addr)
	e.Field = setting
	flag := "--" + setting
	if setting != "listen" {
		flag = "--set " + setting + "="
	}
	if errors.Is(err, unix.EADDRINUSE) {
		_, port, _ := net.SplitHostPort(addr) // it was good enough to be in use
		e.Code, e.Hint = api.CodeConflict, fmt.Sprintf("end what uses it (ss -ltnp 'sport = :%s' names it), or choose another address with %s", port, flag)
	} else {
		e.Hint = "choose another HOST:PORT with " + flag
	}
	return nil, e
}

// previewHost is what ports of sandboxes are seen below, for clients that are told once.
func previewHost(domain string, a net.Addr) string {
	if domain != "" {
		return domain
	}
	_, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return ""
	}
	return "localhost:" + port
}

// plainProtocols are those that the API speaks without TLS: HTTP/2 to clients
// that begin with it.
func plainProtocols() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &p
}

// closing adds the error of a deferred close.
func closing(err *error, f func() error) {
	if cerr := f(); cerr != nil {
		*err = errors.Join(*err, cerr)
	}
}

// reachable is the address at which a client on this machine finds a listener.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
