package pandastack_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// The examples run against answers that a daemon has given, so that they run
// anywhere.
func init() {
	answers := map[string]string{
		"POST /v1/sandboxes":                                `{"id":"sb-1","template":"code-interpreter","status":"running"}`,
		"PUT /v1/sandboxes/sb-1/fs":                         `{"path":"/workspace/sales.csv","bytes":28}`,
		"POST /v1/sandboxes/sb-1/repl/sessions/default/run": `{"end":"ok","results":[{"text/plain":"3"}]}`,
		"POST /v1/sandboxes/sb-1/repl/sessions/default/run/stream": "id: 1\nevent: stdout\ndata: {\"text\":\"0\\n\"}\n\nid: 2\nevent: stdout\ndata: {\"text\":\"1\\n\"}\n\n" +
			"id: 3\nevent: end\ndata: {\"end\":\"ok\"}\n\n",
		"POST /v1/sandboxes/sb-1/exec/stream": "event: stdout\ndata: {\"chunk\":\"hello\\n\"}\n\nevent: exit\ndata: {\"exit_code\":0}\n\n",
		"DELETE /v1/sandboxes/sb-1":           "",
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"error":"there is no sandbox \"sb-2\"","code":"not_found","hint":"the nearest is sb-1"}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	os.Setenv("PANDASTACK_API", srv.URL) //nolint:errcheck // a name that can be set
	os.Setenv("PANDASTACK_API_KEY", "pds_example")
}

// A sandbox with a warm kernel: files in, cells with state, results out.
func Example() {
	ctx := context.Background()
	client, err := pandastack.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	sb, err := client.Create(ctx, pandastack.CreateOptions{Template: "code-interpreter"})
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Kill(context.WithoutCancel(ctx))

	if err := sb.WriteFile(ctx, "/workspace/sales.csv", []byte("region,amount\nEMEA,1\nAPAC,2\n")); err != nil {
		log.Fatal(err)
	}
	if _, err := sb.RunCode(ctx, "import pandas as pd\ndf = pd.read_csv('/workspace/sales.csv')"); err != nil {
		log.Fatal(err)
	}
	ex, err := sb.RunCode(ctx, "df.set_index('region').plot.bar()\ndf.amount.sum()", pandastack.RunOptions{Timeout: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	if ex.Failed() {
		log.Fatal(*ex.Error) // a cell that raises is an outcome, not an error
	}
	fmt.Println(ex.Text()) // ex.PNG() is the chart
	// Output: 3
}

// Output as it comes. A connection that breaks is taken up again by itself.
func ExampleCodeContext_Stream() {
	ctx := context.Background()
	client, err := pandastack.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	for event, err := range client.Sandbox("sb-1").Context("default").Stream(ctx, "for i in range(2): print(i)") {
		if err != nil {
			log.Fatal(err)
		}
		switch event.Type {
		case api.EventStdout:
			fmt.Print(event.Text)
		case api.EventEnd:
			fmt.Println(event.Execution.End)
		}
	}
	// Output:
	// 0
	// 1
	// ok
}

// A command's output as it comes, and its exit code.
func ExampleSandbox_ExecStream() {
	ctx := context.Background()
	client, err := pandastack.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	var said strings.Builder
	var exit int
	for out, err := range client.Sandbox("sb-1").ExecStream(ctx, pandastack.Shell("echo hello"), pandastack.ExecOptions{}, &exit) {
		if err != nil {
			log.Fatal(err)
		}
		said.WriteString(out.Text)
	}
	fmt.Printf("%d %q\n", exit, said.String())
	// Output: 0 "hello\n"
}

// Errors have kinds.
func ExampleError() {
	ctx := context.Background()
	client, err := pandastack.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.Get(ctx, "sb-2")
	switch {
	case errors.Is(err, pandastack.ErrNotFound):
		fmt.Println("it has ended:", err)
	case errors.Is(err, pandastack.ErrConnection):
		fmt.Println("start a server with: pandastack serve")
	}
	// Output: it has ended: there is no sandbox "sb-2" (the nearest is sb-1)
}
