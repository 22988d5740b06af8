package cli

import "github.com/pandastack/pandastack/internal/config"

type configCmd struct {
	Show   configShowCmd   `cmd:"" help:"Show every setting, and where it comes from."`
	Sample configSampleCmd `cmd:"" help:"Write a documented configuration file."`
}

type configShowCmd struct {
	place
}

func (c *configShowCmd) Run(a *app) error {
	cfg, err := c.load(a, nil)
	if err != nil {
		return err
	}
	return tabulate(a, cfg.Show(), "", []string{"SETTING", "VALUE", "FROM"}, func(s config.Shown) []string {
		return []string{s.Name, s.Value, s.Source}
	})
}

type configSampleCmd struct{}

func (c *configSampleCmd) Run(a *app) error {
	if a.flags.JSON {
		return a.json(document{config.Sample()})
	}
	_, err := a.Out.Write([]byte(config.Sample()))
	return err
}

// place is where the daemon's own files are, for verbs that work on them.
type place struct {
	Config  string            `help:"Configuration file." placeholder:"FILE"`
	DataDir string            `help:"Folder of the daemon's own files." placeholder:"DIR"`
	Set     map[string]string `help:"Any setting, as name=value." placeholder:"NAME=VALUE"`
}

// load reads the settings, with those that the verb's own flags name.
func (p *place) load(a *app, own map[string]string) (*config.Config, error) {
	flags := map[string]string{}
	for name, v := range p.Set {
		flags[name] = v
	}
	for name, v := range own {
		if v != "" {
			flags[name] = v
		}
	}
	if p.DataDir != "" {
		flags["data_dir"] = p.DataDir
	}
	for _, warning := range config.UnknownVariables(config.Environ()) {
		a.say("pandastack: %s", warning)
	}
	return config.Load(a.env, p.Config, flags)
}
