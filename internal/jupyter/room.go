package jupyter

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/guestapi"
	"github.com/pandastack/pandastack/internal/kernel"
)

// Kernels runs what front ends ask for. It is kernel.Service.
type Kernels interface {
	Notebook(ctx context.Context, owner, sid, cid string, run guestapi.RunRequest) iter.Seq2[api.Event, error]
	Input(ctx context.Context, owner, sid, cid, eid, value string) error
	Interrupt(ctx context.Context, owner, sid, cid string) error
	Restart(ctx context.Context, owner, sid, cid string) (api.Context, error)
	Tap(sid, cid string, f func(kernel.Told)) (stop func())
}

var _ Kernels = (*kernel.Service)(nil)

const (
	keepPending = 32 << 20        // bytes that wait for a front end that is slow or away
	keepAway    = 5 * time.Minute // for one that is away to come back
	maxQueue    = 256             // requests of one front end that wait
	maxControl  = 32              // of those that do not wait for cells

	// Of one workspace:
	maxClients = 256       // front ends that are connected, or away
	maxWaiting = 256 << 20 // bytes that wait for front ends, or that they asked for
)

// Server connects front ends with contexts.
type Server struct {
	kernels Kernels
	log     *slog.Logger
	life    context.Context
	end     context.CancelFunc

	mu    sync.Mutex
	rooms map[string]*room
	held  map[string]*holding // by workspace
}

// holding is what is kept for the front ends of one workspace.
type holding struct {
	clients int // the Server's lock guards it

	mu    sync.Mutex
	bytes int
}

// take has room for so many bytes, or false.
func (h *holding) take(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bytes+n > maxWaiting {
		return false
	}
	h.bytes += n
	return true
}

func (h *holding) give(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bytes -= n
}

// NewServer makes a Server. Close it.
func NewServer(kernels Kernels, log *slog.Logger) *Server {
	life, end := context.WithCancel(context.Background())
	return &Server{kernels: kernels, log: log, life: life, end: end, rooms: map[string]*room{}, held: map[string]*holding{}}
}

// Close ends all connections. What runs in sandboxes goes on.
func (s *Server) Close() { s.end() }

// Connections is how many front ends are connected to a context.
func (s *Server) Connections(sid, cid string) int {
	s.mu.Lock()
	r := s.rooms[sid+"/"+cid]
	s.mu.Unlock()
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, c := range r.clients {
		if c.here {
			n++
		}
	}
	return n
}

// room is one context and the front ends at it. All of them hear what it
// publishes.
type room struct {
	server          *Server
	owner, sid, cid string
	held            *holding
	session         string // of the kernel
	version         string // of Python, once it is known
	untap           func()
	mu              sync.Mutex
	clients         map[string]*client // by session
	busy            int                // what is under way
	foreign         map[string]foreign // cells that others run, by execution
}

// foreign is a cell that somebody runs who is no front end: the request that it
// would have been, and its number.
type foreign struct {
	request   *Message
	count     int
	seen      int64 // the number of its last event
	followers int   // the same execution can be run, and so told of, more than once
}

