package gvisor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pandastack/pandastack/internal/driver"
	"github.com/pandastack/pandastack/internal/driver/drivertest"
	"github.com/pandastack/pandastack/internal/driver/gvisor"
)

// BenchmarkStart measures the parts of a sandbox's start and end, for images of
// several sizes: run it with -benchtime 20x.
func BenchmarkStart(b *testing.B) {
	w := theWorld(b)
	for _, mb := range []int{0, 80} {
		b.Run(fmt.Sprintf("image=%dMB", mb), func(b *testing.B) {
			ctx := context.Background()
			dir := drivertest.Dir(b)
			d, err := gvisor.New(gvisor.Config{Runsc: w.runsc, Dir: filepath.Join(dir, "run")})
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

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
