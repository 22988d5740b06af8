// Package httpapi is the HTTP face of PandaStack: it checks who asks, turns
// requests into calls of the domain and answers, errors and streams into bytes.
// Package daemon mounts it.
//
// It decides nothing about sandboxes; it only refuses what is malformed.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"

	"golang.org/x/time/rate"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/caller"
	"github.com/pandastack/pandastack/internal/preview"
)

// Options are what a Server is made of.
type Options struct {
	Sandboxes Sandboxes
	Kernels   Kernels
	Commands  Commands
	Agents    Agents
	Keys      Keys
	Events    Events
	Metrics   Metrics // nil counts nothing
	Version   api.Version
	Log       *slog.Logger

	// Ready says whether the daemon can make sandboxes, and why not; nil when
	// it always can.
	Ready func(ctx context.Context) api.Readiness
	// MetricsPage serves GET /metrics; nil when there is none.
	MetricsPage http.Handler
	// Hosts are names the Host header may carry besides localhost and IP
	// addresses; "*" allows any.
	Hosts []string
	// Origins are those whose web pages may call the API, in lower case, as in
	// "https://app.example.com". Pages of others are refused.
	Origins []string
	// ModelURLs are the base URLs of models that keys without the scope admin
	// may name.
	ModelURLs []string
	// Rate is what each workspace is held to; visitors of its sandboxes' ports
	// as much again.
	Rate Rate
	// Secrets are kept for workspaces, NetworkLog of what was decided; nil: there are none.
	Secrets    Secrets
	NetworkLog NetworkLog
	// Tools answers what programs in sandboxes call; nil: there are none.
	Tools Tools
	// ToolURLs are the addresses of services, with all below them, that keys
	// without the scope admin may have this machine call.
	ToolURLs []string
	// Links signs and checks the links to ports of sandboxes; nil: there are none.
	Links *preview.Signer
	// MCP serves the Model Context Protocol to whoever has a key; nil: there is none.
	MCP http.Handler
	// Notebooks connects front ends of Jupyter.
	Notebooks Notebooks
	// PreviewDomain is where ports of sandboxes have their names, besides
	// localhost: a name, with a port when visitors need one; "" for none.
	PreviewDomain string
}

// Server answers /v1.
type Server struct {
	Options
	mux    *http.ServeMux
	absent *http.ServeMux
	routed []string
	calls  throttle
	visits throttle // of ports of sandboxes
}

// New makes the handler of the whole API.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = slog.New(caller.LogHandler(o.Log.Handler()))
	s := &Server{
		Options: o, mux: http.NewServeMux(),
		calls: throttle{Rate: o.Rate, of: map[string]*rate.Limiter{}}, visits: throttle{Rate: o.Rate, of: map[string]*rate.Limiter{}},
	}
	s.routes()
	s.absent = s.absentRoutes()
	return s
}

var _ http.Handler = (*Server)(nil)

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.observe(w, r, s.dispatch)
}

// handler is an HTTP handler whose error becomes the response.
type handler func(w http.ResponseWriter, r *http.Request) error

