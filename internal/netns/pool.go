package netns

import (
	"log/slog"
	"sync"
	"time"
)

// fillAfter is how long nobody must have taken one before the pool is filled:
// who has just got a sandbox is about to use it, on the same cores.
const fillAfter = 200 * time.Millisecond

// Pool keeps namespaces ready. It makes none until the first is taken.
type Pool struct {
	size int
	log  *slog.Logger

	mu      sync.Mutex
	ready   []*Namespace
	timer   *time.Timer
	filling bool
	closed  bool
	making  sync.WaitGroup
}

// NewPool makes a pool of a size.
func NewPool(size int, log *slog.Logger) *Pool { return &Pool{size: size, log: log} }

// Take gives one that is ready, or makes one.
func (p *Pool) Take() (*Namespace, error) {
	p.mu.Lock()
	var n *Namespace
	if last := len(p.ready) - 1; last >= 0 {
		n, p.ready = p.ready[last], p.ready[:last]
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	if !p.closed {
		p.timer = time.AfterFunc(fillAfter, p.fill)
	}
	p.mu.Unlock()
	if n != nil {
		return n, nil
	}
	return New()
}

// fill makes what is missing, one by one.
func (p *Pool) fill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.filling {
		return
	}
	p.filling = true
	p.making.Add(1)
	defer p.making.Done()
	for !p.closed && len(p.ready) < p.size {
		p.mu.Unlock()
		n, err := New()
		p.mu.Lock()
		if err != nil {
			p.log.Error("no network namespace can be made ready; creates will say why", "error", err)
			break
		}
		p.ready = append(p.ready, n) // Close waits, and closes it
	}
	p.filling = false
}

// Close lets go of those that are ready.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	p.making.Wait()
	p.mu.Lock()
	ready := p.ready
	p.ready = nil
	p.mu.Unlock()
	var err error
	for _, n := range ready {
		if e := n.Close(); e != nil {
			err = e
		}
	}
	return err
}
