package gvisor_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/drivertest"
	"github.com/pandastack/pandastack/internal/driver/gvisor"
	"github.com/pandastack/pandastack/internal/egress"
)

// BenchmarkStart measures the parts of a sandbox's start and end, for images of
// several sizes: run it with -benchtime 20x.
func BenchmarkStart(b *testing.B) {
	w := theWorld(b)
	for _, c := range []struct {
		mb      int
		network bool
	}{{0, false}, {0, true}, {80, false}, {80, true}} {
		mb := c.mb
		b.Run(fmt.Sprintf("image=%dMB/network=%v", mb, c.network), func(b *testing.B) {
			ctx := context.Background()
			dir := drivertest.Dir(b)
			d, err := gvisor.New(gvisor.Config{Runsc: w.runsc, Dir: filepath.Join(dir, "run"), Network: c.network})
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			n := 0
			start := func(snapshot string, took func(prepare, restore, link time.Duration)) (driver.Instance, *drivertest.Guest) {
				n++
				s := driver.Spec{
					ID: fmt.Sprintf("b%06d", n), Hostname: "b", Rootfs: w.rootfs, Programs: w.programs, Snapshot: snapshot,
					Limits: driver.Limits{CPU: 2, MemoryMB: 512, PIDs: 200},
				}
				s.LinkDir = filepath.Join(dir, s.ID)
				link := drivertest.Listen(b, s.LinkDir)
				t0 := time.Now()
				p, err := d.Prepare(ctx, s)
				if err != nil {
					b.Fatal(err)
				}
				t1 := time.Now()
				inst, err := p.Restore(ctx, s.Limits)
				if err != nil {
					b.Fatal(err)
				}
				t2 := time.Now()
				guest := link.Accept(b)
				guest.Do(b, drivertest.Call{Do: "echo"})
				took(t1.Sub(t0), t2.Sub(t1), time.Since(t2))
				return inst, guest
			}
			stop := func(inst driver.Instance) time.Duration {
				t0 := time.Now()
				if err := inst.Stop(ctx); err != nil {
					b.Fatal(err)
				}
				return time.Since(t0)
			}

			inst, guest := start(w.snapshot, func(_, _, _ time.Duration) {})
			guest.Do(b, drivertest.Call{Do: "alloc", N: mb})
			snapshot := filepath.Join(dir, "snapshot")
			t0 := time.Now()
			if err := d.Snapshot(ctx, inst, snapshot, driver.Save{}); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(ms(time.Since(t0)), "snapshot-ms")
			stop(inst)
			image, err := os.Stat(filepath.Join(snapshot, "pages.img"))
			if err != nil {
				b.Fatal(err)
			}

			var prepare, restore, link, end time.Duration
			var memory int64
			var cpu float64
			for b.Loop() {
				inst, _ := start(snapshot, func(p, r, l time.Duration) { prepare += p; restore += r; link += l })
				s, err := inst.Stats(ctx)
				if err != nil {
					b.Fatal(err)
				}
				memory += s.MemoryBytes
				cpu += s.CPUSeconds
				end += stop(inst)
			}
			for name, d := range map[string]time.Duration{"prepare-ms": prepare, "restore-ms": restore, "link-ms": link, "stop-ms": end} {
				b.ReportMetric(ms(d)/float64(b.N), name)
			}
			b.ReportMetric(cpu*1000/float64(b.N), "cpu-ms")
			b.ReportMetric(float64(image.Size())/1e6, "image-MB")
			b.ReportMetric(float64(memory)/float64(b.N)/1e6, "used-MB")
		})
	}
}

// through dials what it admits on the host.
type through struct{ to string }

func (through) Resolve(context.Context, []byte, bool) []byte { return nil }
func (through) Refused(string, netip.AddrPort, string)       {}

func (g through) Admit(ctx context.Context, _ netip.AddrPort) (egress.Flow, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", g.to)
	return passing{c.(*net.TCPConn)}, err
}

