// Package config is where every setting of the daemon comes from, and the only
// reader of the environment on the host side besides the client SDKs. A setting
// comes from, in rising order: its default, the configuration file, the
// environment, a flag. Package cli loads it and package daemon uses it.
//
// It never acts on a setting: what a value means is decided by its user.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/pandastack/pandastack/internal/fault"
	"github.com/pandastack/pandastack/internal/nearest"
)

// Config is every setting of the daemon.
type Config struct {
	Listen       string
	AllowedHosts []string
	DataDir      string
	ClientConfig string
	ClientGroup  string
	LogFormat    string
	LogLevel     string
	Driver       string
	Runsc        string
	Network      bool
	TemplatesDir string
	RecipesDir   string

	DefaultTTL   time.Duration
	MaxTTL       time.Duration
	MaxSandboxes int
	CreateTime   time.Duration
	RateLimit    int
	RateBurst    int

	AllowedOrigins           []string
	MaxSandboxesPerWorkspace int
	MaxCPU                   float64
	MaxMemory                int
	MaxDisk                  int
	MaxPIDs                  int
	MemoryReserve            int
	DiskReserve              int
	CPUOver                  float64
	MemoryOver               float64
	DiskOver                 float64
	OutputMemory             int
	PoolTemplates            []string
	PoolReady                int
	PoolPrepared             int
	RequestDrain             time.Duration
	HibernatedFor            time.Duration
	StopHibernate            time.Duration
	MetricsListen            string
	EventsMaxAge             time.Duration
	EventsKeep               int
	PreviewDomain            string
	AgentModel               string
	OpenAIKey                string
	OpenAIBaseURL            string
	AnthropicKey             string
	AnthropicBaseURL         string
	ModelURLs                []string
	ModelRate                int
	MaxAgents                int
	AgentsMemoryMB           int
	AgentsKeep               time.Duration
	AgentsKeepMB             int
	MCPSessions              time.Duration
	NetworkPolicies          string // a JSON object of policies by name
	NetworkLogMB             int
	Tools                    string // a JSON object of api.Tools
	ToolURLs                 []string
	NetworkPackages          bool
	SnapshotKeys             []string
	sources                  map[string]string
}

// setting is one line of the table that the file, the environment, the flags,
// `config show` and the sample file are all read from.
type setting struct {
	name  string // in the file; in the environment PANDASTACK_ and upper case
	value value
	doc   string
}

