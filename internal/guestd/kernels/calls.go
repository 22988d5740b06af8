package kernels

// Interpreters call functions outside of the sandbox through the agent, which
// knows them by their sessions.

// running gives the context whose interpreter leads a session, and the cell that
// runs in it.
func (m *Manager) running(session int) (*Context, *Execution) {
	m.mu.Lock()
	contexts := m.all()
	m.mu.Unlock()
	for _, c := range contexts {
		c.mu.Lock()
		mine, ex := c.k != nil && c.k.pid == session, c.running
		c.mu.Unlock()
		if mine {
			return c, ex
		}
	}
	return nil, nil
}

// Caller says which context a session belongs to and which cell runs in it, ""
// when none does.
func (m *Manager) Caller(session int) (cid, eid string) {
	c, ex := m.running(session)
	if c == nil {
		return "", ""
	}
	if ex != nil {
		eid = ex.ID
	}
	return c.info.ID, eid
}

// Hold keeps the deadline of the cell that runs in a session from coming nearer
// until free is called.
func (m *Manager) Hold(session int) (free func()) {
	_, ex := m.running(session)
	if ex == nil {
		return func() {}
	}
	ex.mu.Lock()
	watch := ex.watch
	ex.mu.Unlock()
	if watch == nil {
		return func() {}
	}
	return watch.Hold()
}

func (m *Manager) interrupted(k *interp) {
	if m.cfg.Interrupted != nil {
		m.cfg.Interrupted(k.pid)
	}
}
