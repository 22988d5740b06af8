// Package store keeps what the daemon must know after a restart, in one SQLite
// file in the data directory: sandboxes, their events, keys. The domain and
// the key check call it. It decides nothing.
package store

// Store is the database of one data directory.
type Store struct{}