func (c *Config) settings() []setting {
	return []setting{
		{"listen", text(&c.Listen), "Address of the HTTP API. Anything but a loopback address is reachable by others: put TLS in front of it."},
		{"allowed_hosts", list(&c.AllowedHosts), "Names that the Host header may carry besides localhost and addresses, comma separated; \"*\" allows any."},
		{"preview_domain", text(&c.PreviewDomain), "Domain below which ports of sandboxes are seen, as in 8000-sb-….preview.example.com; all names below it must lead to this server. Add :PORT when visitors need one. Empty: localhost alone."},
		{"allowed_origins", origins(&c.AllowedOrigins), "Origins of web pages that may call the API, comma separated, such as https://app.example.com; empty: only its own."},
		{"data_dir", text(&c.DataDir), "Folder of the daemon's own files: the store, templates, snapshots."},
		{"client_config", text(&c.ClientConfig), "File that the local client's address and key are merged into; \"none\" to leave clients alone."},
		{"client_group", text(&c.ClientGroup), "Group of this machine that may read that file, and so use the local key; empty: nobody but its owner."},
		{"log_format", choice(&c.LogFormat, "auto", "text", "json"), "auto (text on a terminal, json otherwise), text or json."},
		{"log_level", choice(&c.LogLevel, "debug", "info", "warn", "error"), "debug, info, warn or error."},
		{"driver", choice(&c.Driver, "gvisor", "fake"), "What isolates sandboxes: gvisor."},
		{"runsc", text(&c.Runsc), "Path of gVisor's program; empty: beside pandastack, then in PATH."},
		{"network_interface", boolean(&c.Network), "Whether sandboxes have a network interface, behind which there is only the daemon. false: loopback alone, for hosts without /dev/net/tun."},
		{"templates_dir", text(&c.TemplatesDir), "Folder of built templates; empty: templates in data_dir."},
		{"recipes_dir", text(&c.RecipesDir), "Folder of template recipes; empty: those that come with PandaStack."},
		{"default_ttl", duration(&c.DefaultTTL), "Time to live of a sandbox whose creator names none."},
		{"max_ttl", duration(&c.MaxTTL), "The longest time to live of a sandbox that is not persistent."},
		{"max_sandboxes", number(&c.MaxSandboxes), "Sandboxes of users that may exist at once; 0: as many as the host has room for."},
		{"create_timeout", duration(&c.CreateTime), "How long making a sandbox, waking or resuming one may take when its turn has come; at least 5 s. A host that is slow may need more. Our clients wait 200 s for the answer to a create."},
		{"max_sandboxes_per_workspace", number(&c.MaxSandboxesPerWorkspace), "Sandboxes that one workspace may have at once; 0: as many as there may be at all."},
		{"rate_limit", number(&c.RateLimit), "Calls a second that one workspace may make in the long run; 0: any number."},
		{"rate_burst", number(&c.RateBurst), "Calls that one workspace may make at once, before rate_limit holds it."},
		{"max_cpu", decimal(&c.MaxCPU), "Cores that one sandbox may ask for; 0: those of the host."},
		{"max_memory_mb", number(&c.MaxMemory), "Memory that one sandbox may ask for, in MB; 0: that of the host without the reserve."},
		{"max_disk_mb", number(&c.MaxDisk), "Disk that one sandbox may ask for, in MB; 0: what is free of the host's when the daemon starts, without the reserve."},
		{"max_pids", number(&c.MaxPIDs), "Processes and threads that one sandbox may ask for; at least 16."},
		{"memory_reserve_mb", number(&c.MemoryReserve), "Memory of the host that creates leave alone, in MB; 0: none."},
		{"disk_reserve_mb", number(&c.DiskReserve), "Space on the disk of data_dir that creates, snapshots and hibernation leave alone, in MB; 0: none."},
		{"cpu_overcommit", decimal(&c.CPUOver), "How many times the host's cores all sandboxes' limits may add up to; 1: each always has its whole limit, 0: not added up."},
		{"memory_overcommit", decimal(&c.MemoryOver), "The same for the host's memory without the reserve. What is really free is looked at besides, at each create."},
		{"disk_overcommit", decimal(&c.DiskOver), "The same for the host's free disk without the reserve."},
		{"output_memory_mb", number(&c.OutputMemory), "Memory for the outputs of cells that are being answered whole, all together, in MB; half of it for one owner. What has no room is left out and counted."},
		{"pool_templates", list(&c.PoolTemplates), "Templates that have pools, comma separated."},
		{"pool_ready", number(&c.PoolReady), "Restored sandboxes that wait for a create, for each of these templates."},
		{"pool_prepared", number(&c.PoolPrepared), "Created but not yet restored sandboxes that wait, for each of these templates."},
		{"request_drain", duration(&c.RequestDrain), "How long requests may take to end when the daemon is told to stop."},
		{"hibernated_for", duration(&c.HibernatedFor), "How long a hibernated sandbox is kept; then it is ended."},
		{"stop_hibernate", duration(&c.StopHibernate), "How long hibernating the persistent sandboxes may take when the daemon is told to stop; what is not done by then goes on running. \"0s\": none is hibernated."},
		{"metrics_listen", text(&c.MetricsListen), "Address that serves /metrics to everyone who reaches it, without a key; empty: only the API's own address does, with one."},
		{"events_max_age", duration(&c.EventsMaxAge), "How long events of sandboxes are kept."},
		{"network_policies", text(&c.NetworkPolicies), "Network policies that sandboxes may ask for by name, as tables [network_policies.NAME] at the end of this file, or as one JSON object."},
		{"network_log_mb", number(&c.NetworkLogMB), "Most of the disk that the log of what sandboxes tried to reach may take, in MB; the oldest lines go first."},
		{"tools", text(&c.Tools), "Tools that sandboxes may name in use, as tables [tools.http.NAME] with url or openapi, base_url and headers, and [tools.mcp.NAME] with url or command, at the end of this file, or as one JSON object."},
		{"tool_urls", list(&c.ToolURLs), "Addresses of services that tools of callers without the scope admin may reach, with all below them, comma separated, as https://api.example.com/v1. Without them only admins may have this machine call an address of their choice."},
		{"network_packages", boolean(&c.NetworkPackages), "Whether sandboxes may be given the words pypi and npm: what pip and npm of the user that the server runs as are set to, with what their passwords may read."},
		{"snapshot_trusted_keys", list(&c.SnapshotKeys), "Keys of other servers whose exported snapshots may be imported, comma separated, as ed25519:…; pandastack version shows a server's. Whoever has such a key can attack this server, so name only those that you run or trust as much. Empty: only this server's own."},
		{"events_keep", number(&c.EventsKeep), "How many events are kept of each workspace; the oldest go first."},
		{"agent_model", text(&c.AgentModel), "Model of agents whose caller names none, as PROVIDER:NAME with the provider openai or anthropic."},
		{"openai_api_key", secret(&c.OpenAIKey), "Key for the provider openai. Callers may send their own instead."},
		{"openai_base_url", text(&c.OpenAIBaseURL), "Where the provider openai is, which is anything that speaks chat completions, as http://127.0.0.1:11434/v1; empty: OpenAI itself."},
		{"anthropic_api_key", secret(&c.AnthropicKey), "Key for the provider anthropic. Callers may send their own instead."},
		{"anthropic_base_url", text(&c.AnthropicBaseURL), "Where the provider anthropic is; empty: Anthropic itself."},
		{"model_base_urls", list(&c.ModelURLs), "Base URLs of models that callers without the scope admin may name, comma separated. Without them only admins may have this machine call an address of their choice."},
		{"model_rate", number(&c.ModelRate), "Requests a minute to the server's own providers, all agents together; 0: any number."},
		{"max_agents", number(&c.MaxAgents), "Agents that one workspace may have running at once."},
		{"agents_memory_mb", number(&c.AgentsMemoryMB), "Memory that all running agents together may hold of the server's, in MB: their transcripts, and the figures that models are shown. Beyond it none is started."},
		{"agents_keep", duration(&c.AgentsKeep), "How long the transcripts of agents that ended are kept."},
		{"agents_keep_mb", number(&c.AgentsKeepMB), "Disk that the agents of one workspace that ended may take, in MB: transcripts, files they were given, figures. Beyond it the oldest go."},
		{"mcp_sessions", duration(&c.MCPSessions), "How long an MCP session over HTTP is kept whose client asks nothing; its sandboxes end with it."},
	}
}

