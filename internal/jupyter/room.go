package jupyter

import (
	"context"
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
)

// Server connects front ends with contexts.
type Server struct {
	kernels Kernels
	log     *slog.Logger
	life    context.Context
	end     context.CancelFunc

	mu    sync.Mutex
	rooms map[string]*room
}

// NewServer makes a Server. Close it.
func NewServer(kernels Kernels, log *slog.Logger) *Server {
	life, end := context.WithCancel(context.Background())
	return &Server{kernels: kernels, log: log, life: life, end: end, rooms: map[string]*room{}}
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
	request *Message
	count   int
}

// enter finds the front end of that session in its room, or makes it, for a
// connection that cut ends. Of two connections of one session the newer stays.
func (s *Server) enter(owner, sid, cid, session string, cut context.CancelFunc) (c *client, arrival int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := sid + "/" + cid
	r := s.rooms[name]
	if r == nil {
		r = &room{server: s, owner: owner, sid: sid, cid: cid, session: newID(), clients: map[string]*client{}, foreign: map[string]foreign{}}
		r.untap = s.kernels.Tap(sid, cid, r.overhear)
		s.rooms[name] = r
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c = r.clients[session]
	if c == nil {
		ctx, leave := context.WithCancel(s.life)
		c = &client{room: r, session: session, requests: make(chan *Message, maxQueue), more: make(chan struct{}, 1), ctx: ctx, leave: leave}
		r.clients[session] = c
		go c.work()
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
	return c, c.arrivals
}

// left notes that a front end's connection has ended. It may come back for what
// it missed, unless another connection of its session is there already.
func (r *room) left(c *client, arrival int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.arrivals != arrival {
		return
	}
	c.here = false
	c.away = time.AfterFunc(keepAway, func() { r.drop(c, arrival) })
}

// drop forgets a front end, and a room that is empty.
func (r *room) drop(c *client, arrival int) {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.arrivals != arrival || r.clients[c.session] != c {
		return
	}
	c.leave()
	delete(r.clients, c.session)
	if len(r.clients) == 0 {
		r.untap()
		delete(r.server.rooms, r.sid+"/"+r.cid)
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
	if !known && t.Event.Type == api.EventStarted {
		cell = foreign{answer(nil, shell, "execute_request", r.session, none), t.Event.ExecutionCount}
		known = true
		r.foreign[t.ExecutionID] = cell
	}
	if t.Event.Type == api.EventEnd {
		delete(r.foreign, t.ExecutionID)
	}
	r.mu.Unlock()
	if !known {
		return // it began before anybody listened
	}
	parent := cell.request
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
