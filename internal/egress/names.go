package egress

// Names is how many names have addresses in the sandbox. It only rises.
func (s *Sandbox) Names() int {
	s.addresses.mu.RLock()
	defer s.addresses.mu.RUnlock()
	return len(s.addresses.names)
}
