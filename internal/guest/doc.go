// Package guest is the host's end of the link to the agent inside a sandbox.
// A Listener waits on a Unix socket for the agent to dial out, and a Client
// speaks HTTP/2 over that connection. The domain, the kernel and process
// services, the file routes and template builds call it.
//
// The guest is hostile: whoever runs code in the sandbox can dial the socket
// and speak as the agent. So whatever comes over the link is bounded in size,
// number and time, checked before it is passed on, and never believed for what
// it would gain by lying. Nothing here knows users, states or drivers.
package guest
