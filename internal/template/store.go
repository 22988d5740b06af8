package template

import (
	"context"
)

// Store finds the templates in a data directory. Several processes may use the
// same one: a name is one small file that is replaced whole.
type Store struct {
	// InUse names the digests that must stay though no name leads to them any
	// more, because a sandbox was made from them. Nil keeps everything.
	InUse func(ctx context.Context) (map[string]bool, error)

	dir string
}

// NewStore opens the store in a data directory, which need not exist yet.
func NewStore(dataDir string) *Store { return &Store{dir: dataDir} }

// Get finds a template by name or alias. The error wraps fault.NotFound and
// names the nearest ones.
func (s *Store) Get(ctx context.Context, nameOrAlias string) (Template, error) {
	return Template{}, nil
}

// ByDigest finds a template that a sandbox was made from, also after its name
// has moved on.
func (s *Store) ByDigest(ctx context.Context, digest string) (Template, error) {
	return Template{}, nil
}

// List gives the current templates, by name.
func (s *Store) List(ctx context.Context) ([]Template, error) { return nil, nil }

// Remove takes a name away. What it led to goes at the next Sweep.
func (s *Store) Remove(ctx context.Context, name string) error { return nil }

// Sweep removes what no name leads to and InUse does not hold. It says what.
func (s *Store) Sweep(ctx context.Context) (removed []string, err error) { return nil, nil }
