// Package api is the contract of PandaStack's HTTP API: the types that travel
// over the wire, the error codes, and nothing else. The server, the Go SDK and
// the guest agent all speak in these types, so a field is described once.
//
// The package depends on the standard library only and holds no behaviour
// beyond what a type needs to encode itself.
package api
