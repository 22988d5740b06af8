package sandbox

import (
	"context"
	"maps"
	"time"
)

// Metrics is told what is worth counting. Its methods do not wait.
type Metrics interface {
	// Created says how a sandbox came to be, see BootMode, and how long its
	// creator waited.
	Created(path string, took time.Duration)
	// CreateFailed says with which code.
	CreateFailed(code string)
	// Ended says why a user's sandbox ended.
	Ended(reason string)
	// PoolFilled says that a sandbox of a kind ("restored", "prepared") was
	// "added" to the pool of a template, or that this "failed".
	PoolFilled(template, kind, result string)
	// PoolYielded says that the pools were left as they are for a user's sake.
	PoolYielded()
	// PoolMissed says that a create which the pool could have served found none.
	PoolMissed(template string)
	LinkRestored()
	LinkLost()
	LinkRefused()
}

// NoMetrics counts nothing. Whoever counts only some things embeds it.
type NoMetrics struct{}

func (NoMetrics) Created(string, time.Duration)     {}
func (NoMetrics) CreateFailed(string)               {}
func (NoMetrics) Ended(string)                      {}
func (NoMetrics) PoolFilled(string, string, string) {}
func (NoMetrics) PoolMissed(string)                 {}
func (NoMetrics) PoolYielded()                      {}
func (NoMetrics) LinkRestored()                     {}
func (NoMetrics) LinkLost()                         {}
func (NoMetrics) LinkRefused()                      {}

// Overview is what there is on this host now.
type Overview struct {
	States      map[string]int      // sandboxes by state, those in pools as "pooled" and "prepared"
	Pools       map[string]PoolSize // by template
	Wanted      map[string]PoolSize // as configured
	MemoryBytes int64               // that all of them use of the host
	Waiting     int                 // creates that wait or work
}

// Overview counts. What cannot be read of a sandbox counts as nothing: it may
// be ending.
func (m *Manager) Overview(ctx context.Context) Overview {
	o := Overview{States: map[string]int{}, Pools: m.PoolSizes(), Wanted: maps.Clone(m.cfg.Pool), Waiting: m.queue.waiting()}
	for _, b := range m.all() {
		o.States[string(b.get().State)]++
		if inst := b.instance(); inst != nil {
			if s, err := inst.Stats(ctx); err == nil {
				o.MemoryBytes += s.MemoryBytes
			}
		}
	}
	return o
}
