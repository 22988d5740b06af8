// Package sandbox is the domain: what a sandbox is, which states it goes
// through, and the Manager that creates, finds, limits and ends sandboxes. The
// HTTP API and everything above call it; below it stand the store, a driver
// and the guest link.
//
// It never knows which driver it has, never speaks HTTP to users, and never
// assumes that what it holds in memory is all there is: the store says what
// exists, and a sweeper that reads the store enforces every time limit.
package sandbox
