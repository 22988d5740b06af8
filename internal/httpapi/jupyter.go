package httpapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/jupyter"
)

// Notebooks connects front ends of Jupyter with contexts. It is jupyter.Server.
type Notebooks interface {
	Serve(ctx context.Context, owner, sid, cid, session string, conn *websocket.Conn) error
	Restart(ctx context.Context, owner, sid, cid string) error
	Connections(sid, cid string) int
}

var _ Notebooks = (*jupyter.Server)(nil)

const (
	jupyterPrefix = "/jupyter/"
	kernelName    = "python3"
	// jupyterContext begins the id of a context that a front end has started, and may end.
	jupyterContext = "jupyter-"
	// contextKind begins the name of the kind of kernel that is a context.
	contextKind = "context-"
)

// What front ends read, as Jupyter Server's REST API has it.
type (
	kernelModel struct {
		ID          string      `json:"id"`
		Name        string      `json:"name"`
		Activity    jupyterTime `json:"last_activity"`
		State       string      `json:"execution_state"`
		Connections int         `json:"connections"`
		Context     string      `json:"context"` // of this API
	}
	sessionModel struct {
		ID     string      `json:"id"`
		Path   string      `json:"path"`
		Name   string      `json:"name"`
		Type   string      `json:"type"`
		Kernel kernelModel `json:"kernel"`
	}
	specModel struct {
		Name      string            `json:"name"`
		Spec      spec              `json:"spec"`
		Resources map[string]string `json:"resources"`
	}
	spec struct {
		Argv      []string          `json:"argv"`
		Name      string            `json:"display_name"`
		Language  string            `json:"language"`
		Interrupt string            `json:"interrupt_mode"`
		Env       map[string]string `json:"env"`
		Metadata  map[string]string `json:"metadata"`
	}
)

// jupyterTime is a moment with six digits after the point, which clients insist on.
type jupyterTime time.Time

func (t jupyterTime) MarshalText() ([]byte, error) {
	return time.Time(t).UTC().AppendFormat(nil, "2006-01-02T15:04:05.000000Z"), nil
}

func (s *Server) jupyterRoutes(locked func(string, handler)) {
	locked("GET /jupyter/{id}/api", s.jupyterVersion)
	locked("GET /jupyter/{id}/api/status", s.jupyterStatus)
	locked("GET /jupyter/{id}/api/kernelspecs", s.kernelSpecs)
	locked("GET /jupyter/{id}/api/kernelspecs/{name}", s.kernelSpec)
	locked("GET /jupyter/{id}/api/kernels", s.listKernels)
	locked("POST /jupyter/{id}/api/kernels", s.startKernel)
	locked("GET /jupyter/{id}/api/kernels/{kid}", s.ofKernel(s.getKernel))
	locked("DELETE /jupyter/{id}/api/kernels/{kid}", s.ofKernel(s.endKernel))
	locked("POST /jupyter/{id}/api/kernels/{kid}/interrupt", s.ofKernel(s.interruptKernel))
	locked("POST /jupyter/{id}/api/kernels/{kid}/restart", s.ofKernel(s.restartKernel))
	locked("GET /jupyter/{id}/api/kernels/{kid}/channels", s.ofKernel(s.kernelChannels))
	locked("GET /jupyter/{id}/api/sessions", s.listSessions)
	locked("POST /jupyter/{id}/api/sessions", s.startSession)
	locked("GET /jupyter/{id}/api/sessions/{kid}", s.ofKernel(s.getSession))
	locked("PATCH /jupyter/{id}/api/sessions/{kid}", s.ofKernel(s.patchSession))
	locked("DELETE /jupyter/{id}/api/sessions/{kid}", s.ofKernel(s.endKernel))
}

