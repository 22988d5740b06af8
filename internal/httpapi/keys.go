package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/auth"
	"github.com/pandastack/pandastack/internal/fault"
)

// Keys checks and manages API keys.
type Keys interface {
	Check(secret string) (auth.Identity, bool)
	Life(prefix string) (context.Context, bool)
	Create(ctx context.Context, by auth.Identity, g auth.Grant) (secret string, key auth.Key, err error)
	List(by auth.Identity, workspace string) ([]auth.Key, error)
	Revoke(ctx context.Context, by auth.Identity, prefix string) error
}

var _ Keys = (*auth.Keys)(nil)

func (s *Server) me(w http.ResponseWriter, r *http.Request) error {
	who := stateOf(r.Context()).who
	return ok(w, api.Me{
		ID: who.Owner, Workspace: who.Owner, AuthMethod: "api_key", KeyPrefix: who.Prefix, KeyLabel: who.Label,
		Scopes: who.Scope.Words(), ExpiresAt: moment(who.ExpiresAt),
	})
}

func keyInfo(k auth.Key) api.KeyInfo {
	return api.KeyInfo{
		Prefix: k.Prefix, Label: k.Label, Scopes: k.Scope.Words(), Workspace: k.Owner,
		CreatedAt: k.CreatedAt.UTC().Truncate(time.Second), ExpiresAt: moment(k.ExpiresAt), LastUsedAt: moment(k.UsedAt),
	}
}

// moment leaves out the time that never comes.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func (s *Server) listKeys(w http.ResponseWriter, r *http.Request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	keys, err := s.Keys.List(stateOf(r.Context()).who, q.Get("workspace"))
	if err != nil {
		return err
	}
	out := []api.KeyInfo{}
	for _, k := range keys {
		out = append(out, keyInfo(k))
	}
	return ok(w, out)
}

func (s *Server) createKey(w http.ResponseWriter, r *http.Request) error {
	var req keyRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	g, err := grant(req, time.Now())
	if err != nil {
		return err
	}
	secret, key, err := s.Keys.Create(r.Context(), stateOf(r.Context()).who, g)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, api.NewKey{Token: secret, KeyInfo: keyInfo(key)})
	return nil
}

// keyRequest is the request with its time unread, so that a wrong one can be
// named.
type keyRequest struct {
	api.CreateKeyRequest
	ExpiresAt *string `json:"expires_at"`
}

func grant(req keyRequest, now time.Time) (auth.Grant, error) {
	g := auth.Grant{Label: req.Label, Workspace: req.Workspace}
	var err error
	if g.Scope, err = auth.ParseScopes(req.Scopes, auth.Run); err != nil {
		return g, err
	}
	switch days := req.ExpiresInDays; {
	case days != nil && req.ExpiresAt != nil:
		return g, fault.InvalidField("expires_in_days", "expires_in_days and expires_at exclude each other")
	case days != nil && (*days < 1 || *days > maxDays):
		return g, fault.InvalidField("expires_in_days", "expires_in_days must be between 1 and %d, but is %d", maxDays, *days)
	case days != nil:
		g.ExpiresAt = now.AddDate(0, 0, *days)
	case req.ExpiresAt != nil:
		if g.ExpiresAt, err = time.Parse(time.RFC3339, *req.ExpiresAt); err != nil || g.ExpiresAt.IsZero() {
			return g, fault.InvalidField("expires_at", "expires_at is no time: %s", shown(*req.ExpiresAt)).
				WithHint("such as 2030-01-31T12:00:00Z; leave it out for a key that never expires")
		}
	}
	return g, nil
}

const maxDays = 3650

func (s *Server) revokeKey(w http.ResponseWriter, r *http.Request) error {
	if err := s.Keys.Revoke(r.Context(), stateOf(r.Context()).who, r.PathValue("prefix")); err != nil {
		return err
	}
	return noContent(w)
}
