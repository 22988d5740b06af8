package config

import (
	"os"
	"path/filepath"

	"golang.org/x/net/http/httpproxy"
)

const rootDataDir = "/var/lib/pandastack"

func home(env Env) string { return env.get("HOME") }

func defaultDataDir(env Env) string {
	if os.Geteuid() == 0 {
		return rootDataDir
	}
	if d := env.get("XDG_DATA_HOME"); d != "" {
		return filepath.Join(d, "pandastack")
	}
	return filepath.Join(home(env), ".local", "share", "pandastack")
}

func defaultFile(env Env) string {
	if os.Geteuid() == 0 {
		return "/etc/pandastack/pandastack.toml"
	}
	if d := env.get("XDG_CONFIG_HOME"); d != "" {
		return filepath.Join(d, "pandastack", "pandastack.toml")
	}
	return filepath.Join(home(env), ".config", "pandastack", "pandastack.toml")
}

// ClientFile is the file that clients read: the setting, or the place where
// every client looks. It is empty when there is none.
func (c *Config) ClientFile(env Env) string {
	switch {
	case c.ClientConfig == "none":
		return ""
	case c.ClientConfig != "":
		return c.ClientConfig
	case env.get("XDG_CONFIG_HOME") != "":
		return filepath.Join(env.get("XDG_CONFIG_HOME"), "pandastack", "config.json")
	case home(env) == "":
		return ""
	}
	return filepath.Join(home(env), ".config", "pandastack", "config.json")
}

// Proxy is the upstream proxy that the owner of this host has set in the usual
// variables; nil when there is none.
func (e Env) Proxy() *httpproxy.Config {
	first := func(names ...string) string {
		for _, n := range names {
			if v := e.get(n); v != "" {
				return v
			}
		}
		return ""
	}
	c := &httpproxy.Config{
		HTTPProxy: first("HTTP_PROXY", "http_proxy"), HTTPSProxy: first("HTTPS_PROXY", "https_proxy"), NoProxy: first("NO_PROXY", "no_proxy"),
	}
	if c.HTTPProxy == "" && c.HTTPSProxy == "" {
		return nil
	}
	return c
}
