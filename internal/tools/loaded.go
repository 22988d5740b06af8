package tools

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sync"
	"time"
)

// loaded is what was read of a service or a server: its tools, without what
// belongs to one sandbox.
type loaded struct {
	once  sync.Mutex
	at    time.Time
	tools []Tool
}

const (
	loadedFor  = 5 * time.Minute
	loadedMost = 200
	loadTime   = 30 * time.Second
)

// load gives the tools of a source, reading it when that was not done lately.
// Those of one owner are never another's: secrets decide what a source says.
func (s *Service) load(ctx context.Context, owner, kind, name string, spec any, read func(context.Context) ([]Tool, error)) ([]Tool, error) {
	raw, err := json.Marshal([]any{owner, kind, name, spec})
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	key := hex.EncodeToString(sum[:])
	s.mu.Lock()
	l := s.loaded[key]
	if l == nil {
		if len(s.loaded) >= loadedMost {
			clear(s.loaded)
		}
		l = &loaded{}
		s.loaded[key] = l
	}
	s.mu.Unlock()
	l.once.Lock()
	defer l.once.Unlock()
	if !l.at.IsZero() && s.o.Now().Sub(l.at) < loadedFor {
		return l.tools, nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadTime)
	defer cancel()
	tools, err := read(ctx)
	if err != nil {
		return nil, err
	}
	for i := range tools {
		tools[i].stub = newStub(tools[i])
		tools[i].schema = compiled(tools[i].Parameters)
	}
	l.tools, l.at = tools, s.o.Now()
	return tools, nil
}