// defaults gives the settings before anything was read.
func defaults(env Env) Config {
	return Config{
		Listen:          "127.0.0.1:8080",
		DataDir:         defaultDataDir(env),
		LogFormat:       "auto",
		LogLevel:        "info",
		Driver:          "gvisor",
		Network:         true,
		DefaultTTL:      5 * time.Minute,
		MaxTTL:          24 * time.Hour,
		MaxSandboxes:    500,
		CreateTime:      time.Minute,
		MaxPIDs:         32768,
		RateLimit:       1000,
		RateBurst:       2000,
		MemoryReserve:   512,
		DiskReserve:     512,
		CPUOver:         100,
		MemoryOver:      20,
		DiskOver:        20,
		OutputMemory:    512,
		PoolTemplates:   []string{"code-interpreter"},
		PoolReady:       2,
		PoolPrepared:    2,
		RequestDrain:    5 * time.Second,
		HibernatedFor:   30 * 24 * time.Hour,
		StopHibernate:   10 * time.Second,
		EventsMaxAge:    7 * 24 * time.Hour,
		EventsKeep:      10_000,
		MaxAgents:       32,
		AgentsMemoryMB:  512,
		AgentsKeep:      30 * 24 * time.Hour,
		AgentsKeepMB:    4096,
		MCPSessions:     time.Hour,
		NetworkLogMB:    64,
		NetworkPackages: true,
	}
}

// Env is the environment, as os.LookupEnv gives it.
type Env func(name string) (string, bool)

// OS is the environment of this process.
func OS() Env { return os.LookupEnv }

func (e Env) get(name string) string {
	v, _ := e(name)
	return v
}

