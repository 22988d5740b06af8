package cli

type contextRunCmd struct {
	Sandbox string  `arg:"" help:"Id of the sandbox."`
	File    string  `arg:"" optional:"" help:"Python file; - for standard input."`
	Context string  `default:"default" help:"Id of the code context."`
	Code    string  `short:"c" help:"Python code instead of a file." placeholder:"CODE"`
	Timeout float64 `default:"30" help:"Seconds that the code may take."`
	Charts  string  `help:"Folder that charts are saved to." placeholder:"DIR"`
}

func (c *contextRunCmd) Run(a *app) error {
	r := runCmd{File: c.File, Code: c.Code, Timeout: c.Timeout, Charts: c.Charts}
	code, err := r.source(a)
	if err != nil {
		return err
	}
	k, err := (&contextArgs{Sandbox: c.Sandbox, ID: c.Context}).open(a)
	if err != nil {
		return err
	}
	return r.execute(a, k, code)
}
