package mcpserver

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// addTools adds every tool. What a description says is read by models at every
// turn: it is short, and names the limits.
func (s *Session) addTools() {
	var (
		reads  = &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: new(false)}
		writes = &mcp.ToolAnnotations{DestructiveHint: new(false), OpenWorldHint: new(false)}
		ends   = &mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(false)}
	)
	add(s, "run_code", "Run Python in a kernel that keeps variables and imports from call to call, like a notebook cell. "+
		"numpy, pandas, matplotlib, plotly and more are installed. Figures come back as images, the last expression's value as text. "+
		"At most 3600 s; output beyond 30,000 characters is cut in the middle. No network unless opened; input() is not answered.", writes, s.runCode)
	add(s, "run_command", "Run a shell command in the sandbox as root, in /workspace. Answers with output and exit code. "+
		"At most 3600 s; output beyond 30,000 characters is cut in the middle.", writes, s.runCommand)
	add(s, "read_file", "Read a file: text, at most 100,000 bytes a call (go on with offset), or a picture.", reads, s.readFile)
	add(s, "write_file", "Write a file, at most 16 MB a call (append adds more).", writes, s.writeFile)
	add(s, "list_dir", "List a folder, at most 500 entries.", reads, s.listDir)
	add(s, "create_sandbox", "Make a fresh sandbox, or one from a snapshot, and work in it from now on. Not needed to begin: the first call makes one. At most 16 a session.", writes, s.createSandbox)
	add(s, "list_sandboxes", "List the sandboxes that this key may use.", reads, s.listSandboxes)
	add(s, "delete_sandbox", "End a sandbox for good, with its files and variables.", ends, s.deleteSandbox)
	add(s, "fork_sandbox", "Copy a running sandbox with its variables, files and processes, as to try several ways from one state.", writes, s.forkSandbox)
	add(s, "snapshot_sandbox", "Save memory and files of a sandbox. create_sandbox with from_snapshot brings them back, any number of times.", writes, s.snapshotSandbox)
	add(s, "list_templates", "List what sandboxes can be made from.", reads, s.listTemplates)
}

// add adds one tool. Its errors are results that the model reads.
func add[In any](s *Session, name, description string, hints *mcp.ToolAnnotations, f mcp.ToolHandlerFor[In, any]) {
	mcp.AddTool(s.server, &mcp.Tool{Name: name, Description: description, Annotations: hints},
		func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(s.life, cancel)()
			res, out, err := f(ctx, req, in)
			if err != nil {
				return nil, nil, explain(err)
			}
			return res, out, nil
		})
}