func (s *Server) routes() {
	open := func(pattern string, h handler) { s.handle(pattern, h) }
	open("GET /healthz", s.health)
	open("GET /readyz", s.ready)
	open("GET /version", s.version)
	open("GET /openapi.json", s.openapi)
	open("GET /docs", s.docs)
	open("GET /v1/healthz", s.health)
	open("GET /v1/readyz", s.ready)
	open("GET /v1/version", s.version)

	locked := func(pattern string, h handler) { s.handle(pattern, s.authenticated(needOf(pattern), h)) }
	locked("GET /v1/me", s.me)
	locked("GET /v1/me/tokens", s.listKeys)
	locked("POST /v1/me/tokens", s.createKey)
	locked("DELETE /v1/me/tokens/{prefix}", s.revokeKey)

	locked("GET /metrics", s.metrics)
	locked("GET /v1/events", s.allEvents)
	locked("GET /v1/sandboxes/{id}/events", s.sandboxEvents)
	locked("GET /v1/sandboxes/{id}/logs", s.logs)

	locked("GET /v1/templates", s.listTemplates)
	locked("GET /v1/templates/builds", s.listBuilds)
	locked("GET /v1/templates/{name}", s.getTemplate)

	locked("POST /v1/sandboxes", s.createSandbox)
	locked("GET /v1/sandboxes", s.listSandboxes)
	locked("GET /v1/sandboxes/{id}", s.getSandbox)
	locked("DELETE /v1/sandboxes/{id}", s.killSandbox)
	locked("GET /v1/sandboxes/{id}/lifecycle", s.getLifecycle)
	locked("PATCH /v1/sandboxes/{id}/lifecycle", s.patchLifecycle)
	locked("GET /v1/sandboxes/{id}/metrics", s.sandboxMetrics)
	locked("POST /v1/sandboxes/{id}/pause", s.pauseSandbox)
	locked("POST /v1/sandboxes/{id}/resume", s.resumeSandbox)
	locked("POST /v1/sandboxes/{id}/hibernate", s.hibernateSandbox)
	locked("POST /v1/sandboxes/{id}/stop", s.hibernateSandbox) // an older name
	locked("POST /v1/sandboxes/{id}/wake", s.wakeSandbox)
	locked("POST /v1/sandboxes/{id}/start", s.wakeSandbox) // an older name
	locked("POST /v1/sandboxes/{id}/snapshots", s.takeSnapshot)
	locked("POST /v1/sandboxes/{id}/fork", s.fork)
	locked("POST /v1/sandboxes/{id}/fork-tree", s.forkTree)
	locked("POST /v1/sandboxes/{id}/promote", s.promote)

	locked("GET /v1/sandboxes/{id}/network", s.getNetwork)
	locked("PATCH /v1/sandboxes/{id}/network", s.patchNetwork)
	locked("GET /v1/sandboxes/{id}/network/log", s.networkLog)
	locked("GET /v1/sandboxes/{id}/tools", s.listTools)
	locked("PUT /v1/sandboxes/{id}/tools", s.putTools)
	locked("GET /v1/sandboxes/{id}/tools/calls", s.toolCalls)
	locked("GET /v1/sandboxes/{id}/tools/connect", s.connectTools)
	locked("GET /v1/approvals", s.listApprovals)
	locked("GET /v1/approvals/{id}", s.getApproval)
	locked("POST /v1/approvals/{id}", s.decideApproval)
	locked("GET /v1/secrets", s.listSecrets)
	locked("GET /v1/secrets/{name}", s.getSecret)
	locked("PUT /v1/secrets/{name}", s.putSecret)
	locked("DELETE /v1/secrets/{name}", s.deleteSecret)

	locked("GET /v1/sandboxes/{id}/ports", s.listPorts)
	locked("POST /v1/sandboxes/{id}/ports", s.createPort)
	locked("DELETE /v1/sandboxes/{id}/ports/{port}", s.deletePort)
	locked("GET /v1/sandboxes/{id}/ports/{port}/connect", s.connectPort)
	locked("POST /v1/sandboxes/{id}/preview-token", s.createPreviewToken)
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions} {
		// Their paths are the sandbox's, so dispatch takes them before the mux does.
		s.routed = append(s.routed, method+" "+proxyRoute, method+" "+linkRoute)
	}

	locked("GET /v1/snapshots", s.listSnapshots)
	locked("GET /v1/snapshots/{id}", s.getSnapshot)
	locked("PATCH /v1/snapshots/{id}", s.patchSnapshot)
	locked("DELETE /v1/snapshots/{id}", s.deleteSnapshot)
	locked("GET /v1/snapshots/{id}/export", s.exportSnapshot)
	locked("POST /v1/snapshots", s.importSnapshot)

	locked("POST /v1/sandboxes/{id}/exec", s.exec)
	locked("POST /v1/sandboxes/{id}/exec/stream", s.execStream)
	locked("GET /v1/sandboxes/{id}/exec/ws", s.execWS)
	locked("GET /v1/sandboxes/{id}/exec/pty", s.execPTY)

	locked("GET /v1/sandboxes/{id}/processes", s.listProcesses)
	locked("POST /v1/sandboxes/{id}/processes", s.startProcess)
	locked("GET /v1/sandboxes/{id}/processes/{pid}", ofProcess(s.getProcess))
	locked("DELETE /v1/sandboxes/{id}/processes/{pid}", ofProcess(s.killProcess))
	locked("GET /v1/sandboxes/{id}/processes/{pid}/stream", ofProcess(s.streamProcess))
	locked("POST /v1/sandboxes/{id}/processes/{pid}/stdin", ofProcess(s.writeStdin))
	locked("DELETE /v1/sandboxes/{id}/processes/{pid}/stdin", ofProcess(s.closeStdin))
	locked("POST /v1/sandboxes/{id}/processes/{pid}/signal", ofProcess(s.signalProcess))
	locked("POST /v1/sandboxes/{id}/processes/{pid}/resize", ofProcess(s.resizeProcess))
	locked("GET /v1/sandboxes/{id}/processes/{pid}/attach", ofProcess(s.attachProcess))

	locked("GET /v1/sandboxes/{id}/fs", ofPath(s.readFile))
	locked("PUT /v1/sandboxes/{id}/fs", s.writeFile)
	locked("POST /v1/sandboxes/{id}/fs", s.appendFile)
	locked("DELETE /v1/sandboxes/{id}/fs", ofPath(s.removeFile))
	locked("GET /v1/sandboxes/{id}/fs/stat", ofPath(s.statFile))
	locked("GET /v1/sandboxes/{id}/fs/dir", s.listDir)
	locked("GET /v1/sandboxes/{id}/fs/tar", ofPath(s.readTar))
	locked("PUT /v1/sandboxes/{id}/fs/tar", s.writeTar)
	locked("POST /v1/sandboxes/{id}/fs/dir", s.makeDir)
	locked("POST /v1/sandboxes/{id}/fs/move", s.moveFile)
	locked("GET /v1/sandboxes/{id}/fs/watch", ofPath(s.watchFiles))
	locked("POST /v1/sandboxes/{id}/fs/link", s.createFileLink)
	for _, method := range fileLinkMethods {
		s.routed = append(s.routed, method+" "+fileLinkRoute) // dispatch takes it, as it takes linkRoute
	}

	locked("POST /v1/sandboxes/{id}/repl", s.oneShot)
	locked("GET /v1/sandboxes/{id}/repl/languages", s.languages)
	locked("GET /v1/sandboxes/{id}/repl/sessions", s.listContexts)
	locked("POST /v1/sandboxes/{id}/repl/sessions", s.createContext)
	locked("GET /v1/sandboxes/{id}/repl/sessions/{cid}", s.getContext)
	locked("DELETE /v1/sandboxes/{id}/repl/sessions/{cid}", s.closeContext)
	locked("POST /v1/sandboxes/{id}/repl/sessions/{cid}/run", s.run)
	locked("POST /v1/sandboxes/{id}/repl/sessions/{cid}/run/stream", s.runStream)
	locked("GET /v1/sandboxes/{id}/repl/sessions/{cid}/executions/{eid}", s.attach)
	locked("POST /v1/sandboxes/{id}/repl/sessions/{cid}/interrupt", s.interrupt)
	locked("POST /v1/sandboxes/{id}/repl/sessions/{cid}/restart", s.restart)
	locked("POST /v1/sandboxes/{id}/repl/sessions/{cid}/fork", s.forkContext)

	for _, at := range []string{"/mcp", "/v1/mcp", "/v1/sandboxes/{id}/mcp"} {
		locked("POST "+at, s.mcp)
		locked("GET "+at, s.mcp)
		locked("DELETE "+at, s.mcp)
	}

	s.jupyterRoutes(locked)

	locked("POST /v1/agents", s.startAgent)
	locked("GET /v1/agents", s.listAgents)
	locked("GET /v1/agents/{id}", s.getAgent)
	locked("DELETE /v1/agents/{id}", s.deleteAgent)
	locked("POST /v1/agents/{id}/cancel", s.cancelAgent)
	locked("GET /v1/agents/{id}/events", s.agentEvents)
	locked("GET /v1/agents/{id}/connect", s.connectAgent)
	locked("GET /v1/agents/{id}/figures/{file}", s.agentFigure)
	locked("GET /v1/agents/{id}/notebook", s.agentNotebook)
	locked("GET /v1/agents/{id}/report", s.agentReport)
}

