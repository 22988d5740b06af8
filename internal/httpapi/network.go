package httpapi

import (
	"context"
	"iter"
	"net/http"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/network"
)

const maxLines = 500 // of the network's log in one answer

// Secrets are those that the server keeps. They go in and never come out.
type Secrets interface {
	PutSecret(ctx context.Context, owner, name, value string) (api.SecretInfo, error)
	ListSecrets(ctx context.Context, owner string) ([]api.SecretInfo, error)
	GetSecret(ctx context.Context, owner, name string) (api.SecretInfo, error)
	DeleteSecret(ctx context.Context, owner, name string) error
}

// NetworkLog is what was decided about what sandboxes tried to reach.
type NetworkLog interface {
	Tail(sandbox string, n int) []api.NetworkLine
	Follow(ctx context.Context, sandbox string, after int64, tail int) iter.Seq2[api.NetworkLine, error]
}

var (
	_ Secrets    = (*network.Secrets)(nil)
	_ NetworkLog = (*network.Log)(nil)
)

func (s *Server) getNetwork(w http.ResponseWriter, r *http.Request) error {
	info, err := s.Sandboxes.Network(r.Context(), owner(r), r.PathValue("id"))
	return answer(w, info, err)
}

func (s *Server) patchNetwork(w http.ResponseWriter, r *http.Request) error {
	var p api.NetworkPatch
	if err := decode(w, r, &p); err != nil {
		return err
	}
	info, err := s.Sandboxes.SetNetwork(r.Context(), owner(r), r.PathValue("id"), p)
	return answer(w, info, err)
}

// networkLog gives the last lines of a sandbox, ?tail= of them. With ?follow=1
// more come as they are written; a broken stream goes on after Last-Event-ID.
func (s *Server) networkLog(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	tail, err := upTo(q, "tail", defaultTail, maxLines)
	if err != nil {
		return err
	}
	follows, err := boolean(q, "follow")
	if err != nil {
		return err
	}
	after := int64(-1)
	if r.Header.Get("Last-Event-ID") != "" {
		if after, err = lastEventID(r); err != nil {
			return err
		}
	}
	of, err := s.Sandboxes.EventsOf(r.Context(), owner(r), r.PathValue("id"))
	if err != nil {
		return err
	}
	if s.NetworkLog == nil {
		return fault.New(api.CodeUnsupported, "this server keeps no log of networks")
	}
	if !follows {
		return ok(w, api.NetworkLog{Lines: orEmpty(s.NetworkLog.Tail(of.SandboxID, int(tail)))})
	}
	out := newSSE(w, keepAlive)
	defer out.close()
	if err := out.begin(); err != nil { // it may stay silent for long
		return err
	}
	for line, err := range s.NetworkLog.Follow(r.Context(), of.SandboxID, after, int(tail)) {
		if err == nil {
			err = out.send(line.Seq, "line", line)
		}
		if err != nil {
			return err // the connection is cut: the client comes back with Last-Event-ID
		}
	}
	return nil
}

func (s *Server) secrets() (Secrets, error) {
	if s.Secrets == nil {
		return nil, fault.New(api.CodeUnsupported, "this server keeps no secrets")
	}
	return s.Secrets, nil
}

func (s *Server) listSecrets(w http.ResponseWriter, r *http.Request) error {
	kept, err := s.secrets()
	if err != nil {
		return err
	}
	list, err := kept.ListSecrets(r.Context(), owner(r))
	return answer(w, orEmpty(list), err)
}

func (s *Server) getSecret(w http.ResponseWriter, r *http.Request) error {
	kept, err := s.secrets()
	if err != nil {
		return err
	}
	info, err := kept.GetSecret(r.Context(), owner(r), r.PathValue("name"))
	return answer(w, info, err)
}

func (s *Server) putSecret(w http.ResponseWriter, r *http.Request) error {
	var req api.PutSecretRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	kept, err := s.secrets()
	if err != nil {
		return err
	}
	info, err := kept.PutSecret(r.Context(), owner(r), r.PathValue("name"), req.Value)
	return answer(w, info, err)
}

func (s *Server) deleteSecret(w http.ResponseWriter, r *http.Request) error {
	kept, err := s.secrets()
	if err != nil {
		return err
	}
	return done(w, kept.DeleteSecret(r.Context(), owner(r), r.PathValue("name")))
}
