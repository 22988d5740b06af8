//go:build ignore

package pgalloc

import (
	"math"
	"sync/atomic"

	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/syncevent"
)

// Pages of a snapshot are loaded either in the order in which they lie in it,
// those that somebody waits for first, or on demand: then only those that
// somebody waits for.
var (
	onDemand atomic.Bool
	loading  atomic.Pointer[AsyncPagesFileLoad] // the last that began
)

// OnDemand reports whether pages are loaded on demand.
func OnDemand() bool { return onDemand.Load() }

// SetOnDemand says how the pages of snapshots are loaded from now on.
func SetOnDemand(on bool) { onDemand.Store(on) }

// LoadAll loads what was not asked for yet, and waits for it.
func LoadAll() {
	onDemand.Store(false)
	if l := loading.Load(); l != nil {
		l.lfStatus.Notify(aplLFPending | aplLFDone)
		<-l.ended
	}
}

// idle says, when there is nothing more to read, whether pages are left that
// somebody may ask for, or reads. It is for the goroutine that reads.
func (l *AsyncPagesFileLoad) idle() bool {
	l.amflsMu.Lock()
	defer l.amflsMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	left := false
	for m := l.amfls.Front(); m != nil; m = m.Next() {
		left = left || !m.unloaded.IsEmpty()
	}
	if !left {
		return false
	}
	l.waits = true
	l.lfStatus.Ack(aplLFDone)
	return true
}

// readNow reads what is missing in fr and nobody reads yet, without a detour by
// other goroutines, which takes longer than to read a few pages. What cannot be
// read is left to them, and so are the consequences.
func (m *asyncMemoryFileLoad) readNow(fr memmap.FileRange) {
	from, ok := m.pf.ar.(*stateio.FDReader)
	if !ok {
		return
	}
	type piece struct {
		fr  memmap.FileRange
		off uint64
	}
	var pieces []piece
	m.pf.mu.Lock()
	m.unloaded.MutateRange(fr, func(seg aplUnloadedIterator) bool {
		if ul := seg.ValuePtr(); !ul.started {
			ul.started = true
			pieces = append(pieces, piece{seg.Range(), ul.off})
		}
		return true
	})
	m.pf.mu.Unlock()
	for _, p := range pieces {
		off, failed := p.off, false
		m.f.forEachMappingSlice(p.fr, func(bs []byte) {
			failed = failed || from.ReadNow(bs, off) != nil
			off += uint64(len(bs))
		})
		m.pf.mu.Lock()
		for seg := m.unloaded.FindSegment(p.fr.Start); seg.Ok() && seg.Start() < p.fr.End; {
			ul := seg.ValuePtr()
			if failed {
				ul.started = false
				m.pf.priority.PushBack(aplFileRange{m, seg.Range()}) // for those that wait already
				seg = seg.NextSegment()
				continue
			}
			for _, w := range ul.waiters {
				if w.pending -= seg.Range().Length(); w.pending == 0 {
					m.pf.numWaiters--
					w.wakeup.Notify(1)
				}
			}
			seg = m.unloaded.Remove(seg).NextSegment()
		}
		events := syncevent.Set(0)
		if m.lfDone && m.unloaded.IsEmpty() {
			m.minUnloaded.Store(math.MaxUint64)
			events = aplLFDone
		}
		m.pf.mu.Unlock()
		if failed {
			events |= aplLFPending
		}
		if events != 0 {
			m.pf.lfStatus.Notify(events)
		}
	}
}

// Loaded reports whether all pages in fr are in memory.
func (f *MemoryFile) Loaded(fr memmap.FileRange) bool {
	l := f.asyncPageLoad.Load()
	if l == nil || fr.End <= l.minUnloaded.Load() {
		return true
	}
	l.pf.mu.Lock()
	defer l.pf.mu.Unlock()
	return l.unloaded.IsEmptyRange(fr)
}
