package httpapi

// Patterns lists all routes.
func (s *Server) Patterns() []string { return s.patterns }
