//go:build ignore

package kernel

import "gvisor.dev/gvisor/pkg/atomicbitops"

var tasksRefused atomicbitops.Uint64

// TasksRefused is how often RLIMIT_NPROC has refused a process or thread.
func TasksRefused() uint64 { return tasksRefused.Load() }
