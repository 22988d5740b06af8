package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// formerRun is a run that has ended, as far as keeping it goes.
type formerRun struct {
	id, owner string
	ended     time.Time
	bytes     int64 // on disk
}

// keep notes a run that has ended, and removes those that are kept no longer.
func (s *Service) keep(id, owner string, ended time.Time) {
	p := formerRun{id, owner, ended, folderSize(s.dir(id))}
	s.mu.Lock()
	s.former[id] = p
	s.mu.Unlock()
	if err := s.forgetOld(); err != nil {
		s.cfg.Logger.Error("old runs of agents are not removed", "error", err)
	}
}

// forgetOld removes the runs that ended longer ago than KeepFor and, of a workspace
// whose runs take more than MostKept, the oldest. The newest stays, however much
// it takes.
func (s *Service) forgetOld() error {
	s.mu.Lock()
	list := make([]formerRun, 0, len(s.former))
	for _, p := range s.former {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b formerRun) int { return b.ended.Compare(a.ended) })
	taken := map[string]int64{}
	var old []string
	for _, p := range list {
		before, more := taken[p.owner]
		if s.cfg.Now().Sub(p.ended) > s.cfg.KeepFor || more && before+p.bytes > s.cfg.MostKept {
			old = append(old, p.id)
			delete(s.former, p.id)
			delete(s.owners, p.id)
			continue
		}
		taken[p.owner] = before + p.bytes
	}
	s.mu.Unlock()
	var errs []error
	for _, id := range old {
		errs = append(errs, os.RemoveAll(s.dir(id)))
	}
	return errors.Join(errs...)
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
