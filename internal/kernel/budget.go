package kernel

import (
	"context"
	"sync"
)

// budget bounds what all answers that are being put together hold at once, in
// bytes. Half of it is the most that one owner's can have, so that nobody's
// outputs leave out those of everybody else.
type budget struct {
	all int

	mu     sync.Mutex
	held   int
	owners map[string]int
}

func newBudget(all int) *budget { return &budget{all: all, owners: map[string]int{}} }

// share is what one answer holds of a budget.
type share struct {
	b     *budget
	owner string
	held  int // under b.mu
	over  bool
}

// share gives a share that is given back when the context ends, which for a
// request is when its answer was written. Without an end it is the caller who
// gives it back.
func (b *budget) share(ctx context.Context, owner string) (s *share, done func()) {
	s = &share{b: b, owner: owner}
	if ctx.Done() == nil {
		return s, s.giveBack
	}
	context.AfterFunc(ctx, s.giveBack)
	return s, func() {}
}

// take adds to the share, unless the budget has no room for it.
func (s *share) take(n int) bool {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if s.over || s.b.held+n > s.b.all || s.b.owners[s.owner]+n > s.b.all/2 {
		return n == 0
	}
	s.held += n
	s.b.held += n
	s.b.owners[s.owner] += n
	return true
}

func (s *share) giveBack() {
	s.b.mu.Lock()
	defer s.b.mu.Unlock()
	if s.over {
		return
	}
	s.over = true
	s.b.held -= s.held
	if s.b.owners[s.owner] -= s.held; s.b.owners[s.owner] == 0 {
		delete(s.b.owners, s.owner)
	}
}

// total is what is held now.
func (b *budget) total() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}
