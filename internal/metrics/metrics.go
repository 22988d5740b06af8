// Package metrics counts what the daemon does, in the words of Prometheus. The
// domain and the API tell it through small interfaces of their own; package
// daemon puts them together and package httpapi serves the page.
//
// Every label has few values that are known beforehand: never an id, a path or
// anything else that a user chooses.
package metrics

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/sandbox"
)

// Sources are asked at every look at the page. All must be set.
type Sources struct {
	Overview    func(ctx context.Context) sandbox.Overview
	Templates   func(ctx context.Context) ([]api.TemplateInfo, error)
	StoreErrors func() int64
	EventsLost  func() int64
	Agents      func() (runs int, bytes int64)
	Ready       func(ctx context.Context) bool
	Version     api.Version
	Log         *slog.Logger
}

const scrapeTime = 10 * time.Second // for all sources together

// Metrics is the page. Its methods may be called by many at once.
type Metrics struct {
	registry *prometheus.Registry

	creates     *prometheus.HistogramVec
	createFails *prometheus.CounterVec
	ends        *prometheus.CounterVec
	fills       *prometheus.CounterVec
	misses      *prometheus.CounterVec
	yields      prometheus.Counter
	redials     prometheus.Counter
	losses      prometheus.Counter
	refusals    prometheus.Counter
	cells       *prometheus.HistogramVec
	requests    *prometheus.CounterVec
	flows       *prometheus.CounterVec
	flowBytes   *prometheus.CounterVec
	requestTime *prometheus.HistogramVec
}

var _ sandbox.Metrics = (*Metrics)(nil)

// Buckets in seconds: a create from the pool takes 5 to 20 ms, a cold one up to
// some seconds; cells and requests take from under a millisecond to minutes.
var (
	createBuckets  = []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60}
	cellBuckets    = []float64{0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 30, 60, 300, 1800, 3600}
	requestBuckets = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300}
)

// New makes the page.
func New() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
		m.registry.MustRegister(h)
		return h
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.creates = histogram("pandastack_sandbox_create_seconds", "Creates that succeeded, by how the sandbox came to be: pool, prepared or cold.", createBuckets, "path")
	m.createFails = counter("pandastack_sandbox_create_failures_total", "Creates that failed, by error code.", "code")
	m.ends = counter("pandastack_sandbox_ends_total", "Sandboxes of users that ended, by reason.", "reason")
	m.fills = counter("pandastack_pool_fills_total", "Sandboxes that were made for the pools: added or failed.", "template", "kind", "result")
	m.misses = counter("pandastack_pool_misses_total", "Creates that the pool could have served and found empty.", "template")
	m.yields = counter("pandastack_pool_yields_total", "Times the pools were not filled because a user was waiting.").WithLabelValues()
	m.redials = counter("pandastack_link_redials_total", "Links to guests that came back.").WithLabelValues()
	m.losses = counter("pandastack_link_losses_total", "Links to guests that broke.").WithLabelValues()
	m.refusals = counter("pandastack_link_refusals_total", "Connections from sandboxes that were not let in.").WithLabelValues()
	m.cells = histogram("pandastack_cell_seconds", "Cells that ended, by kind of end and by how long they ran.", cellBuckets, "end")
	m.requests = counter("pandastack_api_requests_total", "Requests, by route and status; cut is a connection that broke before one.", "route", "code")
	m.requestTime = histogram("pandastack_api_request_seconds", "Requests that are not streams, by route and by how long the answer took.", requestBuckets, "route")
	m.flows = counter("pandastack_network_flows_total", "What sandboxes tried to reach, by verdict: allowed, refused or failed.", "verdict")
	m.flowBytes = counter("pandastack_network_bytes_total", "Bytes that went out of sandboxes and into them.", "direction")
	for _, v := range []api.NetworkVerdict{api.NetworkAllowed, api.NetworkRefused, api.NetworkFailed} {
		m.flows.WithLabelValues(string(v))
	}
	for _, direction := range []string{"out", "in"} {
		m.flowBytes.WithLabelValues(direction)
	}
	for _, path := range []string{"pool", "prepared", "cold"} {
		m.creates.WithLabelValues(path)
	}
	for _, end := range ends {
		m.cells.WithLabelValues(string(end))
	}
	return m
}

var ends = []api.End{api.EndOK, api.EndError, api.EndTimeout, api.EndInterrupted, api.EndOOM, api.EndKernelDied}

// Handler serves the page, with what the sources say at that moment.
func (m *Metrics) Handler(s Sources) (http.Handler, error) {
	if err := m.registry.Register(now{s}); err != nil {
		return nil, err
	}
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: 2 * scrapeTime,
		ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelError),
	}), nil
}

// Created implements sandbox.Metrics.
func (m *Metrics) Created(path string, took time.Duration) {
	m.creates.WithLabelValues(path).Observe(took.Seconds())
}

// CreateFailed implements sandbox.Metrics.
func (m *Metrics) CreateFailed(code string) { m.createFails.WithLabelValues(code).Inc() }

// Ended implements sandbox.Metrics.
func (m *Metrics) Ended(reason string) { m.ends.WithLabelValues(reason).Inc() }

// PoolFilled implements sandbox.Metrics.
func (m *Metrics) PoolFilled(template, kind, result string) {
	m.fills.WithLabelValues(template, kind, result).Inc()
}