// Load reads the settings. An empty file means the default place, which need
// not exist. Flags hold what the command line set, by setting name.
func Load(env Env, file string, flags map[string]string) (*Config, error) {
	c := defaults(env)
	c.sources = map[string]string{}
	table := c.settings()

	if file == "" {
		file = env.get("PANDASTACK_CONFIG")
	}
	named := file != ""
	if !named {
		file = defaultFile(env)
	}
	if err := c.readFile(table, file, named); err != nil {
		return nil, err
	}
	for _, s := range table {
		name := envName(s.name)
		if v, ok := env(name); ok && v != "" {
			if err := s.value.Set(v); err != nil {
				return nil, fault.InvalidField(s.name, "%s=%q: %v", name, v, err)
			}
			c.sources[s.name] = name
		}
	}
	known := map[string]bool{}
	for _, s := range table {
		known[s.name] = true
		if v, ok := flags[s.name]; ok {
			if err := s.value.Set(v); err != nil {
				return nil, fault.InvalidField(s.name, "--%s %q: %v", strings.ReplaceAll(s.name, "_", "-"), v, err)
			}
			c.sources[s.name] = "flag"
		}
	}
	for name := range flags {
		if !known[name] {
			return nil, fault.InvalidField(name, "there is no setting %q", name).
				WithHint("%s; pandastack config show lists all", nearest.Hint(name, names(table), "settings"))
		}
	}
	return &c, c.check()
}

func (c *Config) readFile(table []setting, file string, named bool) error {
	raw, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return nil
	}
	if err != nil {
		return fault.InvalidField("config", "the configuration file cannot be read: %v", err)
	}
	var values map[string]any
	if err := toml.Unmarshal(raw, &values); err != nil {
		return fault.InvalidField("config", "%s is not valid TOML: %v", file, err)
	}
	for _, s := range table {
		v, ok := values[s.name]
		if !ok {
			continue
		}
		delete(values, s.name)
		where := place(file, raw, s.name)
		if err := s.value.Set(plain(v)); err != nil {
			return fault.InvalidField(s.name, "%s: %s: %v", where, s.name, err)
		}
		c.sources[s.name] = where
	}
	if len(values) > 0 {
		unknown := slices.Sorted(maps.Keys(values))
		return fault.InvalidField(unknown[0], "%s: there is no setting %q", place(file, raw, unknown[0]), unknown[0]).
			WithHint("%s; pandastack config show lists all", nearest.Hint(unknown[0], names(table), "settings"))
	}
	return nil
}

// place is the file and the line in which a setting is given.
func place(file string, raw []byte, name string) string {
	assignment := regexp.MustCompile(`^\s*["\']?` + regexp.QuoteMeta(name) + `["\']?\s*(=|\.|\])|^\s*\[+\s*` + regexp.QuoteMeta(name) + `\b`)
	n := 0
	for line := range strings.Lines(string(raw)) {
		n++
		if assignment.MatchString(line) {
			return fmt.Sprintf("%s:%d", file, n)
		}
	}
	return file
}

func names(table []setting) []string {
	all := make([]string, len(table))
	for i, s := range table {
		all[i] = s.name
	}
	return all
}

// notOurs are variables with our prefix that are no settings of the daemon:
// where the file is, what clients read, and what our tests pass on.
var notOurs = []string{"PANDASTACK_CONFIG", "PANDASTACK_API", "PANDASTACK_API_URL", "PANDASTACK_API_KEY", "PANDASTACK_MODEL_KEY", "PANDASTACK_EXEC_READY_TIMEOUT_MS"}

// UnknownVariables says of each variable in an environment (NAME=VALUE, as
// os.Environ gives it) that begins like a setting and is none, what it may
// have been meant to be. Values are not repeated: they may be secret.
func UnknownVariables(environ []string) []string {
	var c Config
	known := names(c.settings())
	var out []string
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		word, ours := strings.CutPrefix(name, "PANDASTACK_")
		setting := strings.ToLower(word)
		if !ours || strings.HasPrefix(word, "TEST_") || slices.Contains(known, setting) || slices.Contains(notOurs, name) {
			continue
		}
		var meant []string
		for _, near := range nearest.Names(setting, known) {
			meant = append(meant, envName(near))
		}
		hint := "pandastack config show lists the settings"
		if len(meant) > 0 {
			hint = "did you mean " + strings.Join(meant, ", ") + "?"
		}
		out = append(out, fmt.Sprintf("the variable %s is no setting and is ignored: %s", name, hint))
	}
	slices.Sort(out)
	return out
}

// Environ is the environment of this process as NAME=VALUE.
func Environ() []string { return os.Environ() }

// plain gives a TOML value the form that the environment would have.
func plain(v any) string {
	if table, ok := v.(map[string]any); ok {
		raw, err := json.Marshal(table)
		if err != nil {
			return fmt.Sprint(table) // which its setting refuses
		}
		return string(raw)
	}
	items, ok := v.([]any)
	if !ok {
		return fmt.Sprint(v)
	}
	words := make([]string, len(items))
	for i, it := range items {
		words[i] = fmt.Sprint(it)
	}
	return strings.Join(words, ",")
}

