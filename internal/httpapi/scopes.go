package httpapi

import "github.com/pandastack/pandastack/internal/auth"

// anyone is what a route needs that needs no key.
const anyone = auth.Scope("")

// needs says for every route what a key must have for it; a route that is not
// here is closed to all but administrators, and fails a test. As a rule, what
// changes nothing needs read, what makes, changes, uses or ends a sandbox needs
// run, and what manages keys needs admin.
var needs = map[string]auth.Scope{
	"GET /healthz":      anyone,
	"GET /readyz":       anyone,
	"GET /version":      anyone,
	"GET /v1/healthz":   anyone,
	"GET /v1/readyz":    anyone,
	"GET /v1/version":   anyone,
	"GET /openapi.json": anyone,
	"GET /docs":         anyone,

	"GET /v1/me":                    auth.Read,
	"GET /v1/me/tokens":             auth.Admin,
	"POST /v1/me/tokens":            auth.Admin,
	"DELETE /v1/me/tokens/{prefix}": auth.Admin,

	"GET /metrics":                  auth.Admin,
	"GET /v1/events":                auth.Read,
	"GET /v1/sandboxes/{id}/events": auth.Read,
	"GET /v1/sandboxes/{id}/logs":   auth.Read,

	"GET /v1/templates":        auth.Read,
	"GET /v1/templates/builds": auth.Read,
	"GET /v1/templates/{name}": auth.Read,

	"POST /v1/sandboxes":                 auth.Run,
	"GET /v1/sandboxes":                  auth.Read,
	"GET /v1/sandboxes/{id}":             auth.Read,
	"DELETE /v1/sandboxes/{id}":          auth.Run,
	"GET /v1/sandboxes/{id}/lifecycle":   auth.Read,
	"GET /v1/sandboxes/{id}/metrics":     auth.Read,
	"PATCH /v1/sandboxes/{id}/lifecycle": auth.Run,
	"POST /v1/sandboxes/{id}/pause":      auth.Run,
	"POST /v1/sandboxes/{id}/hibernate":  auth.Run,
	"POST /v1/sandboxes/{id}/stop":       auth.Run,
	"POST /v1/sandboxes/{id}/wake":       auth.Run,
	"POST /v1/sandboxes/{id}/start":      auth.Run,
	"POST /v1/sandboxes/{id}/snapshots":  auth.Run,
	"POST /v1/sandboxes/{id}/fork":       auth.Run,
	"POST /v1/sandboxes/{id}/fork-tree":  auth.Run,
	"POST /v1/sandboxes/{id}/promote":    auth.Run,
	"GET /v1/snapshots":                  auth.Read,
	"GET /v1/snapshots/{id}":             auth.Read,
	"PATCH /v1/snapshots/{id}":           auth.Run,
	"DELETE /v1/snapshots/{id}":          auth.Run,
	"GET /v1/snapshots/{id}/export":      auth.Run, // the memory, with whatever is in it
	"POST /v1/snapshots":                 auth.Run, // what this server did not export itself needs admin
	"POST /v1/sandboxes/{id}/resume":     auth.Run,

	"GET /v1/sandboxes/{id}/network":     auth.Read,
	"PATCH /v1/sandboxes/{id}/network":   auth.Run,
	"GET /v1/sandboxes/{id}/network/log": auth.Read,
	"GET /v1/secrets":                    auth.Read,

	"GET /v1/sandboxes/{id}/tools":         auth.Read,
	"PUT /v1/sandboxes/{id}/tools":         auth.Run,
	"GET /v1/sandboxes/{id}/tools/calls":   auth.Read,
	"GET /v1/sandboxes/{id}/tools/connect": auth.Run,
	"GET /v1/approvals":                    auth.Read,
	"GET /v1/approvals/{id}":               auth.Read,
	"POST /v1/approvals/{id}":              auth.Run,

	"GET /v1/secrets/{name}":    auth.Read,
	"PUT /v1/secrets/{name}":    auth.Admin,
	"DELETE /v1/secrets/{name}": auth.Admin,

	"GET /v1/sandboxes/{id}/ports":                auth.Read,
	"POST /v1/sandboxes/{id}/ports":               auth.Run,
	"DELETE /v1/sandboxes/{id}/ports/{port}":      auth.Run,
	"GET /v1/sandboxes/{id}/ports/{port}/connect": auth.Run,
	"POST /v1/sandboxes/{id}/preview-token":       auth.Run,
	"GET " + proxyRoute:                           auth.Run,
	"POST " + proxyRoute:                          auth.Run,
	"PUT " + proxyRoute:                           auth.Run,
	"PATCH " + proxyRoute:                         auth.Run,
	"DELETE " + proxyRoute:                        auth.Run,
	"OPTIONS " + proxyRoute:                       auth.Run,
	"GET " + linkRoute:                            anyone, // the link itself says who may
	"POST " + linkRoute:                           anyone,
	"PUT " + linkRoute:                            anyone,
	"PATCH " + linkRoute:                          anyone,
	"DELETE " + linkRoute:                         anyone,
	"OPTIONS " + linkRoute:                        anyone,

	"POST /v1/sandboxes/{id}/exec":        auth.Run,
	"POST /v1/sandboxes/{id}/exec/stream": auth.Run,
	"GET /v1/sandboxes/{id}/exec/ws":      auth.Run,
	"GET /v1/sandboxes/{id}/exec/pty":     auth.Run,

	"GET /v1/sandboxes/{id}/processes":                auth.Read,
	"POST /v1/sandboxes/{id}/processes":               auth.Run,
	"GET /v1/sandboxes/{id}/processes/{pid}":          auth.Read,
	"DELETE /v1/sandboxes/{id}/processes/{pid}":       auth.Run,
	"GET /v1/sandboxes/{id}/processes/{pid}/stream":   auth.Read,
	"POST /v1/sandboxes/{id}/processes/{pid}/stdin":   auth.Run,
	"DELETE /v1/sandboxes/{id}/processes/{pid}/stdin": auth.Run,
	"POST /v1/sandboxes/{id}/processes/{pid}/signal":  auth.Run,
	"POST /v1/sandboxes/{id}/processes/{pid}/resize":  auth.Run,
	"GET /v1/sandboxes/{id}/processes/{pid}/attach":   auth.Run,

	"GET /v1/sandboxes/{id}/fs":       auth.Read,
	"POST /v1/sandboxes/{id}/fs":      auth.Run,
	"PUT /v1/sandboxes/{id}/fs":       auth.Run,
	"DELETE /v1/sandboxes/{id}/fs":    auth.Run,
	"GET /v1/sandboxes/{id}/fs/stat":  auth.Read,
	"GET /v1/sandboxes/{id}/fs/dir":   auth.Read,
	"GET /v1/sandboxes/{id}/fs/tar":   auth.Read,
	"PUT /v1/sandboxes/{id}/fs/tar":   auth.Run,
	"POST /v1/sandboxes/{id}/fs/dir":  auth.Run,
	"POST /v1/sandboxes/{id}/fs/move": auth.Run,
	"GET /v1/sandboxes/{id}/fs/watch": auth.Read,
	"POST /v1/sandboxes/{id}/fs/link": auth.Run,
	"GET " + fileLinkRoute:            anyone, // the link itself says who may
	"PUT " + fileLinkRoute:            anyone,
	"POST " + fileLinkRoute:           anyone,
	"OPTIONS " + fileLinkRoute:        anyone,

	"POST /v1/sandboxes/{id}/repl":                                auth.Run,
	"GET /v1/sandboxes/{id}/repl/languages":                       auth.Read,
	"GET /v1/sandboxes/{id}/repl/sessions":                        auth.Read,
	"POST /v1/sandboxes/{id}/repl/sessions":                       auth.Run,
	"GET /v1/sandboxes/{id}/repl/sessions/{cid}":                  auth.Read,
	"DELETE /v1/sandboxes/{id}/repl/sessions/{cid}":               auth.Run,
	"POST /v1/sandboxes/{id}/repl/sessions/{cid}/run":             auth.Run,
	"POST /v1/sandboxes/{id}/repl/sessions/{cid}/run/stream":      auth.Run,
	"GET /v1/sandboxes/{id}/repl/sessions/{cid}/executions/{eid}": auth.Read,
	"POST /v1/sandboxes/{id}/repl/sessions/{cid}/interrupt":       auth.Run,
	"POST /v1/sandboxes/{id}/repl/sessions/{cid}/restart":         auth.Run,
	"POST /v1/sandboxes/{id}/repl/sessions/{cid}/fork":            auth.Run,

	// What a tool does needs what the call of the API that it makes needs.
	"POST /mcp":                     auth.Read,
	"GET /mcp":                      auth.Read,
	"DELETE /mcp":                   auth.Read,
	"POST /v1/mcp":                  auth.Read,
	"GET /v1/mcp":                   auth.Read,
	"DELETE /v1/mcp":                auth.Read,
	"POST /v1/sandboxes/{id}/mcp":   auth.Read,
	"GET /v1/sandboxes/{id}/mcp":    auth.Read,
	"DELETE /v1/sandboxes/{id}/mcp": auth.Read,

	"GET /jupyter/{id}/api":                          auth.Read,
	"GET /jupyter/{id}/api/status":                   auth.Read,
	"GET /jupyter/{id}/api/kernelspecs":              auth.Read,
	"GET /jupyter/{id}/api/kernelspecs/{name}":       auth.Read,
	"GET /jupyter/{id}/api/kernels":                  auth.Read,
	"POST /jupyter/{id}/api/kernels":                 auth.Run,
	"GET /jupyter/{id}/api/kernels/{kid}":            auth.Read,
	"DELETE /jupyter/{id}/api/kernels/{kid}":         auth.Run,
	"POST /jupyter/{id}/api/kernels/{kid}/interrupt": auth.Run,
	"POST /jupyter/{id}/api/kernels/{kid}/restart":   auth.Run,
	"GET /jupyter/{id}/api/kernels/{kid}/channels":   auth.Run,
	"GET /jupyter/{id}/api/sessions":                 auth.Read,
	"POST /jupyter/{id}/api/sessions":                auth.Run,
	"GET /jupyter/{id}/api/sessions/{kid}":           auth.Read,
	"PATCH /jupyter/{id}/api/sessions/{kid}":         auth.Run,
	"DELETE /jupyter/{id}/api/sessions/{kid}":        auth.Run,

	"POST /v1/agents":                    auth.Run,
	"GET /v1/agents":                     auth.Read,
	"GET /v1/agents/{id}":                auth.Read,
	"DELETE /v1/agents/{id}":             auth.Run,
	"POST /v1/agents/{id}/cancel":        auth.Run,
	"GET /v1/agents/{id}/events":         auth.Read,
	"GET /v1/agents/{id}/connect":        auth.Run,
	"GET /v1/agents/{id}/figures/{file}": auth.Read,
	"GET /v1/agents/{id}/notebook":       auth.Read,
	"GET /v1/agents/{id}/report":         auth.Read,
}

// needOf gives what a route needs.
func needOf(pattern string) auth.Scope {
	if need, known := needs[pattern]; known {
		return need
	}
	return auth.Admin
}