// PoolMissed implements sandbox.Metrics.
func (m *Metrics) PoolMissed(template string) { m.misses.WithLabelValues(template).Inc() }

// PoolYielded implements sandbox.Metrics.
func (m *Metrics) PoolYielded() { m.yields.Inc() }

// LinkRestored implements sandbox.Metrics.
func (m *Metrics) LinkRestored() { m.redials.Inc() }

// LinkLost implements sandbox.Metrics.
func (m *Metrics) LinkLost() { m.losses.Inc() }

// LinkRefused implements sandbox.Metrics.
func (m *Metrics) LinkRefused() { m.refusals.Inc() }

// CellEnded counts a cell.
func (m *Metrics) CellEnded(end api.End, took time.Duration) {
	if slices.Contains(ends, end) {
		m.cells.WithLabelValues(string(end)).Observe(took.Seconds())
	}
}

// Request counts a request of the API.
func (m *Metrics) Request(route string, status int, took time.Duration, stream bool) {
	if route == "" {
		route = "none"
	}
	code := "cut"
	if status > 0 {
		code = strconv.Itoa(status)
	}
	m.requests.WithLabelValues(route, code).Inc()
	if !stream {
		m.requestTime.WithLabelValues(route).Observe(took.Seconds())
	}
}

// Flow counts what a sandbox tried to reach.
func (m *Metrics) Flow(e api.NetworkEvent) {
	m.flows.WithLabelValues(string(e.Verdict)).Add(float64(1 + e.Suppressed))
	m.flowBytes.WithLabelValues("out").Add(float64(e.BytesOut))
	m.flowBytes.WithLabelValues("in").Add(float64(e.BytesIn))
}

// now collects what is asked for at each look.
type now struct{ s Sources }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	infoDesc        = desc("pandastack_info", "Always 1; the version and the driver are in the labels.", "version", "driver")
	readyDesc       = desc("pandastack_ready", "1 when GET /readyz answers 200, else 0.")
	sandboxesDesc   = desc("pandastack_sandboxes", "Sandboxes on this host, by state; pooled and prepared ones are nobody's yet.", "state")
	memoryDesc      = desc("pandastack_sandboxes_memory_bytes", "Memory of the host that all sandboxes use, those in pools included.")
	waitingDesc     = desc("pandastack_creates_in_progress", "Creates that wait or work now.")
	poolDesc        = desc("pandastack_pool_sandboxes", "Sandboxes that wait in the pools.", "template", "kind")
	wantedDesc      = desc("pandastack_pool_wanted", "Sandboxes that are to wait in the pools.", "template", "kind")
	storeErrorsDesc = desc("pandastack_store_errors_total", "Errors of the database.")
	eventsLostDesc  = desc("pandastack_events_lost_total", "Events that could not be kept.")
	agentsDesc      = desc("pandastack_agents", "Runs of agents that go on.")
	agentBytesDesc  = desc("pandastack_agents_memory_bytes", "What running agents hold of the server's memory, about.")
	builtDesc       = desc("pandastack_template_built_timestamp_seconds", "When each template was built last.", "template")
	sizeDesc        = desc("pandastack_template_bytes", "Size of each template on disk.", "template")
)

// Describe implements prometheus.Collector.
func (now) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		infoDesc, readyDesc, sandboxesDesc, memoryDesc, waitingDesc, poolDesc, wantedDesc, storeErrorsDesc, eventsLostDesc, agentsDesc, agentBytesDesc, builtDesc, sizeDesc,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (n now) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(infoDesc, 1, n.s.Version.Version, n.s.Version.Driver)
	ready := 0.0
	if n.s.Ready(ctx) {
		ready = 1
	}
	gauge(readyDesc, ready)
	o := n.s.Overview(ctx)
	for _, state := range states {
		gauge(sandboxesDesc, float64(o.States[state]), state)
	}
	gauge(memoryDesc, float64(o.MemoryBytes))
	gauge(waitingDesc, float64(o.Waiting))
	for name, want := range o.Wanted {
		for kind, count := range map[string][2]int{"restored": {o.Pools[name].Restored, want.Restored}, "prepared": {o.Pools[name].Prepared, want.Prepared}} {
			gauge(poolDesc, float64(count[0]), name, kind)
			gauge(wantedDesc, float64(count[1]), name, kind)
		}
	}
	runs, held := n.s.Agents()
	gauge(agentsDesc, float64(runs))
	gauge(agentBytesDesc, float64(held))
	out <- prometheus.MustNewConstMetric(storeErrorsDesc, prometheus.CounterValue, float64(n.s.StoreErrors()))
	out <- prometheus.MustNewConstMetric(eventsLostDesc, prometheus.CounterValue, float64(n.s.EventsLost()))
	list, err := n.s.Templates(ctx)
	if err != nil {
		out <- prometheus.NewInvalidMetric(builtDesc, err)
		return
	}
	for _, t := range list {
		gauge(builtDesc, float64(t.BuiltAt.Unix()), t.Name)
		gauge(sizeDesc, float64(t.SizeBytes), t.Name)
	}
}

// states are those that a sandbox on this host can be in.
var states = []string{"prepared", "pooled", "creating", "running", "paused", "hibernated", "stopping"}