// kernelID names a context for front ends, which want a UUID. It is the same
// as long as the context has its name.
func kernelID(sid, cid string) string {
	h := sha256.Sum256([]byte(sid + "/" + cid))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80 // version 8, RFC 9562
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// ofKernel serves a route of one kernel, which is named as front ends know it or
// as this API does.
func (s *Server) ofKernel(h func(w http.ResponseWriter, r *http.Request, c api.Context) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		sid, kid := r.PathValue("id"), r.PathValue("kid")
		list, err := s.Kernels.Contexts(r.Context(), owner(r), sid)
		if err != nil {
			return err
		}
		for _, c := range list {
			if c.ID == kid || kernelID(sid, c.ID) == kid {
				return h(w, r, c)
			}
		}
		return fault.New(api.CodeNotFound, "there is no kernel %s in the sandbox %s", shown(kid), shown(sid)).
			WithHint("it has been closed, or is of another sandbox; GET /jupyter/%s/api/kernels lists those that there are", sid)
	}
}

var errNoNotebooks = fault.New(api.CodeUnsupported, "this server connects no front ends of Jupyter")

func (s *Server) jupyterVersion(w http.ResponseWriter, r *http.Request) error {
	if err := s.isThere(r); err != nil {
		return err
	}
	return ok(w, map[string]string{"version": "2.0.0"}) // of the REST API that this is
}

// isThere refuses a sandbox that there is not.
func (s *Server) isThere(r *http.Request) error {
	_, err := s.Sandboxes.Get(r.Context(), owner(r), r.PathValue("id"))
	return err
}

func (s *Server) jupyterStatus(w http.ResponseWriter, r *http.Request) error {
	list, err := s.kernels(r)
	if err != nil {
		return err
	}
	connections := 0
	for _, k := range list {
		connections += k.Connections
	}
	now := jupyterTime(time.Now())
	return ok(w, map[string]any{"started": now, "last_activity": now, "kernels": len(list), "connections": connections})
}

// kindOf is the name of the kind of kernel that a context is. Each that was not
// started from Jupyter is a kind of its own: front ends that know the kernels
// that they have started alone, as JupyterLab does behind a gateway, attach to
// it by starting one.
func kindOf(cid string) string {
	if strings.HasPrefix(cid, jupyterContext) {
		return kernelName
	}
	return contextKind + cid
}

func specOf(sid, kind string) specModel {
	m := specModel{
		Name: kind,
		Spec: spec{
			Argv: []string{}, Name: "Python 3 (sandbox " + sid + ")", Language: "python", Interrupt: "message",
			Env: map[string]string{}, Metadata: map[string]string{"sandbox": sid},
		},
		Resources: map[string]string{},
	}
	if cid, is := strings.CutPrefix(kind, contextKind); is {
		m.Spec.Name = "Context " + cid + " (sandbox " + sid + ")"
		m.Spec.Metadata["context"] = cid
	}
	return m
}

// specs are the kinds of kernels of a sandbox: a new one, and each context. The
// default one is there as soon as somebody wants it.
func (s *Server) specs(r *http.Request) (map[string]specModel, error) {
	sid := r.PathValue("id")
	list, err := s.Kernels.Contexts(r.Context(), owner(r), sid)
	if err != nil {
		return nil, err
	}
	all := map[string]specModel{kernelName: specOf(sid, kernelName)}
	for _, c := range append(list, api.Context{ID: api.DefaultContext}) {
		if kind := kindOf(c.ID); !strings.Contains(kind, ":") { // which no name of theirs may have
			all[kind] = specOf(sid, kind)
		}
	}
	return all, nil
}

func (s *Server) kernelSpecs(w http.ResponseWriter, r *http.Request) error {
	all, err := s.specs(r)
	return answer(w, map[string]any{"default": kernelName, "kernelspecs": all}, err)
}

func (s *Server) kernelSpec(w http.ResponseWriter, r *http.Request) error {
	all, err := s.specs(r)
	if err != nil {
		return err
	}
	m, known := all[r.PathValue("name")]
	if !known {
		return fault.New(api.CodeNotFound, "there is no kind of kernel %s", shown(r.PathValue("name"))).WithHint("GET /jupyter/%s/api/kernelspecs lists them", r.PathValue("id"))
	}
	return ok(w, m)
}

