package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// place is the sandbox that a call works in, and what its caller must be told
// about it.
type place struct {
	*pandastack.Sandbox
	note string
}

// place gives the sandbox of that id, or without one the session's, which is
// made when there is none and made anew when it has ended.
func (s *Session) place(ctx context.Context, req *mcp.CallToolRequest, id string) (place, error) {
	if id != "" {
		return place{Sandbox: s.client.Sandbox(id)}, nil
	}
	s.making.Lock()
	defer s.making.Unlock()
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	if current != "" {
		sb, why, err := s.lives(ctx, current)
		if err != nil || sb != nil {
			return place{Sandbox: sb}, err
		}
		if current == s.opts.Sandbox {
			return place{}, fmt.Errorf("the sandbox %s that this session was given has ended (%s): start the session with another one, or call create_sandbox", current, why)
		}
		sb, err = s.make(ctx, req, pandastack.CreateOptions{Template: s.opts.Template}, false)
		if err != nil {
			return place{}, err
		}
		return place{sb, fmt.Sprintf("[pandastack] The sandbox %s has ended (%s). This is a fresh one, %s: variables, files and processes of the old one are gone.", current, why, sb.ID)}, nil
	}
	sb, err := s.make(ctx, req, pandastack.CreateOptions{Template: s.opts.Template}, false)
	return place{Sandbox: sb}, err
}

// lives looks whether a sandbox is still there, and gives one of the session's
// own its time again. Of one that is not it says why.
func (s *Session) lives(ctx context.Context, id string) (sb *pandastack.Sandbox, why string, err error) {
	sb, err = s.client.Get(ctx, id)
	switch {
	case errors.Is(err, pandastack.ErrNotFound):
		return nil, "it was deleted or its time was over", nil
	case err != nil:
		return nil, "", err
	}
	switch info := sb.Info; info.Status {
	case api.StatusDeleted, api.StatusFailed, api.StatusStopping:
		return nil, firstOf(info.EndReason, string(info.Status)), nil
	default:
		if s.owns(id) && time.Until(info.ExpiresAt) < s.opts.TTL/2 {
			if _, err := sb.SetTTL(ctx, s.opts.TTL); err != nil {
				return nil, "", err
			}
		}
	}
	return sb, "", nil
}

func (s *Session) owns(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own[id]
}

// make makes a sandbox, which becomes the session's. With keep it outlives it.
func (s *Session) make(ctx context.Context, req *mcp.CallToolRequest, o pandastack.CreateOptions, keep bool) (*pandastack.Sandbox, error) {
	if err := s.room(1); err != nil {
		return nil, err
	}
	if o.TTLSeconds == nil {
		o.TTLSeconds = new(int(s.opts.TTL.Seconds()))
	}
	o.Metadata = map[string]string{"made_by": "mcp"}
	if p := req.Session.InitializeParams(); p != nil && p.ClientInfo != nil && p.ClientInfo.Name != "" {
		o.Metadata["mcp_client"] = clip(p.ClientInfo.Name, 64)
	}
	sb, err := s.client.Create(ctx, o)
	if err != nil {
		return nil, err
	}
	return sb, s.adopt(ctx, sb, true, keep)
}

// room says whether the session may have so many sandboxes more.
func (s *Session) room(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.own)+n > maxSandboxes {
		return fmt.Errorf("this session has %d sandboxes, and may have %d at once: end some with delete_sandbox", len(s.own), maxSandboxes)
	}
	return nil
}

// adopt takes a sandbox that was made for the session. One that is made when
// the session has ended meanwhile ends too.
func (s *Session) adopt(ctx context.Context, sb *pandastack.Sandbox, current, keep bool) error {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.own[sb.ID] = !keep
		if keep {
			delete(s.own, sb.ID)
		}
		if current {
			s.current = sb.ID
		}
	}
	s.mu.Unlock()
	if closed {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer cancel()
		return errors.Join(errors.New("the session has ended"), sb.Kill(ctx))
	}
	return nil
}

func firstOf(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}
