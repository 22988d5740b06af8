package sandbox

import (
	"context"
	"fmt"
	"strings"

	"github.com/pandastack/pandastack/internal/store"
)

// littleMemory is what must be left of a sandbox's memory, or a fifth of it,
// else it is worth a hint: the agent inside begins to end things when some
// 120 MB are left.
const littleMemory = 160 << 20

// signs are how programs say that a limit refused them something.
var signs = []struct {
	words string
	hint  func(row store.Sandbox) string
}{
	{"No space left on device", diskHint},
	{"[Errno 28]", diskHint},
	{"MemoryError", memoryHint},
	{"Cannot allocate memory", memoryHint},
	{"fork: retry: Resource temporarily unavailable", pidsHint},
	{"BlockingIOError: [Errno 11]", pidsHint},
	{"Cannot fork", pidsHint},
	{"can't start new thread", threadsHint},
}

func diskHint(row store.Sandbox) string {
	return fmt.Sprintf("The disk of the sandbox is full: its limit is %d MB (disk_mb).", row.DiskMB)
}

func memoryHint(row store.Sandbox) string {
	return fmt.Sprintf("The sandbox is short of memory: its limit is %d MB (memory_mb).", row.MemoryMB)
}

func pidsHint(row store.Sandbox) string {
	return fmt.Sprintf("The sandbox may have %d processes and threads (pids), and no more could be started.", row.PIDs)
}

// threadsHint names both limits: a cell's addresses are limited, too, and each thread takes some for its stack.
func threadsHint(row store.Sandbox) string {
	return fmt.Sprintf("The sandbox may have %d processes and threads (pids), and the stacks of threads count as memory, which may be %d MB (memory_mb): "+
		"threading.stack_size(256 << 10) before they are started makes them smaller.", row.PIDs, row.MemoryMB)
}

// Hint says in a sentence which limit of a sandbox explains how a cell or
// command in it ended, "" when none seems to. The end is one of api.End or of
// the reasons of api.Exit, the words are what it said last.
func (m *Manager) Hint(ctx context.Context, owner, id, end, words string) string {
	row, err := m.row(ctx, owner, id)
	if err != nil {
		return ""
	}
	switch end {
	case "oom":
		return memoryHint(row)
	case "timeout":
		return m.strain(ctx, row)
	case "kernel_died":
		if row.EndReason == reasonOOM {
			return memoryHint(row)
		}
	}
	for _, s := range signs {
		if strings.Contains(words, s.words) {
			return s.hint(row)
		}
	}
	return ""
}

// strain says what of a sandbox's limits may be why something in it takes long.
func (m *Manager) strain(ctx context.Context, row store.Sandbox) string {
	b := m.box(row.ID)
	if b == nil {
		return ""
	}
	u, _, err := m.look(ctx, b)
	if err != nil {
		m.log.Debug("the use of a sandbox cannot be seen", "sandbox", row.ID, "error", err)
		return ""
	}
	limit := int64(row.MemoryMB) << 20
	b.seen.mu.Lock()
	held, used := b.seen.held, max(u.MemoryBytes, b.seen.inside) // the guest counts pages that a restore has not brought yet
	b.seen.mu.Unlock()
	switch {
	case limit-used < max(littleMemory, limit/5):
		return fmt.Sprintf("The sandbox uses %d of its %d MB of memory: more memory_mb may help.", used>>20, row.MemoryMB)
	case held:
		return fmt.Sprintf("The sandbox is held back by its limit of %g cores: more cpu may help.", row.CPU)
	}
	return ""
}
