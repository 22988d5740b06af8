package guestd

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/guestapi"
)

// handler serves a route; its error becomes the answer.
type handler func(http.ResponseWriter, *http.Request) error

// routes serves exactly what package guestapi lists.
func (a *Agent) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			began := time.Now()
			err := h(w, r)
			a.logRequest(r, began, err)
			if err != nil {
				a.writeError(w, r, err)
			}
		})
	}
	handle("GET /health", a.getHealth)
	if a.newest() >= 2 {
		handle("GET /log", a.getLog)
	}
	handle("POST /assign", a.postAssign)
	handle("POST /hooks/snapshot", a.postSnapshotHooks)
	handle("POST /warm", a.postWarm)

	handle("GET /contexts", a.listContexts)
	handle("POST /contexts", a.createContext)
	handle("GET /contexts/{cid}", a.getContext)
	handle("DELETE /contexts/{cid}", a.deleteContext)
	handle("POST /contexts/{cid}/interrupt", a.interruptContext)
	handle("POST /contexts/{cid}/restart", a.restartContext)
	handle("POST /contexts/{cid}/fork", a.forkContext)
	handle("POST /contexts/{cid}/executions", a.postExecution)
	handle("GET /contexts/{cid}/executions/{eid}", a.getExecution)
	handle("POST /contexts/{cid}/executions/{eid}/interrupt", a.interruptExecution)
	handle("POST /contexts/{cid}/executions/{eid}/input", a.inputExecution)

	handle("GET /processes", a.listProcesses)
	handle("POST /processes", a.startProcess)
	handle("GET /processes/{pid}", a.withProcess(a.getProcess))
	handle("GET /processes/{pid}/events", a.withProcess(a.processEvents))
	handle("POST /processes/{pid}/stdin", a.withProcess(a.writeStdin))
	handle("POST /processes/{pid}/stdin/close", a.withProcess(a.closeStdin))
	handle("POST /processes/{pid}/signal", a.withProcess(a.signalProcess))
	if a.newest() >= 4 {
		handle("POST /processes/{pid}/resize", a.withProcess(a.resizeProcess))
	}
	handle("DELETE /processes/{pid}", a.withProcess(a.killProcess))

	handle("GET /files", withPath(a.readFile))
	handle("PUT /files", withPath(a.writeFile))
	handle("DELETE /files", withPath(a.removeFile))
	handle("GET /files/stat", withPath(a.statFile))
	handle("GET /files/dir", withPath(a.listDir))
	if a.newest() >= 5 {
		handle("GET /files/tar", withPath(a.readTar))
		handle("PUT /files/tar", withPath(a.writeTar))
	}
	handle("POST /files/dir", a.makeDir)
	handle("POST /files/move", a.moveFile)

	if a.newest() >= 3 {
		handle("GET /ports", a.getPorts)
		handle("POST /flows", a.postFlow)
	}
	if a.newest() >= 6 {
		handle("POST /trust", a.postTrust)
	}
	if a.newest() >= 7 {
		handle("POST /calls", a.postCalls)
	}
	if a.newest() >= 8 {
		handle("POST /packages", a.postPackages)
		handle("GET /watches/{id}", withPath(a.getWatch))
	}

	handle("/", func(_ http.ResponseWriter, r *http.Request) error {
		return fault.New(api.CodeNotFound, "the guest agent has no route %s %s", r.Method, r.URL.Path)
	})
	return mux
}

// logRequest logs what somebody asked for: a call with the id of a request. The
// host's own, such as looking whether the agent is there, have none.
func (a *Agent) logRequest(r *http.Request, began time.Time, err error) {
	id := r.Header.Get("X-Request-Id")
	if id == "" {
		return
	}
	attrs := []slog.Attr{
		slog.String("request_id", id), slog.String("method", r.Method), slog.String("path", r.URL.Path),
		slog.Float64("ms", milliseconds(time.Since(began))),
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", short(err.Error())))
	}
	a.log.LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
}

func (a *Agent) getHealth(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, a.health())
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // a host that went away asks again
	return nil
}

// noContent answers a call that has nothing to say but whether it went well.
func noContent(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// readJSON reads a body into v, which keeps its zero value for an empty one.
func readJSON(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, guestapi.MaxJSONBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return fault.New(api.CodeTooLarge, "the request is larger than %d MiB", guestapi.MaxJSONBody>>20)
	}
	if err != nil {
		return fault.Wrap(err, api.CodeInvalid, "the request ended early")
	}
	if len(body) == 0 {
		return nil
	}
	var wrongType *json.UnmarshalTypeError
	if err := json.Unmarshal(body, v); errors.As(err, &wrongType) {
		return fault.InvalidField(wrongType.Field, "%s must not be a %s", wrongType.Field, wrongType.Value)
	} else if err != nil {
		return fault.Wrap(err, api.CodeInvalid, "the request is not JSON: %v", err)
	}
	return nil
}

var statuses = map[api.Code]int{
	api.CodeInvalid:     http.StatusBadRequest,
	api.CodeDenied:      http.StatusForbidden,
	api.CodeNotFound:    http.StatusNotFound,
	api.CodeConflict:    http.StatusConflict,
	api.CodeTooLarge:    http.StatusRequestEntityTooLarge,
	api.CodeRateLimited: http.StatusTooManyRequests,
	api.CodeUnsupported: http.StatusNotImplemented,
	api.CodeNoCapacity:  http.StatusServiceUnavailable,
	api.CodeTimeout:     http.StatusGatewayTimeout,
	api.CodeNoSpace:     http.StatusInsufficientStorage,
}

// maxWords is how long the words of an error may be. They may quote what was
// asked for, at any length, and the host reads no more than some.
const maxWords = 2 << 10

func short(words string) string {
	if len(words) <= maxWords {
		return words
	}
	return strings.ToValidUTF8(words[:maxWords], "") + "…"
}

func (a *Agent) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, http.ErrAbortHandler) {
		panic(http.ErrAbortHandler) // the head of the answer is out already: break the stream
	}
	body := api.Error{Message: err.Error(), Code: api.CodeInternal}
	var f *fault.Error
	if errors.As(err, &f) {
		body = api.Error{Message: f.Message, Code: f.Code, Hint: f.Hint, Field: f.Field}
	}
	body.Message, body.Hint = short(body.Message), short(body.Hint)
	status, ok := statuses[body.Code]
	if !ok {
		status = http.StatusInternalServerError
		a.log.Error("request failed", "request_id", r.Header.Get("X-Request-Id"), "method", r.Method, "path", r.URL.Path, "error", err)
	}
	if s := statusOf(err); s != 0 {
		status = s
	}
	_ = writeJSON(w, status, body)
}

// withStatus gives an error a status other than that of its kind.
type withStatus struct {
	error
	status int
}

func (e withStatus) Unwrap() error { return e.error }

func statusOf(err error) int {
	var s withStatus
	if errors.As(err, &s) {
		return s.status
	}
	return 0
}
