package agent

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pandastack/pandastack/api"
)

// formerRun is a run that has ended, as far as keeping it goes.
type formerRun struct {
	id, owner, follows string
	ended              time.Time
	bytes              int64 // on disk
}

// keep notes a run that has ended, and removes those that are kept no longer.
func (s *Service) keep(run api.AgentRun) {
	p := formerRun{run.ID, run.Workspace, run.Follows, *run.EndedAt, folderSize(s.dir(run.ID))}
	s.mu.Lock()
	s.former[run.ID] = p
	s.mu.Unlock()
	if err := s.forgetOld(); err != nil {
		s.cfg.Logger.Error("old runs of agents are not removed", "error", err)
	}
}

// chain is a run and those that go on from it, one from the other: each needs what
// was before it, so they are kept as long as the last of them.
type chain struct {
	owner string
	ids   []string
	ended time.Time
	bytes int64
	busy  bool // a run that is worked on needs it
}

// chains are the runs that have ended, by those that they go on from. The lock is held.
func (s *Service) chains() []*chain {
	first := func(id string) string {
		for p, ok := s.former[id]; ok && p.follows != ""; p, ok = s.former[id] {
			if _, ok := s.former[p.follows]; !ok {
				break
			}
			id = p.follows
		}
		return id
	}
	of := map[string]*chain{}
	for id, p := range s.former {
		c := of[first(id)]
		if c == nil {
			c = &chain{owner: p.owner}
			of[first(id)] = c
		}
		c.ids, c.bytes = append(c.ids, id), c.bytes+p.bytes
		if p.ended.After(c.ended) {
			c.ended = p.ended
		}
	}
	for _, l := range s.live {
		for _, id := range l.needs {
			if c := of[first(id)]; c != nil {
				c.busy = true
			}
		}
	}
	return slices.Collect(maps.Values(of))
}

// forgetOld removes the runs that ended longer ago than KeepFor and, of a workspace
// whose runs take more than MostKept, the oldest. The newest stays, however much
// it takes, and so does what others need.
func (s *Service) forgetOld() error {
	s.mu.Lock()
	list := s.chains()
	slices.SortFunc(list, func(a, b *chain) int { return b.ended.Compare(a.ended) })
	taken := map[string]int64{}
	var old []string
	for _, c := range list {
		before, more := taken[c.owner]
		if !c.busy && (s.cfg.Now().Sub(c.ended) > s.cfg.KeepFor || more && before+c.bytes > s.cfg.MostKept) {
			old = append(old, c.ids...)
			continue
		}
		taken[c.owner] = before + c.bytes
	}
	for _, id := range old {
		delete(s.former, id)
		delete(s.owners, id)
	}
	s.mu.Unlock()
	var errs []error
	for _, id := range old {
		errs = append(errs, os.RemoveAll(s.dir(id)))
	}
	return errors.Join(errs...)
}

// needing gives a run that goes on from another, or that reads it while it is worked
// on. The lock is held.
func (s *Service) needing(id string) string {
	for _, p := range s.former {
		if p.follows == id {
			return p.id
		}
	}
	for other, l := range s.live {
		if slices.Contains(l.needs, id) {
			return other
		}
	}
	return ""
}

// folderSize is how many bytes the files in a folder have, about: what goes
// meanwhile does not count.
func folderSize(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}
