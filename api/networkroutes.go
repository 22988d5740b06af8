package api

import "time"

// NetworkInfo is the network of a sandbox, as GET and PATCH …/network answer it.
type NetworkInfo struct {
	Policy  NetworkPolicy          `json:"policy"`
	Secrets map[string]SecretShown `json:"secrets,omitempty"` // by the host that they go to
	Bytes   int64                  `json:"bytes"`             // carried so far, both directions together
	Flows   int                    `json:"flows"`             // connections that are open
}

// SecretShown is what is shown of a secret: all but its value.
type SecretShown struct {
	Header string `json:"header"`
	Ref    string `json:"ref,omitempty"` // the name of a secret that the server keeps
}

// NetworkPatch is the body of PATCH …/network. What is nil stays.
type NetworkPatch struct {
	Policy  *NetworkPolicy `json:"policy,omitempty"`  // in place of the one before
	Secrets *Secrets       `json:"secrets,omitempty"` // in place of all before
}

// NetworkLine is a line of the audit with its number.
type NetworkLine struct {
	Seq int64 `json:"seq"` // rises, with gaps: lines of all sandboxes are numbered together
	NetworkEvent
}

// NetworkLog is the answer of GET …/network/log: the oldest first.
type NetworkLog struct {
	Lines []NetworkLine `json:"lines"`
}

// PutSecretRequest is the body of PUT /v1/secrets/{name}.
type PutSecretRequest struct {
	Value string `json:"value"` // the whole value of a header, such as "Bearer …"; at most 16 KiB
}

// SecretInfo describes a secret that the server keeps. Its value is never given back.
type SecretInfo struct {
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}
