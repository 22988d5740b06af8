package llm

import (
	"net/url"
	"strings"

	"golang.org/x/time/rate"

	"github.com/pandastack/pandastack/api"
	"github.com/pandastack/pandastack/internal/fault"
)

// Catalog opens models by name. OpenAI and Anthropic are where the server itself
// reaches them, and with which key.
type Catalog struct {
	OpenAI, Anthropic Endpoint

	// Limit is what all requests to the server's own endpoints are held to
	// together; nil: nothing.
	Limit *rate.Limiter
}

// Open gives the model of PROVIDER:NAME. With a base URL it is reached there,
// and then the server's key is not used; key is the caller's, and comes before
// the server's.
func (c *Catalog) Open(spec, baseURL, key string) (Provider, string, error) {
	name, model, ok := strings.Cut(spec, ":")
	if !ok || model == "" {
		return nil, "", fault.InvalidField("model", "model must be PROVIDER:NAME, not %.80q", spec).WithHint("as in openai:gpt-4o or anthropic:claude-sonnet-4-5; the providers are openai, which is anything that speaks chat completions, and anthropic")
	}
	var own Endpoint
	var official string
	switch name {
	case "openai":
		own, official = c.OpenAI, "openai.com"
	case "anthropic":
		own, official = c.Anthropic, "anthropic.com"
	default:
		return nil, "", fault.InvalidField("model", "there is no provider %.40q", name).WithHint("there are openai, which is anything that speaks chat completions, and anthropic")
	}
	at, limit := own, c.Limit
	if baseURL != "" && strings.TrimRight(baseURL, "/") != strings.TrimRight(own.BaseURL, "/") {
		u, err := url.Parse(baseURL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			return nil, "", fault.InvalidField("base_url", "base_url must be of the form https://host/v1, not %.80q", baseURL)
		}
		at, limit = Endpoint{BaseURL: baseURL, Client: own.Client, Quiet: own.Quiet}, nil
	}
	if key != "" {
		at.Key = key
	}
	if u, err := url.Parse(at.BaseURL); at.Key == "" && (at.BaseURL == "" || err == nil && strings.HasSuffix(u.Hostname(), official)) {
		return nil, "", fault.InvalidField("model", "there is no key for the provider %s", name).
			WithHint("send one in the header %s, or set %s_api_key on the server", api.ModelKeyHeader, name)
	}
	var p Provider
	if name == "openai" {
		p = NewOpenAI(at)
	} else {
		p = NewAnthropic(at)
	}
	return &Retrying{Provider: &Limited{Provider: p, Limit: limit}}, model, nil
}