// check refuses settings that contradict each other.
func (c *Config) check() error {
	if !filepath.IsAbs(c.DataDir) {
		abs, err := filepath.Abs(c.DataDir)
		if err != nil {
			return fault.InvalidField("data_dir", "data_dir %q: %v", c.DataDir, err)
		}
		c.DataDir = abs
	}
	if c.TemplatesDir == "" {
		c.TemplatesDir = filepath.Join(c.DataDir, "templates")
	}
	if c.DefaultTTL > c.MaxTTL {
		return fault.InvalidField("default_ttl", "default_ttl (%s) is longer than max_ttl (%s)", c.DefaultTTL, c.MaxTTL)
	}
	if c.CreateTime < 5*time.Second {
		return fault.InvalidField("create_timeout", "create_timeout must be at least 5s, but is %s", c.CreateTime)
	}
	if c.EventsMaxAge < time.Minute {
		return fault.InvalidField("events_max_age", "events_max_age must be at least one minute, but is %s", c.EventsMaxAge)
	}
	if c.EventsKeep < 100 {
		return fault.InvalidField("events_keep", "events_keep must be at least 100, but is %d", c.EventsKeep)
	}
	if c.MaxAgents < 1 {
		return fault.InvalidField("max_agents", "max_agents must be at least 1")
	}
	if c.AgentsKeepMB < 1 {
		return fault.InvalidField("agents_keep_mb", "agents_keep_mb must be at least 1, but is %d", c.AgentsKeepMB)
	}
	if c.AgentsMemoryMB < 16 {
		return fault.InvalidField("agents_memory_mb", "agents_memory_mb must be at least 16, but is %d", c.AgentsMemoryMB)
	}
	if c.RateLimit > 0 && c.RateBurst < 1 {
		return fault.InvalidField("rate_burst", "rate_burst must be at least 1 where there is a rate_limit").WithHint("rate_limit 0 means any number of calls")
	}
	if c.DefaultTTL <= 0 {
		return fault.InvalidField("default_ttl", "default_ttl must be positive")
	}
	if c.MaxPIDs < 16 {
		return fault.InvalidField("max_pids", "max_pids must be at least 16, but is %d", c.MaxPIDs)
	}
	if c.OutputMemory < 1 {
		return fault.InvalidField("output_memory_mb", "output_memory_mb must be at least 1: with none no cell would have an output")
	}
	if c.NetworkLogMB < 2 {
		return fault.InvalidField("network_log_mb", "network_log_mb must be at least 2, but is %d", c.NetworkLogMB)
	}
	if d := c.PreviewDomain; d != "" && !domainForm.MatchString(d) {
		return fault.InvalidField("preview_domain", "preview_domain must be a domain, with a :PORT when one is needed, but is %.100q", d).
			WithHint("as in preview.example.com")
	}
	if filepath.Base(c.TemplatesDir) != "templates" {
		return fault.InvalidField("templates_dir", "the folder templates_dir must be called templates, not %q", filepath.Base(c.TemplatesDir)).
			WithHint("the programs that templates were built with lie beside it")
	}
	return nil
}

var domainForm = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(:[1-9][0-9]{0,4})?$`)

func envName(setting string) string { return "PANDASTACK_" + strings.ToUpper(setting) }

// Shown is one line of `pandastack config show`.
type Shown struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Source string `json:"source"` // "default", file:line, the name of a variable, or "flag"
	Doc    string `json:"doc"`
}

// Show lists the settings and where each came from.
func (c *Config) Show() []Shown {
	var out []Shown
	for _, s := range c.settings() {
		src := c.sources[s.name]
		if src == "" {
			src = "default"
		}
		out = append(out, Shown{s.name, s.value.String(), src, s.doc})
	}
	return out
}

// Sample is the documented sample file, every setting at its default.
func Sample() string {
	c := defaults(func(string) (string, bool) { return "", false })
	c.DataDir = rootDataDir
	var b strings.Builder
	b.WriteString("# Settings of the PandaStack daemon. Each can also be given in the environment, as\n" +
		"# PANDASTACK_ and its name in upper case, or as a flag of `pandastack serve`.\n" +
		"# What is commented out is at its default. `pandastack config show` says what is in force and why.\n")
	for _, s := range c.settings() {
		fmt.Fprintf(&b, "\n# %s\n# %s = %s\n", s.doc, s.name, s.value.toml())
	}
	return b.String()
}
