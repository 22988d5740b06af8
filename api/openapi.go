package api

import _ "embed" // for OpenAPI

// OpenAPI is the document that describes the HTTP API, in YAML.
//
//go:embed openapi.yaml
var OpenAPI []byte