// enter finds the front end of that session in its room, or makes it, for a
// connection that cut ends. Of two connections of one session the newer stays.
func (s *Server) enter(owner, sid, cid, session string, cut context.CancelFunc) (c *client, arrival int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.held[owner]
	if h == nil {
		h = &holding{}
		s.held[owner] = h
	}
	name := sid + "/" + cid
	r := s.rooms[name]
	if h.clients >= maxClients && (r == nil || !r.has(session)) && !s.forgetOne(owner) {
		return nil, 0, errCrowded
	}
	r = s.rooms[name] // which is another when that was its last
	if r == nil {
		r = &room{server: s, owner: owner, held: h, sid: sid, cid: cid, session: newID(), clients: map[string]*client{}, foreign: map[string]foreign{}}
		r.untap = s.kernels.Tap(sid, cid, r.overhear)
		s.rooms[name] = r
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c = r.clients[session]
	if c == nil {
		ctx, leave := context.WithCancel(s.life)
		c = &client{room: r, session: session, requests: make(chan *Message, maxQueue), more: make(chan struct{}, 1), ctx: ctx, leave: leave}
		c.control = make(chan *Message, maxControl)
		r.clients[session] = c
		h.clients++
		go c.work()
		go c.steer()
	}
	if c.cut != nil { // a connection that has been given up may not know it yet
		c.cut()
	}
	c.cut = cut
	c.arrivals++
	c.here = true
	if c.away != nil {
		c.away.Stop()
		c.away = nil
	}
	return c, c.arrivals, nil
}

var errCrowded = fmt.Errorf("this workspace has %d front ends that are connected or whose cells run, the most there may be", maxClients)

// forgetOne makes room for a front end: the one goes that has been away for
// longest, of those for which nothing is under way. The lock is held.
func (s *Server) forgetOne(owner string) bool {
	var found *client
	for _, r := range s.rooms {
		if r.owner != owner {
			continue
		}
		r.mu.Lock()
		for _, c := range r.clients {
			if !c.here && c.unanswered.Load() == 0 && (found == nil || c.since.Before(found.since)) {
				found = c
			}
		}
		r.mu.Unlock()
	}
	if found == nil {
		return false
	}
	found.away.Stop() // nobody comes back meanwhile: that takes this lock
	found.room.forget(found, found.arrivals)
	return true
}

func (r *room) has(session string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.clients[session] != nil
}

// left notes that a front end's connection has ended. It may come back for what
// it missed, unless another connection of its session is there already.
func (r *room) left(c *client, arrival int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.arrivals != arrival {
		return
	}
	c.here, c.since = false, time.Now()
	c.away = time.AfterFunc(keepAway, func() { r.drop(c, arrival) })
}

// drop forgets a front end, and a room that is empty.
func (r *room) drop(c *client, arrival int) {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	r.forget(c, arrival)
}

// forget does what drop does. The server's lock is held.
func (r *room) forget(c *client, arrival int) {
	s := r.server
	r.mu.Lock()
	gone := c.arrivals == arrival && r.clients[c.session] == c
	if gone {
		delete(r.clients, c.session)
	}
	empty := len(r.clients) == 0
	r.mu.Unlock()
	if !gone {
		return
	}
	c.end()
	if r.held.clients--; r.held.clients == 0 {
		delete(s.held, r.owner)
	}
	if empty {
		r.untap()
		delete(s.rooms, r.sid+"/"+r.cid)
	}
}

// publish tells all front ends something.
func (r *room) publish(parent *Message, kind string, content any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell(answer(parent, iopub, kind, r.session, content))
}

// tell gives a message to all front ends. The lock is held.
func (r *room) tell(m *Message) {
	for _, c := range r.clients {
		c.put(m)
	}
}

type state struct {
	State string `json:"execution_state"`
}

// begin and done say that something is under way, and that it has ended.
func (r *room) begin(parent *Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy++
	r.tell(answer(parent, iopub, "status", r.session, state{"busy"}))
}

func (r *room) done(parent *Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy--
	r.tell(answer(parent, iopub, "status", r.session, state{"idle"}))
}

// now is the state as far as it is known here.
func (r *room) now() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy > 0 {
		return "busy"
	}
	return "idle"
}

// overhear publishes what somebody else runs in the context: an agent's cell is
// seen like one of another front end.
func (r *room) overhear(t kernel.Told) {
	r.mu.Lock()
	cell, known := r.foreign[t.ExecutionID]
	started := t.Event.Type == api.EventStarted
	if !known && started {
		cell = foreign{request: answer(nil, shell, "execute_request", r.session, none), count: t.Event.ExecutionCount}
	}
	news := (known || started) && !t.Left && t.Event.Seq > cell.seen
	if news {
		cell.seen = t.Event.Seq
	}
	if started {
		cell.followers++
	}
	if t.Left {
		cell.followers--
	}
	switch {
	case t.Event.Type == api.EventEnd, t.Left && cell.followers == 0:
		delete(r.foreign, t.ExecutionID)
	case known || started:
		r.foreign[t.ExecutionID] = cell
	}
	r.mu.Unlock()
	parent := cell.request
	if known && t.Left && cell.followers == 0 {
		r.done(parent) // it may go on, but nobody here hears of it
		return
	}
	if !news {
		return // it began before anybody listened, or another follower told of it
	}
	switch t.Event.Type {
	case api.EventStarted:
		r.begin(parent)
		r.publish(parent, "execute_input", input{t.Code, t.Event.ExecutionCount})
	case api.EventEnd:
		r.show(parent, t.Event, cell.count)
		r.done(parent)
	default:
		r.show(parent, t.Event, cell.count)
	}
}
