package cli

import (
	"time"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

type agentForkCmd struct {
	ID           string            `arg:"" help:"Id of the run."`
	At           int               `help:"Turn whose reply is to be another one: what came before it is as it was." required:"" placeholder:"N"`
	Task         string            `help:"Told to the model before that turn." placeholder:"TEXT"`
	Model        string            `help:"Model from there on, as PROVIDER:NAME; that of the run when left out." placeholder:"PROVIDER:NAME"`
	BaseURL      string            `name:"base-url" help:"Where the model is, when elsewhere than the server has it. Needs an admin key." placeholder:"URL"`
	ModelKey     string            `name:"model-key" help:"Key for the model's provider; the server does not store it." env:"PANDASTACK_MODEL_KEY" placeholder:"KEY"`
	Instructions string            `help:"In the system prompt, in place of what the run had there." placeholder:"TEXT"`
	Keep         string            `help:"What becomes of the sandbox at the end." enum:"kill,keep,snapshot" default:"kill"`
	Secret       map[string]string `help:"For a run that had secrets by value: add one that the server keeps to requests for a host, as HOST=NAME." placeholder:"HOST=NAME"`
	MaxTurns     int               `name:"max-turns" help:"Replies of the model, those before the fork with them." placeholder:"N"`
	MaxTime      time.Duration     `name:"max-time" help:"Wall clock." placeholder:"15m"`
	Metadata     map[string]string `help:"Labels of your own, as key=value." placeholder:"KEY=VALUE"`
}

// Run goes on from a turn of a run in another way, and prints the answer.
func (c *agentForkCmd) Run(a *app) error {
	run, err := a.agent(pandastack.AgentOptions{ModelKey: c.ModelKey, AgentRequest: api.AgentRequest{
		Fork: &api.AgentFork{Of: c.ID, At: c.At, Task: c.Task}, Model: c.Model, BaseURL: c.BaseURL, Instructions: c.Instructions, Keep: c.Keep,
		Secrets: opening{Secret: c.Secret}.secrets(), Metadata: c.Metadata, Limits: api.AgentLimits{MaxTurns: c.MaxTurns, MaxSeconds: c.MaxTime.Seconds()},
	}}, nil)
	if err != nil {
		return err
	}
	return outcome(a, run.Info, run.Info)
}