// kernelOf describes a context as a kernel.
func (s *Server) kernelOf(sid string, c api.Context) kernelModel {
	k := kernelModel{ID: kernelID(sid, c.ID), Name: kindOf(c.ID), Activity: jupyterTime(c.CreatedAt), State: c.State, Context: c.ID}
	if s.Notebooks != nil {
		k.Connections = s.Notebooks.Connections(sid, c.ID)
	}
	return k
}

func (s *Server) kernels(r *http.Request) ([]kernelModel, error) {
	sid := r.PathValue("id")
	list, err := s.Kernels.Contexts(r.Context(), owner(r), sid)
	if err != nil {
		return nil, err
	}
	out := []kernelModel{}
	for _, c := range list {
		out = append(out, s.kernelOf(sid, c))
	}
	return out, nil
}

func (s *Server) listKernels(w http.ResponseWriter, r *http.Request) error {
	list, err := s.kernels(r)
	return answer(w, list, err)
}

func (s *Server) startKernel(w http.ResponseWriter, r *http.Request) error {
	var want struct {
		Name string `json:"name"`
	}
	if err := decode(w, r, &want); err != nil {
		return err
	}
	k, err := s.newKernel(r, want.Name)
	if err != nil {
		return err
	}
	w.Header().Set("Location", jupyterPrefix+r.PathValue("id")+"/api/kernels/"+k.ID)
	writeJSON(w, http.StatusCreated, k)
	return nil
}

func (s *Server) newKernel(r *http.Request, name string) (kernelModel, error) {
	sid := r.PathValue("id")
	if cid, is := strings.CutPrefix(name, contextKind); is {
		c, err := s.Kernels.Context(r.Context(), owner(r), sid, cid)
		return s.kernelOf(sid, c), err
	}
	if name != "" && name != kernelName {
		if err := s.isThere(r); err != nil {
			return kernelModel{}, err
		}
		return kernelModel{}, fault.InvalidField("name", "there is no kind of kernel %s", shown(name)).WithHint("GET /jupyter/%s/api/kernelspecs lists them", sid)
	}
	c, err := s.Kernels.CreateContext(r.Context(), owner(r), sid, api.CreateContextRequest{ID: jupyterContext + rand.Text()[:8]})
	return s.kernelOf(sid, c), err
}

func (s *Server) getKernel(w http.ResponseWriter, r *http.Request, c api.Context) error {
	return ok(w, s.kernelOf(r.PathValue("id"), c))
}

// endKernel ends a kernel that a front end has started. Those of others stay:
// front ends shut down what they know when they end themselves, and do not end
// when that is refused.
func (s *Server) endKernel(w http.ResponseWriter, r *http.Request, c api.Context) error {
	if !strings.HasPrefix(c.ID, jupyterContext) {
		return noContent(w)
	}
	return done(w, s.Kernels.CloseContext(r.Context(), owner(r), r.PathValue("id"), c.ID))
}

func (s *Server) interruptKernel(w http.ResponseWriter, r *http.Request, c api.Context) error {
	return done(w, s.Kernels.Interrupt(r.Context(), owner(r), r.PathValue("id"), c.ID))
}

func (s *Server) restartKernel(w http.ResponseWriter, r *http.Request, c api.Context) error {
	if s.Notebooks == nil {
		return errNoNotebooks
	}
	if err := s.Notebooks.Restart(r.Context(), owner(r), r.PathValue("id"), c.ID); err != nil {
		return err
	}
	c.State = "idle"
	return ok(w, s.kernelOf(r.PathValue("id"), c))
}

// kernelChannels connects a front end with a context.
func (s *Server) kernelChannels(w http.ResponseWriter, r *http.Request, c api.Context) error {
	if s.Notebooks == nil {
		return errNoNotebooks
	}
	q, err := query(r)
	if err != nil {
		return err
	}
	if err := clientName("session_id", q.Get("session_id")); err != nil {
		return err
	}
	conn, err := upgradeTo(w, r, jupyter.Subprotocol)
	if conn == nil {
		return err
	}
	stateOf(r.Context()).err = s.Notebooks.Serve(r.Context(), owner(r), r.PathValue("id"), c.ID, q.Get("session_id"), conn)
	goodbye(r, conn)
	return nil
}

