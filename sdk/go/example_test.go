package pandastack_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/pandastack/pandastack/api"
	pandastack "github.com/pandastack/pandastack/sdk/go"
)

// A sandbox with a warm kernel: files in, cells with state, a chart out.
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
	defer sb.Kill(ctx)

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
	fmt.Println(ex.Text())
	if err := os.WriteFile("chart.png", ex.PNG(), 0o644); err != nil {
		log.Fatal(err)
	}
}

// Output as it comes. A connection that breaks is taken up again by itself.
func ExampleCodeContext_Stream() {
	ctx := context.Background()
	client, err := pandastack.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	for event, err := range client.Sandbox("sb-…").Context("default").Stream(ctx, "for i in range(3): print(i)") {
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
}

// Errors have kinds.
func ExampleError() {
	ctx := context.Background()
	client, err := pandastack.NewClient()
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.Get(ctx, "sb-…")
	switch {
	case errors.Is(err, pandastack.ErrNotFound):
		fmt.Println("it has ended")
	case errors.Is(err, pandastack.ErrConnection):
		fmt.Println("start a server with: pandastack serve")
	}
}