type passing struct{ *net.TCPConn }

func (p passing) Serve(_ context.Context, inside net.Conn) {
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.CopyBuffer(struct{ io.Writer }{inside}, struct{ io.Reader }{p.TCPConn}, make([]byte, 256<<10))
		_ = inside.(interface{ CloseWrite() error }).CloseWrite()
	})
	both.Go(func() {
		_, _ = io.CopyBuffer(struct{ io.Writer }{p.TCPConn}, struct{ io.Reader }{inside}, make([]byte, 256<<10))
		_ = p.CloseWrite()
	})
	both.Wait()
	_ = p.Close()
}

// BenchmarkNetwork moves data between a sandbox and a server on the host, beside
// the same without a sandbox: run it with -benchtime 5x.
func BenchmarkNetwork(b *testing.B) {
	const mb = 200
	serve := func(do func(net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { do(c); _ = c.Close() }()
			}
		}()
		return l.Addr().String()
	}
	block := make([]byte, 1<<20)
	servers := map[string]string{
		"pull": serve(func(c net.Conn) {
			for range mb {
				_, _ = c.Write(block)
			}
		}),
		"push":     serve(func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }),
		"connects": serve(func(c net.Conn) { _, _ = c.Write([]byte{1}) }),
	}
	w := theWorld(b)
	dir := drivertest.Dir(b)
	d, err := gvisor.New(gvisor.Config{Runsc: w.runsc, Dir: filepath.Join(dir, "run"), Network: true})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	ctx := context.Background()
	s := driver.Spec{ID: "bench", Hostname: "b", Rootfs: w.rootfs, Programs: w.programs, Snapshot: w.snapshot, LinkDir: filepath.Join(dir, "link")}
	link := drivertest.Listen(b, s.LinkDir)
	p, err := d.Prepare(ctx, s)
	if err != nil {
		b.Fatal(err)
	}
	inst, err := p.Restore(ctx, s.Limits)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = inst.Stop(ctx) }()
	guest := link.Accept(b)
	took := func(what, to string, n int) time.Duration {
		ns, err := strconv.ParseInt(guest.Do(b, drivertest.Call{Do: what, Text: to, N: n}), 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		return time.Duration(ns)
	}
	outside := func(what string, n int) time.Duration {
		began := time.Now()
		if what == "connects" {
			for range n {
				c, err := net.Dial("tcp", servers[what])
				if err != nil {
					b.Fatal(err)
				}
				_, _ = c.Read(block[:1])
				_ = c.Close()
			}
			return time.Since(began)
		}
		c, err := net.Dial("tcp", servers[what])
		if err != nil {
			b.Fatal(err)
		}
		for range n {
			if what == "push" {
				_, _ = c.Write(block)
			} else {
				_, _ = io.ReadFull(c, block)
			}
		}
		_ = c.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		return time.Since(began)
	}
	for _, what := range []string{"pull", "push"} {
		b.Run(what, func(b *testing.B) {
			if err := d.Connect("bench", through{servers[what]}); err != nil {
				b.Fatal(err)
			}
			var in, out time.Duration
			for b.Loop() {
				in += took(what, place, mb)
				out += outside(what, mb)
			}
			b.ReportMetric(mb*float64(b.N)/in.Seconds(), "MB/s")
			b.ReportMetric(mb*float64(b.N)/out.Seconds(), "outside-MB/s")
			b.ReportMetric(100*out.Seconds()/in.Seconds(), "%")
		})
	}
	b.Run("connect", func(b *testing.B) {
		if err := d.Connect("bench", through{servers["connects"]}); err != nil {
			b.Fatal(err)
		}
		const n = 200
		var in, out time.Duration
		for b.Loop() {
			in += took("connects", place, n)
			out += outside("connects", n)
		}
		b.ReportMetric(ms(in)/float64(b.N)/n, "ms")
		b.ReportMetric(ms(out)/float64(b.N)/n, "outside-ms")
	})
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
