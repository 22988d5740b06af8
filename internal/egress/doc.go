// Package egress decides what leaves a sandbox, and carries it. The user-space
// network stack of a sandbox hands every TCP connection and every DNS message to
// a Gate; what implements it here, for one sandbox, is Sandbox. Package daemon
// makes one Engine, and with it a Sandbox for each sandbox that has a network.
//
// A name resolves, inside, to an address made up for that sandbox and name, so
// that an address is its name. A connection to it is dialled from the host only
// to what the host resolves for that name at that moment. Names that can be seen
// in the traffic (SNI, Host) must agree. TLS is opened only for hosts that need
// a secret added or whose rules name methods or paths.
//
// It never touches namespaces or interfaces, and never sends from the host's
// side anything that no sandbox asked for.
package egress
