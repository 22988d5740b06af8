package netstack

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkNew says what the stack of a sandbox costs that is silent: run it with
// -benchtime 200x.
func BenchmarkNew(b *testing.B) {
	var all []*Stack
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	for b.Loop() {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			b.Fatal(err)
		}
		defer unix.Close(fds[1])
		s, err := New(os.NewFile(uintptr(fds[0]), "ours"), nil)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, s)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc+after.StackInuse-before.HeapAlloc-before.StackInuse)/float64(len(all))/1024, "KB/stack")
	b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/float64(len(all)), "goroutines/stack")
	for _, s := range all {
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