// sessionOf describes a kernel as a session. Which notebook is open in which
// kernel is for front ends to know: here each kernel is one session.
func (s *Server) sessionOf(sid string, c api.Context) sessionModel {
	k := s.kernelOf(sid, c)
	return sessionModel{ID: k.ID, Path: c.ID + ".ipynb", Name: c.ID, Type: "notebook", Kernel: k}
}

func (s *Server) listSessions(w http.ResponseWriter, r *http.Request) error {
	sid := r.PathValue("id")
	list, err := s.Kernels.Contexts(r.Context(), owner(r), sid)
	out := []sessionModel{}
	for _, c := range list {
		out = append(out, s.sessionOf(sid, c))
	}
	return answer(w, out, err)
}

// sessionRequest is the body of POST and PATCH …/api/sessions. What it says of
// notebooks is given back.
type sessionRequest struct {
	Path   string `json:"path"`
	Name   string `json:"name"`
	Type   string `json:"type"`
	Kernel struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"kernel"`
}

func (q sessionRequest) named(m sessionModel) sessionModel {
	m.Path, m.Name, m.Type = cmp.Or(q.Path, m.Path), cmp.Or(q.Name, m.Name), cmp.Or(q.Type, m.Type)
	return m
}

func (s *Server) startSession(w http.ResponseWriter, r *http.Request) error {
	var q sessionRequest
	if err := decode(w, r, &q); err != nil {
		return err
	}
	if q.Kernel.ID != "" {
		r.SetPathValue("kid", q.Kernel.ID)
		return s.ofKernel(func(w http.ResponseWriter, r *http.Request, c api.Context) error {
			writeJSON(w, http.StatusCreated, q.named(s.sessionOf(r.PathValue("id"), c)))
			return nil
		})(w, r)
	}
	k, err := s.newKernel(r, q.Kernel.Name)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, q.named(sessionModel{ID: k.ID, Path: k.Context + ".ipynb", Name: k.Context, Type: "notebook", Kernel: k}))
	return nil
}

func (s *Server) getSession(w http.ResponseWriter, r *http.Request, c api.Context) error {
	return ok(w, s.sessionOf(r.PathValue("id"), c))
}

func (s *Server) patchSession(w http.ResponseWriter, r *http.Request, c api.Context) error {
	var q sessionRequest
	if err := decode(w, r, &q); err != nil {
		return err
	}
	m := s.sessionOf(r.PathValue("id"), c)
	if q.Kernel.ID != "" && q.Kernel.ID != m.ID {
		return fault.InvalidField("kernel", "a session is one kernel here").WithHint("begin another session with POST …/api/sessions")
	}
	return ok(w, q.named(m))
}

// jupyterFailure is an error as clients of Jupyter's API read it, too.
type jupyterFailure struct {
	*api.Error
	Message string `json:"message"`
	Reason  string `json:"reason"` // which they put into the status line of their own answers
}

func forJupyter(e *api.Error, status int) jupyterFailure {
	f := jupyterFailure{e, e.Message, http.StatusText(status)}
	hint := e.Hint
	if status == http.StatusUnauthorized { // people have typed a token, and no header
		hint = "the token is an API key with the scope run, as in ?token=pds_…"
	}
	if hint != "" {
		f.Message += ": " + hint
	}
	return f
}

// jupyterKey is the key as front ends send it, "" where there is none of theirs.
func jupyterKey(r *http.Request) string {
	if !strings.HasPrefix(r.URL.Path, jupyterPrefix) {
		return ""
	}
	if scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "token") {
		return strings.TrimSpace(secret)
	}
	if r.Header.Get("Authorization") != "" {
		return ""
	}
	return r.URL.Query().Get("token")
}
