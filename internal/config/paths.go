package config

import (
	"os"
	"path/filepath"
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