// Routes lists every pattern that is served, as in "GET /v1/me".
func (s *Server) Routes() []string { return slices.Clone(s.routed) }

func (s *Server) handle(pattern string, h handler) {
	s.routed = append(s.routed, pattern)
	s.on(s.mux, pattern, h)
}

func (s *Server) on(mux *http.ServeMux, pattern string, h handler) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		stateOf(r.Context()).route = pattern
		if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// dispatch is the mux, with its plain-text answers put into our words.
func (s *Server) dispatch(w http.ResponseWriter, r *http.Request) {
	if name, is := preview.ParseHost(r.Host, s.previewName()); is {
		s.visit(w, r, name)
		return
	}
	if rest, is := strings.CutPrefix(r.URL.EscapedPath(), linkPrefix); is && rest != "" {
		s.visitLink(w, r, rest)
		return
	}
	if token, is := strings.CutPrefix(r.URL.EscapedPath(), fileLinkPrefix); is {
		s.visitFile(w, r, token)
		return
	}
	if err := s.refuseForeign(w, r); err != nil {
		s.fail(w, r, err)
		return
	}
	if preflight(w, r) {
		return
	}
	if id, port, rest, is := proxied(r); is {
		s.visitProxy(w, r, id, port, rest)
		return
	}
	// The mux would redirect an unclean path; nothing of ours sends one.
	if r.URL.Path != path.Clean(r.URL.Path) {
		s.fail(w, r, errNoRoute(r))
		return
	}
	if _, pattern := s.mux.Handler(r); pattern == "" {
		s.unrouted(w, r)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// unrouted answers what no route takes: 501 when published clients call it,
// 405 when another method would do.
func (s *Server) unrouted(w http.ResponseWriter, r *http.Request) {
	if _, pattern := s.absent.Handler(r); pattern != "" {
		s.absent.ServeHTTP(w, r)
		return
	}
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		probe := &http.Request{Method: m, URL: r.URL, Host: r.Host}
		if _, pattern := s.mux.Handler(probe); pattern != "" {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) == 0 {
		s.fail(w, r, errNoRoute(r))
		return
	}
	s.fail(w, r, errMethod(r, allowed))
}
